-- A pass and an action written in Lua: local SGD (Stich 2019). Every rank trains alone; every k steps the ranks average their
-- weights. No gradient is ever sent, as the printed program shows.
--
--   ztoolkit run -n 2 scripts/exp/passes/own_pass.lua --every 8
--
-- The final loss is 0.72 on two ranks and 0.73 on one. The entropy of the data is 0.65; guessing gives ln 32 = 3.47.
local zt = require "zt"
local comm = require "zt.comm"
local nn = require "zt.nn"
local optim = require "zt.optim"

local o = zt.cli{
  name = "own_pass", about = "Local SGD: weights averaged every k steps.",
  options = {
    {"every", 8, "steps between two averages", at_least = 1},
    {"steps", 300, "optimizer steps", at_least = 1},
    {"batch", 16, "samples per rank and step", at_least = 1},
    {"lr", 0.3, "learning rate", above = 0},
    {"seed", 1, "seed of the weights and the data", at_least = 0},
  },
}
local VOCAB, SEQ, NOISE = 32, 32, 0.1

local mesh = comm.mesh{dp = -1}

-- The action. The executor calls `start` when the program reaches `AVERAGE unit`. From `reads` and `writes` the executor and the
-- verifier know where the action may stand.
local average = zt.action{
  name = "AVERAGE", reads = {"master"}, writes = {"master", "param"}, axes = {"dp"},
  start = function(ctx)
    if (ctx.step + 1) % o.every ~= 0 then return end
    mesh.dp:all_reduce(ctx.unit.master)
    ctx.unit.master:div_(mesh.dp.size)
  end,
}

-- The pass: a function from program to program. It adds AVERAGE after each STEP of a unit.
local local_sgd = zt.pass{
  name = "local_sgd", phase = "reduction", mesh = mesh, actions = {average},
  apply = function(program)
    local actions = {}
    for _, action in ipairs(program.actions) do
      actions[#actions + 1] = action
      if action.kind == "STEP" then actions[#actions + 1] = average(action.target) end
    end
    program.actions = actions
    return program
  end,
}

-- Returns text with a known entropy: each token is 5 * previous + 3 (mod VOCAB), but one in ten is random.
local function batch_of(step)
  zt.manual_seed(o.seed + 1000 * step + zt.world.rank) -- every rank sees other data
  local columns = {zt.randint(0, VOCAB, {o.batch})}
  for place = 1, SEQ do
    local random = zt.randint(0, VOCAB, {o.batch})
    local is_random = zt.rand({o.batch}):lt(NOISE)
    columns[place + 1] = random:where(is_random, (columns[place] * 5 + 3):remainder(VOCAB))
  end
  local all = zt.stack(columns, 1)
  return {tokens = all:narrow(1, 0, SEQ):contiguous(), labels = all:narrow(1, 1, SEQ):contiguous()}
end
local rare, usual = NOISE / VOCAB, 1 - NOISE + NOISE / VOCAB
local entropy = -usual * math.log(usual) - (VOCAB - 1) * rare * math.log(rare)

local model = nn.gpt{layers = 1, hidden = 32, heads = 2, vocab = VOCAB, seq = SEQ, seed = o.seed}
local program = zt.program(model, {micro_batches = 1}):apply(local_sgd)
local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = o.lr, momentum = 0.9}})
if zt.world.rank == 0 then print(program:text()) end

-- Each rank has its own loss here, because no action sums it. Every 50 steps, rank 0 prints the mean over these steps and all
-- ranks.
local sum, count = 0, 0
for step = 0, o.steps - 1 do
  sum, count = sum + trainer:step(batch_of(step)).loss, count + 1
  if (step + 1) % 50 == 0 or step == o.steps - 1 then
    local means, mean = mesh.dp:gather_values(sum / count), 0
    for _, one in ipairs(means) do mean = mean + one / #means end
    if zt.world.rank == 0 then print(("step %4d  loss %.4f"):format(step + 1, mean)) end
    sum, count = 0, 0
  end
end
if zt.world.rank == 0 then print(("entropy of the data %.4f nats"):format(entropy)) end
