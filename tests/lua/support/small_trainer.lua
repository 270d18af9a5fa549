--- Trainers of a very small GPT on all ranks, for tests of checkpoints.

local lu = require "luaunit"
local zt = require "zt"
local comm = require "zt.comm"
local nn = require "zt.nn"
local optim = require "zt.optim"
local zero = require "zt.zero"

local mesh = comm.mesh{dp = -1}

local function trainer_of(stage, seed)
  local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = 11, seq = 4, seed = seed or 1}
  local program = zt.program(model):apply(zero.shard{stage = stage, axis = mesh.dp})
  return zt.trainer(program, {optimizer = optim.adamw{lr = 0.1}})
end

local function batch(step)
  local tokens = (zt.arange(8) * 3 + step + 5 * zt.world.rank):remainder(11):view{2, 4}:to "int64"
  return {tokens = tokens, labels = tokens}
end

local function trained(stage, steps)
  local trainer = trainer_of(stage)
  for step = 0, steps - 1 do trainer:step(batch(step)) end
  return trainer
end

-- Compares parameters, master parameters and optimizer states to the bit.
local function assert_same(a, b, why)
  why = why or ""
  for _, name in ipairs(a:parameters()) do
    lu.assertTrue(a:parameter(name):equal(b:parameter(name)), name .. why)
    lu.assertTrue(a:master(name):equal(b:master(name)), "master " .. name .. why)
    local left, right = a:optimizer_state(name), b:optimizer_state(name)
    for state, values in pairs(left) do lu.assertTrue(values:equal(right[state]), name .. " " .. state .. why) end
  end
end

return {mesh = mesh, trainer_of = trainer_of, trained = trained, batch = batch, assert_same = assert_same}
