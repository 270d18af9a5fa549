-- Tests that scripts get the gradient of the objective, whatever the ranks, micro-batches and loss scale. Also runs on two ranks.
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local SAMPLES, SEQ, VOCAB = 8, 4, 11
local rank, ranks = zt.world.rank, zt.world.size
local mesh = comm.mesh{dp = -1}

-- Returns `count` samples from `first` on of a global batch in which one of five labels is valid.
local function batch(first, count)
  local tokens = zt.arange(SAMPLES * SEQ):remainder(VOCAB):view({SAMPLES, SEQ}):to "int64"
  local is_valid = zt.arange(SAMPLES * SEQ):remainder(5):eq(0):view({SAMPLES, SEQ})
  local labels = (tokens * 3 + 1):remainder(VOCAB):where(is_valid, zt.tensor(-100):to "int64")
  return {tokens = tokens:narrow(0, first, count), labels = labels:narrow(0, first, count)}
end

local function my_batch() return batch(rank * SAMPLES / ranks, SAMPLES / ranks) end

local function make(options)
  local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3}
  local program = zt.program(model, {micro_batches = options.micro_batches or 1, precision = options.precision or "fp64"})
  if options.stage then program = program:apply(zero.shard{stage = options.stage, axis = mesh.dp}) end
  if options.pass then program = program:apply(options.pass) end
  return zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}, fp16 = options.fp16})
end

local function gradients(trainer)
  local parts = {}
  for _, name in ipairs(trainer:parameters()) do parts[#parts + 1] = trainer:gradient(name):view{-1}:to "float64" end
  return zt.cat(parts)
end

local function distance(a, b) return (a - b):norm():item() / b:norm():item() end

-- Returns the gradient and its norm on one rank, without a mesh.
local function expected()
  local trainer = make{}
  local norm = trainer:step(batch(0, SAMPLES)).grad_norm
  return gradients(trainer), norm
end

-- Returns a pass that halves each unit's gradient before NORM.
local function halved(name)
  local function halve(ctx) ctx.unit.grad_shard:mul_(0.5) end
  local half = zt.action{name = name, reads = {"grad"}, writes = {"grad"}, start = halve}
  return zt.pass{name = name, phase = "overlap", mesh = mesh, actions = {half}, apply = function(program, info)
    if program.mode ~= "train" then return program end
    local list = {}
    for _, action in ipairs(program.actions) do
      if action.kind == "NORM" then
        for unit = 0, #info.units - 1 do list[#list + 1] = half(unit) end
      end
      list[#list + 1] = action
    end
    program.actions = list
    return program
  end}
end

local TestGradient = {}

-- An action of a script may change the sum over the ranks: the norm and the update are those of what it leaves.
function TestGradient:test_an_action_changes_the_sum()
  local _, norm = expected()
  for stage = 0, 3 do
    for _, micro_batches in ipairs{1, 2} do
      local trainer = make{stage = stage, micro_batches = micro_batches, pass = halved("HALF")}
      lu.assertAlmostEquals(trainer:step(my_batch()).grad_norm / norm, 0.5, 1e-12)
    end
  end
end

function TestGradient:test_its_norm_is_the_steps()
  local gradient, norm = expected()
  lu.assertTrue(norm > 0)
  lu.assertAlmostEquals(gradient:norm():item() / norm, 1, 1e-12)
end

function TestGradient:test_it_depends_on_neither_stage_nor_ranks_nor_micro_batches()
  local wanted = expected()
  for stage = 0, 3 do
    for _, micro_batches in ipairs{1, 2} do
      local trainer = make{stage = stage, micro_batches = micro_batches}
      trainer:step(my_batch())
      lu.assertTrue(distance(gradients(trainer), wanted) < 1e-12)
      trainer:evaluate(my_batch())
      lu.assertTrue(distance(gradients(trainer), wanted) < 1e-12)
    end
  end
end

function TestGradient:test_it_does_not_depend_on_the_loss_scale()
  local wanted = expected()
  for _, scale in ipairs{64, 256} do
    local trainer = make{stage = 1, precision = "fp16", fp16 = {loss_scale = scale}}
    trainer:step(my_batch())
    lu.assertTrue(distance(gradients(trainer), wanted) < 0.05) -- fp16 rounds to 2^-11; a wrong factor is far off
  end
end

function TestGradient:test_by_hand_it_is_there_before_the_step_is_finished()
  local trainer = make{stage = 2, micro_batches = 2}
  local part = SAMPLES / ranks / 2
  for micro_batch = 0, 1 do
    trainer:forward(batch(rank * SAMPLES / ranks + micro_batch * part, part))
    lu.assertErrorMsgContains("ask after the last backward", trainer.gradient, trainer, "embedding.weight")
    trainer:backward()
  end
  local before = gradients(trainer)
  local norm = trainer:finish_step().grad_norm
  lu.assertAlmostEquals(before:norm():item() / norm, 1, 1e-12)
  lu.assertEquals(gradients(trainer):tolist(), before:tolist())
end

function TestGradient:test_by_hand_with_a_divisor()
  local trainer = make{stage = 0}
  trainer:forward(my_batch())
  trainer:backward()
  local mean = gradients(trainer)
  local norm = trainer:finish_step{divisor = 0.5 * ranks}.grad_norm
  lu.assertAlmostEquals(gradients(trainer):norm():item() / norm, 1, 1e-12)
  lu.assertTrue(distance(gradients(trainer), 2 * mean) < 1e-15)
end

function TestGradient:test_gathered_gives_the_same()
  local trainer = make{stage = 3}
  trainer:step(my_batch())
  zero.gathered(trainer, "embedding.weight", function(tensors)
    lu.assertEquals(tensors["embedding.weight"].gradient:tolist(), trainer:gradient("embedding.weight"):tolist())
  end, {gradients = true})
end

-- An action gets the undivided sum of gradients and its divisor.
function TestGradient:test_an_action_knows_the_divisor()
  local squares, scale = 0, nil
  local look = zt.action{name = "LOOK_AT_GRADIENT", reads = {"grad", "scalars"}, start = function(ctx)
    squares = squares + (ctx.unit.grad_shard / ctx.grad_divisor):pow(2):sum():item()
    scale = ctx.grad_divisor
  end}
  local pass = zt.pass{name = "look", phase = "overlap", mesh = mesh, actions = {look}, apply = function(program)
    local actions = {}
    for _, action in ipairs(program.actions) do
      actions[#actions + 1] = action
      if action.kind == "NORM" then
        for _, step in ipairs(program.actions) do
          if step.kind == "STEP" then actions[#actions + 1] = look(step.target) end
        end
      end
    end
    program.actions = actions
    return program
  end}
  local trainer = make{stage = 2, pass = pass}
  local norm = trainer:step(my_batch()).grad_norm
  local total = zt.tensor(squares):to "float64":view{1}
  mesh.dp:all_reduce(total)
  lu.assertAlmostEquals(math.sqrt(total:item()) / norm, 1, 1e-6)
  lu.assertTrue(scale ~= 1)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestGradient", TestGradient}})
