-- Tests of several trainers of one model: each has its own values, precision, program and state. One without an optimizer holds
-- parameters only. Also runs on two ranks, which share the experts.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, optim, zero = require "zt.ckpt", require "zt.optim", require "zt.zero"
local small = require "support.small_mixture"
local temporary = require "support.temporary"

local BIAS = "blocks.1.router.bias"

local function model() return small.model({router = {bias = true, bias_rate = 0.25}}) end

local function program_of(of, options, stage)
  return zt.program(of, options):apply(zero.shard{stage = stage or 2, axis = small.mesh:join{"dp", "ep"}})
end

-- Trainers that differ in all that a trainer has of its own.
local kinds = {
  function(of) return zt.trainer(program_of(of, {precision = "fp64"}), {optimizer = optim.adamw{lr = 1e-2}}) end,
  function(of)
    return zt.trainer(program_of(of, {precision = "bf16", micro_batches = 2 / zt.world.size}),
      {optimizer = optim.sgd{lr = 0.1, momentum = 0.9}, clip = 0.5})
  end,
  function(of) return zt.trainer(program_of(of, {precision = "fp32"}), {}) end,
}

-- Three steps of a trainer, or evaluations without an optimizer: a function that makes the next one and returns its loss.
local function steps_of(trainer, kind)
  local step = -1
  return function()
    step = step + 1
    local batch = small.batch(kind == 1 and step or 7 - step)
    return (kind == 3 and trainer:evaluate(batch) or trainer:step(batch)).loss
  end
end

local TestTrainers = {}

function TestTrainers:test_trainers_of_one_model_do_not_disturb_each_other()
  local alone = {}
  for kind, make in ipairs(kinds) do
    local trainer = make(model())
    local step = steps_of(trainer, kind)
    alone[kind] = {trainer = trainer, losses = {step(), step(), step()}}
  end
  local shared, together = model(), {}
  for kind, make in ipairs(kinds) do
    local trainer = make(shared)
    together[kind] = {trainer = trainer, step = steps_of(trainer, kind), losses = {}}
  end
  for _ = 1, 3 do
    for _, each in ipairs(together) do each.losses[#each.losses + 1] = each.step() end
  end
  for kind, each in ipairs(together) do
    lu.assertEquals(each.losses, alone[kind].losses, "trainer " .. kind)
    for name, values in each.trainer:state():each() do
      lu.assertTrue(values:equal(alone[kind].trainer:parameter(name)), name .. " of trainer " .. kind)
    end
  end
  lu.assertTrue(together[1].trainer:parameter(BIAS):abs():max():item() > 0)
  lu.assertTrue(together[3].trainer:parameter(BIAS):abs():max():item() == 0)
end

function TestTrainers:test_without_an_optimizer_parameters_are_held_and_nothing_else()
  for _, precision in ipairs{"fp32", "bf16"} do
    local shared = model()
    local trainer = zt.trainer(program_of(shared, {precision = precision}, 0), {})
    local full = zt.trainer(program_of(shared, {precision = precision}, 0), {optimizer = optim.adamw{lr = 0.1}})
    local memory, more = trainer:memory(), full:memory()
    for kind, line in pairs(memory) do
      if kind ~= "activations" and kind ~= "total" then
        local wanted = kind == "parameters" and more.parameters.measured or 0
        lu.assertEquals({kind, line.measured, line.predicted}, {kind, wanted, wanted})
      end
    end
    for name, values in trainer:state():each() do lu.assertTrue(values:equal(full:parameter(name)), name) end
    lu.assertEquals(trainer:evaluate(small.batch()).loss, full:evaluate(small.batch()).loss)
    local logits, same = trainer:infer{tokens = small.batch().tokens}, full:infer{tokens = small.batch().tokens}
    lu.assertTrue(logits.logits:equal(same.logits))
    lu.assertStrContains(trainer:report(), "evaluate  1 micro-batch, ")
    local plan = trainer:plan(small.batch())[1]
    lu.assertEquals(plan.memory.gradients + plan.memory.optimizer + plan.memory.master, 0)
    lu.assertTrue(plan.memory.activations > 0)
  end
end

function TestTrainers:test_without_an_optimizer_nothing_is_trained()
  local trainer = kinds[3](model())
  local why = "this trainer has no optimizer, so it runs no training steps: give zt.trainer the option `optimizer` to train"
  local batch = small.batch()
  local calls = {
    step = batch, forward = batch, set_lr = 0.1, gradient = "head.norm.weight",
    costs = batch, finish_step = {}, backward = {},
  }
  for call, argument in pairs(calls) do
    lu.assertErrorMsgContains("trainer:" .. call .. ": " .. why, trainer[call], trainer, argument)
  end
  local name = "head.norm.weight"
  lu.assertErrorMsgContains("keeps no 'exp_avg'", trainer.set_optimizer_state, trainer, name, "exp_avg", zt.zeros{16})
  lu.assertEquals(trainer:optimizer_state(name), {})
  lu.assertNotNil(trainer:evaluate(batch).loss)
  for option, value in pairs{clip = 1, on_nonfinite = "error", fp16 = {}, schedule = optim.constant{}} do
    local what = option == "schedule" and "a schedule" or option
    lu.assertErrorMsgContains("so " .. what .. " has no effect: leave it out, or give an optimizer",
      zt.trainer, program_of(model(), {}), {[option] = value})
  end
  local given = program_of(model(), {})
  lu.assertErrorMsgContains("a training program was given by with_actions, but without an optimizer nothing is trained",
    zt.trainer, given:with_actions(given:actions()), {})
  local frozen = model()
  frozen:freeze "."
  lu.assertErrorMsgContains("all parameters of the model are frozen, so the optimizer has nothing to train",
    zt.trainer, program_of(frozen, {}), {optimizer = optim.adamw{lr = 0.1}})
end

-- A checkpoint of a trainer with an optimizer serves one without; the other way round the optimizer state is missing.
function TestTrainers:test_checkpoints_of_trainers_with_and_without_an_optimizer()
  local shared = model()
  local trained, other = kinds[1](shared), zt.trainer(program_of(shared, {precision = "fp64"}, 3), {})
  for step = 0, 2 do trained:step(small.batch(step)) end
  local wanted = trained:evaluate(small.batch()).loss
  lu.assertNotEquals(other:evaluate(small.batch()).loss, wanted)
  local folder = temporary()
  ckpt.save(folder .. "/trained", {trainer = trained}, {step = 3, async = false})
  ckpt.load(folder .. "/trained", {trainer = other})
  lu.assertEquals(other:evaluate(small.batch()).loss, wanted)
  lu.assertTrue(other:parameter(BIAS):equal(trained:parameter(BIAS)))
  lu.assertEquals(other.global_step, 3)
  ckpt.save(folder .. "/values", {trainer = other}, {step = 3, async = false})
  local third = zt.trainer(program_of(shared, {precision = "fp64"}), {})
  ckpt.load(folder .. "/values", {trainer = third})
  lu.assertEquals(third:evaluate(small.batch()).loss, wanted)
  local fresh = kinds[1](shared)
  local before = fresh:evaluate(small.batch()).loss
  lu.assertErrorMsgContains("\nthe checkpoint is of a trainer without an optimizer: take its parameters by", ckpt.load,
                            folder .. "/values", {trainer = fresh})
  lu.assertErrorMsgContains("for which the objects have no place", ckpt.load, folder .. "/trained", {trainer = other},
                            {only = {"^optimizer/"}})
  lu.assertEquals(fresh:evaluate(small.batch()).loss, before)
  ckpt.load(folder .. "/values", {trainer = fresh}, {only = {"^model/"}})
  lu.assertEquals(fresh:evaluate(small.batch()).loss, wanted)
  lu.assertErrorMsgContains("have the name 'model/embedding.weight': give the objects different names, as {actor = ...",
    ckpt.save, folder .. "/two", {trainer = trained, model = other}, {step = 3, async = false})
  ckpt.save(folder .. "/both", {actor = trained, reference = other}, {step = 3, async = false})
  ckpt.load(folder .. "/both", {actor = fresh, reference = third})
  lu.assertEquals(fresh:evaluate(small.batch()).loss, wanted)
end

-- Trainers of one mesh share its communicators.
function TestTrainers:test_ranks_call_trainers_in_one_order()
  if zt.world.size == 1 then return end
  local shared = model()
  local pair = {kinds[1](shared), kinds[1](shared)}
  local other = pair[zt.world.rank + 1]
  for _, call in ipairs{"step", "evaluate"} do
    lu.assertErrorMsgContains("in the order in which they were made: all ranks of", other[call], other, small.batch())
  end
  for _, trainer in ipairs(pair) do trainer:step(small.batch()) end
  for _, call in ipairs{"parameter", "master", "gradient", "optimizer_state"} do
    lu.assertErrorMsgContains("in the order in which trainers were made: all ranks read", other[call], other,
                              "blocks.1.experts.up.weight")
  end
  lu.assertErrorMsgContains("in the order in which trainers were made: all ranks set", other.set_parameter, other,
                            "head.norm.weight", zt.ones(small.hidden))
  lu.assertEquals(pair[1]:step(small.batch(1)).loss, pair[2]:step(small.batch(1)).loss)
end

-- What is frozen and what initial values are, a trainer takes when it, or its program, is made.
function TestTrainers:test_later_changes_of_the_model_are_for_later_trainers()
  local shared = model()
  local name = "head.norm.weight"
  local program = program_of(shared, {precision = "fp64"})
  local first = zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
  shared:freeze "."
  shared:unfreeze "norm"
  shared:initialise{[name] = zt.ones(small.hidden) * 3}
  local second = zt.trainer(program_of(shared, {precision = "fp64"}), {optimizer = optim.sgd{lr = 0.1}})
  lu.assertEquals(first:parameter(name):max():item(), 1)
  lu.assertEquals(second:parameter(name):min():item(), 3)
  first:step(small.batch())
  second:step(small.batch())
  local embedding = second:parameter "embedding.weight"
  lu.assertFalse(first:parameter("embedding.weight"):equal(embedding))
  lu.assertTrue(zt.trainer(program, {}):parameter("embedding.weight"):equal(embedding))
  lu.assertErrorMsgContains("several trainers may share it, each with its own: call trainer:state()", shared.state, shared)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestTrainers", TestTrainers}})
