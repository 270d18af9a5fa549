-- Tests calls of a trainer from within its own step, and batches of the wrong type. Runs on one rank and on two.
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local rank, ranks = zt.world.rank, zt.world.size
local mesh = comm.mesh{dp = -1}
local UNDER_WAY = "a step of this trainer is under way: its layers, losses and actions, and functions given to trainer:infer, "
                  .. "must not call the trainer"

-- Returns a trainer. `call`: what its layer calls in a forward, or nil.
local function trainer_of(stage, call, node_shared)
  local layer = nn.layer{forward = function(_, h)
    if call then call() end
    return h
  end}
  local model = nn.sequential{
    {"embedding", nn.embedding{vocab = 11, hidden = 8}}, {"calls", layer}, {"head", nn.lm_loss{vocab = 11, hidden = 8}}, seed = 1,
  }
  local program = zt.program(model):apply(zero.shard{axis = mesh.dp, stage = stage, node_shared = node_shared})
  return zt.trainer(program, {optimizer = optim.adamw{lr = 0.1}})
end

local function batch(step)
  local tokens = zt.arange(8):add(rank * 3 + step):remainder(11):view{2, 4}:to "int64"
  return {tokens = tokens, labels = tokens}
end

local function losses_of(trainer)
  local losses = {}
  for step = 1, 3 do losses[step] = trainer:step(batch(step)).loss end
  return losses
end

local TestCallsInStep = {}

function TestCallsInStep:test_a_layer_that_calls_its_trainer()
  for stage = 0, 3 do
    local expected = losses_of(trainer_of(stage))
    local trainer, call
    trainer = trainer_of(stage, function() if call then call(trainer) end end)
    for _, name in ipairs{"step", "evaluate", "infer", "forward"} do
      call = function(of) return of[name](of, batch(1)) end
      lu.assertErrorMsgContains(UNDER_WAY, trainer.step, trainer, batch(1))
    end
    call = function(of) return of:parameter "head.weight" end
    lu.assertErrorMsgContains(UNDER_WAY, trainer.evaluate, trainer, batch(1))
    call = function(of) return of:set_parameter("head.weight", zt.zeros{11, 8}) end
    lu.assertErrorMsgContains(UNDER_WAY, trainer.step, trainer, batch(1))
    call = nil
    lu.assertEquals(losses_of(trainer), expected)
  end
end

function TestCallsInStep:test_a_function_of_the_outputs_that_calls_its_trainer()
  for stage = 0, 3, 3 do
    local expected, trainer = losses_of(trainer_of(stage)), trainer_of(stage)
    for _, name in ipairs{"step", "evaluate", "infer"} do
      local function call() return trainer[name](trainer, batch(1)) end
      lu.assertErrorMsgContains(UNDER_WAY, trainer.infer, trainer, batch(1), call)
    end
    lu.assertErrorMsgContains("cannot be written as JSON", trainer.infer, trainer, batch(1), function(out) return out.logits end)
    lu.assertEquals(trainer:infer(batch(1), function(out) return out.logits:size(2) end), 11)
    lu.assertEquals(losses_of(trainer), expected)
  end
  -- The ranks gather parameters, so they run it together.
  local trainer = trainer_of(3, nil, ranks == 1)
  local function fails_on_the_last() return rank == ranks - 1 and error "no such answer" or 1 end
  lu.assertErrorMsgContains("no such answer", trainer.infer, trainer, batch(1), fails_on_the_last)
  lu.assertEquals(trainer:infer(batch(1), function() return 7 end), 7)
end

function TestCallsInStep:test_an_action_that_calls_its_trainer()
  local trainer
  local look = zt.action{name = "LOOK", start = function() trainer:evaluate(batch(1)) end}
  local pass = zt.pass{name = "look", phase = "overlap", actions = {look}, apply = function(program)
    if program.mode == "train" then table.insert(program.actions, look(0)) end
    return program
  end}
  local model = nn.gpt{layers = 1, hidden = 8, heads = 1, vocab = 11, seq = 4}
  trainer = zt.trainer(zt.program(model):apply(zero.shard{axis = mesh.dp}):apply(pass), {optimizer = optim.adamw{lr = 0.1}})
  lu.assertErrorMsgContains(UNDER_WAY, trainer.step, trainer, batch(1))
end

-- All ranks learn of a batch of the wrong type on the last one, and go on.
function TestCallsInStep:test_batches_of_the_wrong_type()
  local wrong = {[1] = nil, [2] = "tokens", [3] = {tokens = "x"}, [4] = {{tokens = zt.ones{2, 4}}, "x"}}
  for stage = 0, 3, 3 do
    local expected, trainer = losses_of(trainer_of(stage)), trainer_of(stage)
    for kind = 1, 4 do
      for _, name in ipairs{"step", "evaluate", "costs"} do
        local given = batch(1)
        if rank == ranks - 1 then given = wrong[kind] end
        local is_taken, message = pcall(trainer[name], trainer, given)
        lu.assertFalse(is_taken, name .. kind)
        if rank < ranks - 1 then lu.assertStrContains(message, ("rank %d of 'dp' failed: "):format(ranks - 1)) end
      end
    end
    lu.assertEquals(losses_of(trainer), expected)
  end
end

-- A layer that fails on the last rank, while each action of the others waits for it.
function TestCallsInStep:test_a_failure_while_costs_are_measured()
  for stage = 0, 3 do
    local fails = false
    local trainer = trainer_of(stage, function() if fails and rank == ranks - 1 then error "the last one fails" end end)
    local expected = losses_of(trainer_of(stage))
    fails = true
    lu.assertErrorMsgContains("the last one fails", trainer.costs, trainer, batch(1))
    fails = false
    lu.assertEquals(losses_of(trainer), expected)
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCallsInStep", TestCallsInStep}})
