-- Tests what offload.move tells of programs, steps that fail, actions of scripts, and mistakes. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local offload, optim = require "zt.offload", require "zt.optim"
local assert_same = require("support.small_trainer").assert_same
local small = require "offload.moved_trainers"
local program_of, moved, trainer_of, batch = small.program_of, small.moved, small.trainer_of, small.batch
local folder, MOVES, VOCAB = small.folder, small.MOVES, small.VOCAB
local rank, ranks = zt.world.rank, zt.world.size

local TestOffloadPrograms = {}

function TestOffloadPrograms:test_a_step_that_fails_leaves_all_at_home()
  local options = {stage = 3}
  local a, b = trainer_of(program_of(options), options), trainer_of(moved(options), options)
  a:step(batch(1))
  b:step(batch(1))
  small.check_failing_steps(a, b)
end

-- One rank fails in its forward: the others wait for what it sends, and all of them end the step.
function TestOffloadPrograms:test_a_step_that_fails_on_one_rank()
  for stage = 2, 3 do
    local options = {stage = stage, every = "micro_batch"}
    local a, b = trainer_of(program_of(options), options), trainer_of(moved(options), options)
    a:step(batch(1))
    b:step(batch(1))
    local wrong = batch(2)
    if rank == ranks - 1 then wrong.tokens = wrong.tokens + VOCAB end
    for _ = 1, 2 do
      lu.assertErrorMsgContains("embedding", b.step, b, wrong)
      lu.assertErrorMsgContains("embedding", b.evaluate, b, wrong)
    end
    a:step(batch(2))
    b:step(batch(2))
    assert_same(a, b, " after an error of one rank")
  end
end

function TestOffloadPrograms:test_memory()
  local options = {stage = 1}
  local trainer = trainer_of(moved(options, {ratio = 0.5}), options)
  trainer:step(batch(1))
  local memory = trainer:memory()
  for _, kind in ipairs{"parameters", "gradients", "optimizer", "staging", "files"} do
    lu.assertEquals(memory[kind].measured, memory[kind].predicted, kind)
    lu.assertTrue(memory[kind].predicted > 0, kind)
  end
  local sum = 0
  for kind, line in pairs(memory) do
    if kind ~= "total" and kind ~= "files" then sum = sum + line.predicted end
  end
  lu.assertEquals(memory.total.predicted, sum)
  lu.assertStrContains(trainer:report(), "memory    files")
  lu.assertStrContains(zt.memory_text(trainer), "\ntotal .*\nfiles ", true)
end

function TestOffloadPrograms:test_text()
  local options = {stage = 1, precision = "bf16"}
  local program = moved(options)
  local text = program:text()
  lu.assertStrContains(text, "state_home=file")
  lu.assertStrContains(text, "FETCH 2 home=file master=true part=0 parts=")
  local again = trainer_of(moved(options):with_actions(text), options)
  local whole = trainer_of(program, options)
  lu.assertEquals(again:step(batch(1)).loss, whole:step(batch(1)).loss)
  assert_same(again, whole, " from text")
end

-- The simulation knows what is moved, and how long the disk took.
function TestOffloadPrograms:test_simulation()
  local options = {stage = 1}
  local trainer = trainer_of(moved(options), options)
  lu.assertErrorMsgContains("have no file_", trainer.simulate, trainer, batch(1), "a100")
  local costs = trainer:costs(batch(1), {steps = 2})
  lu.assertTrue(costs.measured["FETCH state head"].moved_bytes > 0)
  lu.assertTrue(trainer:simulate(batch(1), costs).seconds > 0)
end

-- Actions of a script that touch a whole part, which cannot be cut into slices.
function TestOffloadPrograms:test_own_actions()
  local look = zt.action{name = "LOOK_AT_STATE", reads = {"state"}, start = function() end}
  local pass = zt.pass{name = "look", phase = "overlap", actions = {look}, apply = function(program)
    program.actions[#program.actions + 1] = look(2)
    return program
  end}
  lu.assertErrorMsgContains("leave them in the device's memory", trainer_of, moved({stage = 0}):apply(pass), {})
  local sum = zt.action{name = "SUM_OF_GRADIENT", reads = {"grad"}, start = function(ctx)
    assert(ctx.unit.grad_shard:numel() > 0)
  end}
  local before_norm = zt.pass{name = "sum", phase = "overlap", actions = {sum}, apply = function(program)
    for i, action in ipairs(program.actions) do
      if action.kind == "NORM" and program.mode == "train" then
        table.insert(program.actions, i, sum(2))
        break
      end
    end
    return program
  end}
  for stage = 0, 2, 2 do trainer_of(moved({stage = stage}):apply(before_norm), {}):step(batch(1)) end
  -- What is read after the updates comes to memory as a whole.
  local seen = 0
  local norm = zt.action{name = "NORM_OF_MASTER", reads = {"master"}, start = function(ctx)
    seen = ctx.unit.master:norm():item()
  end}
  local after_steps = zt.pass{name = "norm", phase = "overlap", actions = {norm}, apply = function(program)
    if program.mode == "train" then program.actions[#program.actions + 1] = norm(2) end
    return program
  end}
  local wanted
  for _, move in ipairs{{parameters = "device", gradients = "device", optimizer = "device", folder = {}}, {}} do
    local options = {stage = 3}
    trainer_of(moved(options, move):apply(after_steps), options):step(batch(1))
    wanted = wanted or seen
    lu.assertEquals(seen, wanted)
  end
end

-- An action changes gradients after their reduction. They leave later then, and keep their memory until they do.
function TestOffloadPrograms:test_actions_that_change_gradients()
  local halve = zt.action{name = "HALVE", reads = {"grad"}, writes = {"grad"}, start = function(ctx)
    ctx.unit.grad_shard:mul_(0.5)
  end}
  local function halves(program, info)
    if program.mode ~= "train" then return program end
    local actions = {}
    for _, action in ipairs(program.actions) do
      for unit = 0, action.kind == "NORM" and #info.units - 1 or -1, 2 do actions[#actions + 1] = halve(unit) end
      actions[#actions + 1] = action
    end
    program.actions = actions
    return program
  end
  for stage = 0, 2 do
    for _, every in ipairs{"step", "micro_batch"} do
      local halving = zt.pass{name = "halve", phase = "reduction", actions = {halve}, apply = halves}
      local options = {stage = stage, every = every, layers = 4, bucket_bytes = 4096}
      local there = trainer_of(small.program_of(options):apply(halving), options)
      local away = trainer_of(small.program_of(options):apply(halving):apply(offload.move(MOVES)), options)
      for step = 1, 2 do lu.assertEquals(away:step(batch(step)).grad_norm, there:step(batch(step)).grad_norm) end
    end
  end
end

-- Outside of training there are no gradients, so an action that reads them in all modes needs nothing.
function TestOffloadPrograms:test_gradients_outside_of_training()
  local look = zt.action{name = "LOOK_AT_GRADIENT", reads = {"grad"}, start = function() end}
  local everywhere = zt.pass{name = "everywhere", phase = "overlap", actions = {look}, apply = function(program)
    if program.mode ~= "train" then table.insert(program.actions, #program.actions, look(0)) end
    return program
  end}
  trainer_of(moved({stage = 0}):apply(everywhere), {}):evaluate(batch(1))
end

-- A buffer of units beside data that travel: an average of master parameters, which come to memory as a whole.
function TestOffloadPrograms:test_buffers_of_units()
  local function trainer_with_average(is_moved)
    local ema = zt.buffer{name = "ema", residence = "sharded"}
    local function start(ctx) ctx.buffer.ema:mul_(0.5):add_(ctx.unit.master * 0.5) end
    local average = zt.action{name = "AVERAGE", role = "update", reads = {"master", "scalars"}, buffers = {ema}, start = start}
    local pass = zt.pass{phase = "overlap", mesh = small.mesh, actions = {average}, buffers = {ema}, apply = function(program)
      for unit = 0, #program.units - 1 do
        if program.mode == "train" then program.actions[#program.actions + 1] = average(unit) end
      end
      return program
    end}
    local options = {stage = 3}
    return trainer_of((is_moved and moved(options) or program_of(options)):apply(pass), options)
  end
  local a, b = trainer_with_average(false), trainer_with_average(true)
  for step = 1, 3 do lu.assertEquals(b:step(batch(step)).loss, a:step(batch(step)).loss) end
  assert_same(a, b, " beside a buffer")
  for _, name in ipairs(a:parameters()) do lu.assertTrue(a:buffer("ema", name):equal(b:buffer("ema", name)), name) end
end

function TestOffloadPrograms:test_mistakes()
  lu.assertErrorMsgContains("needs a folder", offload.move, {optimizer = "nvme"})
  lu.assertErrorMsgContains("folder must be a path or a list of paths, got a", offload.move, {optimizer = "nvme", folder = 3})
  lu.assertErrorMsgContains("apply offload.move once", trainer_of, moved({stage = 1}):apply(offload.move(MOVES)), {})
  lu.assertErrorMsgContains("give one of them", offload.move, {ratio = 0.5, memory = 0})
  lu.assertErrorMsgContains("does not exist", trainer_of, moved({stage = 0}, {folder = {folder .. "/none"}}), {})
  lu.assertErrorMsgContains("shards of parameters", trainer_of, moved({stage = 1}, {parameters = "nvme"}), {})
  lu.assertErrorMsgContains("as a whole", trainer_of, moved{stage = 1}, {optimizer = optim.muon{lr = 1e-2}})
end

small.run("TestOffloadPrograms", TestOffloadPrograms)
