-- Tests that ranks which would train other models than one another are refused. Runs on two ranks.
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local rank, ranks = zt.world.rank, zt.world.size
local mesh = comm.mesh{dp = -1}

-- Returns a trainer. `options`: {seed =, lr =, dropout =, schedule =, clip =, layer =}.
local function trainer_of(options)
  local layers = {{"embedding", nn.embedding{vocab = 11, hidden = 8}}, {"drop", nn.dropout{p = options.dropout or 0.1}}}
  if options.layer then layers[#layers + 1] = {"extra", options.layer} end
  layers[#layers + 1] = {"head", nn.lm_loss{vocab = 11, hidden = 8}}
  layers.seed = options.seed or 1
  local program = zt.program(nn.sequential(layers)):apply(zero.shard{stage = options.stage or 1, axis = mesh.dp})
  return zt.trainer(program, {optimizer = optim.adamw{lr = options.lr or 0.1}, clip = options.clip, schedule = options.schedule})
end

local function batch()
  local tokens = zt.arange(8):add(rank):remainder(11):view{2, 4}:to "int64"
  return {tokens = tokens, labels = tokens}
end

local function refuses(options, what)
  if ranks == 1 then lu.skip "needs two ranks" end
  lu.assertErrorMsgContains(what, trainer_of, options)
end

local TestAlike = {}

function TestAlike:test_learning_rates()
  refuses({lr = rank + 1}, "the option 'lr' of the optimizer is 1 on rank 0 and 2 on rank 1 of 'dp'")
end

function TestAlike:test_seeds()
  refuses({seed = rank + 5}, "the model's seed is 5 on rank 0 and 6 on rank 1 of 'dp'")
end

function TestAlike:test_options_of_layers()
  refuses({dropout = rank == 0 and 0.25 or 0.5},
          "the option 'p' of layer 'drop' is 0.25 on rank 0 and 0.5 on rank 1 of 'dp'")
end

function TestAlike:test_options_of_the_trainer()
  refuses({clip = rank + 1}, "the trainer's clip is 1 on rank 0 and 2 on rank 1 of 'dp'")
  refuses({schedule = rank == 1 and optim.constant{} or nil},
          "the schedule is not given on rank 0 and constant on rank 1 of 'dp'")
end

function TestAlike:test_one_rank_without_an_optimizer()
  if ranks == 1 then lu.skip "needs two ranks" end
  local model = nn.gpt{layers = 1, hidden = 8, heads = 1, vocab = 11, seq = 4}
  lu.assertErrorMsgContains("the optimizer is adamw on rank 0 and not given on rank 1 of 'dp'", zt.trainer,
    zt.program(model):apply(zero.shard{axis = mesh.dp}), rank == 0 and {optimizer = optim.adamw{lr = 0.1}} or {})
end

-- A layer in Lua whose values were drawn after another seed on each rank.
function TestAlike:test_initial_values()
  zt.manual_seed(rank)
  local layer = nn.layer{params = {weight = zt.randn{8}}, forward = function(p, x) return x * p.weight end}
  refuses({layer = layer}, "the first initial value of 'extra.weight' is ")
end

function TestAlike:test_rates_that_are_set_later()
  if ranks == 1 then lu.skip "needs two ranks" end
  local trainer = trainer_of{}
  trainer:step(batch())
  trainer:set_lr(0.5 + rank)
  lu.assertErrorMsgContains("rank 0 has the learning rate 0.5 in this step and rank 1 has 1.5", trainer.step, trainer, batch())
  trainer:set_lr(0.5)
  lu.assertEquals(trainer:step(batch()).lr, 0.5)
end

function TestAlike:test_options_of_layers_in_lua()
  local own = nn.layer{options = {scale = rank + 2}, forward = function(_, h) return h end}
  refuses({layer = own}, "the option 'options.scale' of layer 'extra' is 2 on rank 0 and 3 on rank 1 of 'dp'")
  if ranks == 1 then lu.skip "needs two ranks" end
  for _, case in ipairs{{"options.a", {a = {}}, {}}, {'options["a.b"]', {["a.b"] = 1}, {a = {b = 1}}}} do
    local layer = nn.layer{options = case[rank + 2], forward = function(_, h) return h end}
    refuses({layer = layer}, ("the option '%s' of layer 'extra' is "):format(case[1]))
  end
  local loss = zt.loss(function(out) return out.h:mean() end, {inputs = {"h"}, reduction = rank == 0 and "mean" or "sum"})
  local model = nn.sequential{{"embedding", nn.embedding{vocab = 11, hidden = 8}}, {"loss", loss}, seed = 1}
  lu.assertErrorMsgContains("the option 'options.reduction' of layer 'loss' is ", zt.trainer,
    zt.program(model):apply(zero.shard{axis = mesh.dp}), {optimizer = optim.adamw{lr = 0.1}})
end

function TestAlike:test_frozen_parameters()
  if ranks == 1 then lu.skip "needs two ranks" end
  local model = nn.gpt{layers = 1, hidden = 8, heads = 1, vocab = 11, seq = 4}
  if rank == 1 then model:freeze "embedding" end
  local program = zt.program(model):apply(zero.shard{axis = mesh.dp})
  lu.assertErrorMsgContains("parameter 'embedding.weight' is trainable of shape [11, 8] on rank 0 and frozen of shape [11, 8] on",
    zt.trainer, program, {optimizer = optim.adamw{lr = 0.1}})
end

function TestAlike:test_divisors()
  if ranks == 1 then lu.skip "needs two ranks" end
  local trainer = trainer_of{}
  local function by_hand(divisor)
    trainer:forward(batch())
    trainer:backward()
    return trainer:finish_step{divisor = divisor}
  end
  lu.assertErrorMsgContains("rank 0 divides the gradients of this step by 1 and rank 1 by 2", by_hand, rank + 1)
  lu.assertEquals(by_hand(2).step, 0)
end

function TestAlike:test_values_that_are_set_later()
  if ranks == 1 then lu.skip "needs two ranks" end
  for stage = 0, 1 do
    local trainer = trainer_of{stage = stage}
    local old = trainer:parameter "head.weight"
    lu.assertErrorMsgContains("the ranks 0 and 1 give different values for parameter 'head.weight': give equal values",
      trainer.set_parameter, trainer, "head.weight", old + rank)
    lu.assertErrorMsgContains("'head.weight' is [11, 8], the values are float32[3]", trainer.set_parameter, trainer,
      "head.weight", rank == 0 and old or zt.zeros{3})
    lu.assertErrorMsgContains("by the values of rank 0, and rank 1 parameter 'head.weight' of trainer", trainer.set_parameter,
      trainer, "head.weight", old, rank)
    lu.assertErrorMsgContains("there is no rank 7 to take values from", trainer.set_parameter, trainer, "head.weight", old, 7)
    lu.assertTrue(trainer:parameter "head.weight":equal(old))
    trainer:set_parameter("head.weight", old + 1)
    lu.assertTrue(trainer:parameter "head.weight":equal(old + 1))
  end
end

function TestAlike:test_meshes()
  if ranks == 1 then lu.skip "needs two ranks" end
  local sizes = rank == 0 and {dp = 2, pp = 1} or {dp = 1, pp = 2}
  lu.assertErrorMsgContains("the mesh is pp=1 x dp=2 on rank 0 and pp=2 x dp=1 on rank 1 of 'mesh': the ranks would wait",
    comm.mesh, sizes)
end

function TestAlike:test_ranks_that_are_alike_train()
  for stage = 0, 3 do
    zt.manual_seed(7)
    local layer = nn.layer{params = {weight = zt.randn{8}}, forward = function(p, x) return x * p.weight end}
    local trainer = trainer_of{stage = stage, layer = layer, schedule = optim.constant{}}
    lu.assertEquals(trainer:step(batch()).step, 0)
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestAlike", TestAlike}})
