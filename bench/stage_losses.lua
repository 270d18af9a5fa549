-- One run of stage_losses.py: trains a small GPT for some steps and prints the exact losses, in hexadecimal, as one line of JSON.
local zt = require "zt"
local comm = require "zt.comm"
local nn = require "zt.nn"
local optim = require "zt.optim"
local zero = require "zt.zero"

local o = zt.cli{
  name = "stage_losses", about = "Trains a small GPT; started by stage_losses.py.",
  options = {
    {"stage", 0, "ZeRO stage", between = {0, 3}},
    {"precision", "fp32", "type of the parameters", one_of = {"fp32", "bf16", "fp16"}},
    {"micro_batches", 1, "micro-batches per rank and step", at_least = 1},
    {"reduce_every", "step", "when gradients are summed over the ranks", one_of = {"step", "micro_batch"}},
    {"node_shared", "default", "one copy of the parameters per node", one_of = {"default", "true", "false"}},
    {"steps", 20, "steps", at_least = 1},
  },
}

local SEQ, VOCAB, SAMPLES = 64, 512, 8
local mesh = comm.mesh{dp = -1}
local model = nn.gpt{layers = 3, hidden = 128, heads = 4, vocab = VOCAB, seq = SEQ, seed = 1}
local shard = {stage = o.stage, axis = mesh.dp, reduce_every = o.reduce_every}
if o.node_shared ~= "default" then shard.node_shared = o.node_shared == "true" end
local program = zt.program(model, {micro_batches = o.micro_batches, precision = o.precision}):apply(zero.shard(shard))
local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 1e-3, weight_decay = 0.1}, clip = 1})

-- Returns this rank's part of a batch. Each sequence counts up modulo VOCAB with a start and an increment of its own, so the
-- model can learn to predict it.
local function batch_of(step)
  local samples = zt.arange(SAMPLES):add(step * SAMPLES):view({SAMPLES, 1})
  local all = (samples * 37 + (samples:remainder(7) + 1) * zt.arange(SEQ + 1)):remainder(VOCAB):to "int64"
  local rows = SAMPLES / mesh.dp.size
  local mine = all:narrow(0, mesh.dp.coordinate * rows, rows)
  return {tokens = mine:narrow(1, 0, SEQ):contiguous(), labels = mine:narrow(1, 1, SEQ):contiguous()}
end

local losses = {}
for step = 0, o.steps - 1 do losses[step + 1] = ("%a"):format(trainer:step(batch_of(step)).loss) end
if zt.world.rank == 0 then print(zt.json.encode{losses = losses}) end
