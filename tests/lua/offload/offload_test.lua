-- Tests offload.move in scripts: data in files train with the bits of data in memory. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local check = require "zt.check"
local lu = require "luaunit"
local zt = require "zt"
local nn, offload, optim, zero = require "zt.nn", require "zt.offload", require "zt.optim", require "zt.zero"
local assert_same = require("support.small_trainer").assert_same
local small = require "offload.moved_trainers"
local program_of, moved, trainer_of, batch = small.program_of, small.moved, small.trainer_of, small.batch
local mesh, MOVES = small.mesh, small.MOVES
local rank = zt.world.rank

local TestOffload = {}

function TestOffload:test_bits()
  local cases = {
    {stage = 0, frozen = "^blocks\\.1\\.attention"}, {stage = 1, precision = "bf16"}, {stage = 2, tied = true},
    {stage = 3, precision = "bf16", every = "micro_batch"}, {stage = 3, optimizer = optim.sgd{lr = 0.1}},
  }
  for i, options in ipairs(cases) do
    local a, b = trainer_of(program_of(options), options), trainer_of(moved(options), options)
    for step = 1, 2 do
      local x, y = a:step(batch(step)), b:step(batch(step))
      lu.assertEquals({y.loss, y.grad_norm}, {x.loss, x.grad_norm})
    end
    lu.assertEquals(b:evaluate(batch(5)).loss, a:evaluate(batch(5)).loss)
    for _, parameter in ipairs(a.model:parameters()) do
      local name = parameter.name
      if parameter.trainable then lu.assertTrue(a:gradient(name):equal(b:gradient(name)), "gradient of " .. name) end
    end
    assert_same(a, b, " of case " .. i)
  end
end

function TestOffload:test_setters()
  local options = {stage = 3, precision = "bf16"}
  local a, b = trainer_of(program_of(options), options), trainer_of(moved(options), options)
  a:step(batch(1))
  for _, name in ipairs(a:parameters()) do
    b:set_parameter(name, a:master(name))
    local state = a:optimizer_state(name)
    for _, key in ipairs(check.sorted_keys(state)) do b:set_optimizer_state(name, key, state[key]) end
  end
  assert_same(a, b, " after it was set")
end

function TestOffload:test_by_hand()
  local options = {stage = 2}
  local a, b = trainer_of(program_of(options), options), trainer_of(moved(options), options)
  for step = 1, 2 do
    for _, trainer in ipairs{a, b} do small.step_by_hand(trainer, step) end
  end
  assert_same(a, b, " by hand")
end

-- States whose names are those of tensors of units.
function TestOffload:test_names_of_states()
  local function optimizer()
    return zt.optimizer{name = "own", lr = 0.1, states = {master = "like", shard = "like"}, step = function(info, p, g, state)
      state.master:mul_(0.9):add_(g)
      state.shard:add_(1)
      p:sub_(state.master * info.lr)
    end}
  end
  local options = {stage = 1, precision = "bf16", optimizer = optimizer()}
  local a, b = trainer_of(program_of(options), options), trainer_of(moved(options), {optimizer = optimizer()})
  a:step(batch(1))
  b:step(batch(1))
  assert_same(a, b, " with such names")
  lu.assertEquals(b:optimizer_state("head.norm.weight").shard[0]:item(), 1)
end

function TestOffload:test_input_gradients()
  local function trainer(is_moved)
    local read = nn.layer{io = {inputs = {}, outputs = {"h"}}, forward = function(_, ctx) return ctx:batch "x" end}
    local loss = zt.loss(function(out, ctx) return (out.h - ctx:batch "y"):pow(2):mean(1):sum() end,
                         {name = "squares", per = "sample", inputs = {"h"}})
    local layer = nn.sequential{seed = 4, {"read", read}, {"up", nn.linear{["in"] = 8, out = 600}},
                                {"down", nn.linear{["in"] = 600, out = 3}}, {"loss", loss}}
    local program = zt.program(layer, {inputs_need_grad = {"x"}}):apply(zero.shard{axis = mesh.dp, stage = 2})
    if is_moved then program = program:apply(offload.move(MOVES)) end
    return zt.trainer(program, {optimizer = optim.adamw{lr = 1e-2}})
  end
  local draw = zt.generator(7 + rank)
  local samples = {x = zt.randn({4, 8}, {generator = draw}), y = zt.randn({4, 3}, {generator = draw})}
  local a, b = trainer(false), trainer(true)
  for _ = 1, 2 do
    lu.assertEquals(b:step(samples).loss, a:step(samples).loss)
    lu.assertTrue(a:input_gradients(samples).x:equal(b:input_gradients(samples).x))
    lu.assertTrue(a:gradient("up.weight"):equal(b:gradient("up.weight")))
  end
  assert_same(a, b, " beside input_gradients")
end

function TestOffload:test_overflow_that_skips()
  local options = {stage = 2, precision = "fp16"}
  local function trainer(program)
    return zt.trainer(program, {optimizer = optim.adamw{lr = 1e-2}, fp16 = {initial_scale_power = 24}})
  end
  local a, b = trainer(program_of(options)), trainer(moved(options))
  local skipped = 0
  for step = 1, 8 do
    local x, y = a:step(batch(step)), b:step(batch(step))
    lu.assertEquals(y.skipped, x.skipped)
    skipped = skipped + (x.skipped and 1 or 0)
  end
  lu.assertTrue(skipped > 0 and skipped < 8, "some steps are skipped: " .. skipped)
  assert_same(a, b, " after an overflow")
end

small.run("TestOffload", TestOffload)
