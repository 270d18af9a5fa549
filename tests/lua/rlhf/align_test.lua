-- Tests steps that are made on a condition (update_if), and steps of several trainers that update together or not at all. Also
-- runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, optim, rlhf, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.rlhf", require "zt.zero"

local mesh = comm.mesh{dp = -1}
local options = {layers = 1, hidden = 16, heads = 2, vocab = 16, seq = 8, seed = 3}

local function trainer_of(more, stage, precision)
  local program = zt.program(nn.gpt(options), {precision = precision or "fp32"}):apply(zero.shard{axis = mesh.dp, stage = stage})
  local all = {optimizer = optim.adamw{lr = 1e-2}}
  for key, value in pairs(more or {}) do all[key] = value end
  return zt.trainer(program, all)
end

local function batch_of(step)
  local draw = zt.generator(100 * step + mesh.dp.rank)
  local tokens = zt.randint(16, {2, 9}, {generator = draw}):to "int64"
  return {tokens = tokens:narrow(1, 0, 8):contiguous(), labels = tokens:narrow(1, 1, 8):contiguous()}
end

local function assert_same(a, b)
  for _, name in ipairs(a:parameters()) do
    lu.assertEquals((a:master(name) - b:master(name)):abs():max():item(), 0, name)
  end
end

local TestUpdateIf = {}

function TestUpdateIf.test_a_step_that_is_wanted_is_a_step()
  for stage = 0, 3 do
    local with, without = trainer_of(nil, stage), trainer_of(nil, stage)
    for step = 1, 3 do
      local asked = 0
      local result = with:step(batch_of(step), {update_if = function(is_finite)
        asked = asked + 1
        return is_finite
      end})
      local wanted = without:step(batch_of(step))
      lu.assertEquals({result.loss, result.grad_norm, result.skipped, asked}, {wanted.loss, wanted.grad_norm, false, 1})
    end
    assert_same(with, without)
  end
end

function TestUpdateIf.test_a_step_that_is_not_wanted_changes_nothing()
  for stage = 0, 3 do
    local trainer, other = trainer_of(nil, stage), trainer_of(nil, stage)
    trainer:step(batch_of(1))
    other:step(batch_of(1))
    local result = trainer:step(batch_of(2), {update_if = function() return false end})
    lu.assertTrue(result.skipped)
    assert_same(trainer, other)
    trainer:step(batch_of(3))
    other:step(batch_of(3))
    assert_same(trainer, other) -- the moments, and the number of updates, too
  end
end

function TestUpdateIf.test_one_rank_decides_for_all()
  local trainer, other = trainer_of(nil, 1), trainer_of(nil, 1)
  local result = trainer:step(batch_of(1), {update_if = function() return zt.world.rank > 0 end})
  lu.assertTrue(result.skipped)
  assert_same(trainer, other)
end

function TestUpdateIf.test_a_function_that_fails_on_a_rank_fails_everywhere()
  local trainer, other = trainer_of(nil, 2), trainer_of(nil, 2)
  lu.assertErrorMsgContains("no more", function()
    trainer:step(batch_of(1), {update_if = function()
      if zt.world.rank == zt.world.size - 1 then error "no more" end
      return true
    end})
  end)
  assert_same(trainer, other)
  lu.assertErrorMsgContains("must return true or false", function()
    trainer:step(batch_of(1), {update_if = function() return nil end})
  end)
  trainer:step(batch_of(1)) -- the trainer goes on
  other:step(batch_of(1))
  assert_same(trainer, other)
end

local TestAlign = {}

-- Returns a trainer in fp16 whose first steps overflow if `scale` is large.
local function half(scale)
  return trainer_of({fp16 = {initial_scale_power = scale, loss_scale_window = 1000, hysteresis = 1}}, 1, "fp16")
end

function TestAlign.test_an_overflow_of_one_lets_none_update()
  local small, large, alone = half(8), half(40), half(8)
  local results = rlhf.align_overflow{{small, batch_of(1)}, {large, batch_of(2)}}
  lu.assertEquals({results[1].skipped, results[2].skipped}, {true, true})
  lu.assertEquals(small.loss_scale, 2 ^ 8) -- it has not overflowed
  lu.assertTrue(large.loss_scale < 2 ^ 40)
  assert_same(small, alone)
  results = rlhf.align_overflow{{large, batch_of(2)}, {small, batch_of(1)}}
  lu.assertEquals({results[1].skipped, results[2].skipped}, {true, true})
  assert_same(small, alone)
  for _ = 1, 60 do
    if not results[1].skipped then break end
    results = rlhf.align_overflow{{large, batch_of(2)}, {small, batch_of(1)}}
  end
  lu.assertEquals({results[1].skipped, results[2].skipped}, {false, false})
end

function TestAlign.test_without_overflow_it_is_a_step_of_each()
  local a, b, a_alone, b_alone = trainer_of(nil, 1), trainer_of(nil, 3), trainer_of(nil, 1), trainer_of(nil, 3)
  for step = 1, 2 do
    rlhf.align_overflow{{a, batch_of(step)}, {b, batch_of(step + 5)}}
    a_alone:step(batch_of(step))
    b_alone:step(batch_of(step + 5))
  end
  assert_same(a, a_alone)
  assert_same(b, b_alone)
end

function TestAlign.test_mistakes()
  local trainer = trainer_of()
  lu.assertErrorMsgContains("takes a list of {trainer, batch}", rlhf.align_overflow, {})
  lu.assertErrorMsgContains("[1] must be {trainer, batch}", rlhf.align_overflow, {trainer})
  lu.assertErrorMsgContains("twice", rlhf.align_overflow, {{trainer, batch_of(1)}, {trainer, batch_of(1)}})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestUpdateIf", TestUpdateIf}, {"TestAlign", TestAlign}})
