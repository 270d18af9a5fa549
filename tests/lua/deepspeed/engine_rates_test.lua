-- Tests zt.initialize: the learning rate of every step, and skipped steps. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm = require "zt.comm"
local nn = require "zt.nn"
local optim = require "zt.optim"
local zero = require "zt.zero"
local small = require "support.small_engine"

local batch, engine_of, gpt = small.batch, small.engine_of, small.gpt
local assert_same, three_calls, weights = small.assert_same, small.three_calls, small.weights
local MICRO, PARTS, ROWS = small.micro, small.parts, small.rows

local TestRates = {}

-- Asserts that the engine's steps have these rates. Plain SGD without clipping computes w - lr g, so the weights show the rate.
local function assert_same_steps(engine, rates)
  local mesh = comm.mesh{dp = -1}
  for step, rate in ipairs(rates) do
    local program = zt.program(gpt(), {micro_batches = PARTS}):apply(zero.shard{stage = 0, axis = mesh.dp})
    local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = rate}})
    for _, name in ipairs(trainer:parameters()) do trainer:set_parameter(name, engine.trainer:parameter(name)) end
    lu.assertEquals(engine:get_lr(), rate)
    lu.assertEquals(engine:train_batch(batch(step)), trainer:step(batch(step)).loss)
    lu.assertEquals(engine.result.lr, rate)
    assert_same(engine, {trainer = trainer})
  end
end

function TestRates:test_every_step_has_the_schedules_rate()
  local engine = engine_of{gradient_clipping = 0, scheduler = {
    type = "WarmupDecayLR", params = {warmup_num_steps = 3, total_num_steps = 7, warmup_max_lr = 0.5, warmup_type = "linear"},
  }}
  local rates = {}
  for step = 1, 6 do rates[step] = engine.schedule.rate(step - 1) end
  lu.assertEquals({rates[1], rates[2], rates[5]}, {0, 0, 0.5}) -- the first two rates of DeepSpeed's schedules are equal
  assert_same_steps(engine, rates)
end

function TestRates:test_a_schedule_written_in_lua()
  assert_same_steps(engine_of({gradient_clipping = 0}, {schedule = function(updates) return 2^-updates end}), {1, 0.5, 0.25})
end

function TestRates:test_set_lr()
  local engine = engine_of{gradient_clipping = 0}
  assert_same_steps(engine, {0.5})
  engine:set_lr(0.125)
  assert_same_steps(engine, {0.125, 0.125})
  engine:set_lr(0)
  local before = weights(engine)
  three_calls(engine, 0)
  lu.assertTrue(weights(engine):equal(before))
  engine:set_lr()
  assert_same_steps(engine, {0.5})
end

function TestRates:test_the_scripts_schedule()
  local schedule = optim.warmup_linear{warmup = 2, total = 6}
  local rates = {}
  for step = 1, 4 do rates[step] = schedule:lr(step - 1, 0.5) end
  assert_same_steps(engine_of({gradient_clipping = 0}, {schedule = schedule}), rates)
end

-- Returns an engine whose loss is scaled by the batch field `factor`.
local function engine_of_any_loss(more)
  local layers = {nn.linear{["in"] = 2, out = 2}, zt.loss(function(out, ctx) return (out.h * ctx:batch "factor"):mean() end,
                                                          {inputs = {"h"}, per = "sample"}), seed = 1}
  table.insert(layers, 1, nn.layer{
    io = {inputs = {}, outputs = {{name = "h", differentiable = false}}}, forward = function(_, ctx) return ctx:batch "x" end,
  })
  return engine_of(more, {model = nn.sequential(layers)})
end

function TestRates:test_a_step_that_is_not_finite_is_skipped()
  local engine = engine_of_any_loss{zero_optimization = {stage = 1}}
  local function step(factor)
    return engine:train_batch{x = zt.ones{ROWS, 2}, factor = zt.full({ROWS, 2}, factor)}
  end
  step(1)
  local before = weights(engine)
  local loss = step(0 / 0)
  lu.assertTrue(loss ~= loss)
  lu.assertTrue(weights(engine):equal(before))
  lu.assertEquals({engine.global_steps, engine.skipped_steps, engine:was_step_applied()}, {2, 1, false})
  for _ = 1, PARTS do -- backward accepts a loss of nan
    engine:backward(engine{x = zt.ones{MICRO, 2}, factor = zt.full({MICRO, 2}, 0 / 0)})
    engine:step()
  end
  lu.assertEquals({engine.global_steps, engine.skipped_steps}, {3, 2})
  step(1)
  lu.assertEquals({engine.skipped_steps, engine:was_step_applied(), weights(engine):equal(before)}, {2, true, false})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestRates", TestRates}})
