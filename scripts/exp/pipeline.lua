-- Trains a small GPT through a pipeline, on a task that needs no data: the next token follows from the last one by a fixed rule.
--
--   ztoolkit run -n 2 scripts/exp/pipeline.lua --schedule zb_v --micro-batches 8
--   ztoolkit run -n 4 scripts/exp/pipeline.lua --stages 2 --stage 3       (2 stages, 2 data-parallel ranks, ZeRO-3)
--   ztoolkit plan scripts/exp/pipeline.lua --ranks 4 --simulate --costs h200 --picture pipeline.svg
--   ztoolkit run scripts/exp/pipeline.lua --help
--
-- Losses and weights do not depend on the schedule, nor on the number of stages.
local zt = require "zt"
local comm = require "zt.comm"
local nn = require "zt.nn"
local optim = require "zt.optim"
local pipe = require "zt.pipe"
local zero = require "zt.zero"

local VOCAB, SEED = 64, 7

local o = zt.cli{
  name = "pipeline", about = "Trains a small GPT through a pipeline.",
  options = {
    {"schedule", "one_f_one_b", "the pipeline's schedule: a name of pipe.schedule, or a file with a schedule as text"},
    {"stages", 0, "ranks of the pipeline; 0: all. The other ranks are data parallel", at_least = 0},
    {"chunks", 0, "stages per rank; 0: what the schedule has by default", at_least = 0},
    {"partition", "parameters", "how the model is cut: parameters, uniform or type:REGEX"},
    {"micro_batches", 8, "micro-batches per step", at_least = 1},
    {"batch", 2, "samples per micro-batch", at_least = 1},
    {"stage", 1, "ZeRO stage", between = {0, 3}},
    {"reduce_every", nil, "when gradients are summed over data-parallel ranks", type = "string",
     one_of = {"step", "micro_batch"}},
    {"recompute", 0, "keep no activations in every k-th block; 0: keep all", at_least = 0},
    {"precision", "fp32", "type of parameters and arithmetic", one_of = {"fp32", "bf16", "fp16", "fp64"}},
    {"layers", 6, "blocks", at_least = 1},
    {"hidden", 64, "width", at_least = 4},
    {"seq", 32, "tokens per sample", at_least = 2},
    {"steps", 100, "optimizer steps", at_least = 1},
    {"lr", 3e-3, "peak learning rate", above = 0},
    {"folder", "runs", "the parent folder of all runs"},
  },
}
local function say(...) if zt.world.rank == 0 then print(string.format(...)) end end

local stages = o.stages > 0 and o.stages or zt.world.size
local mesh = comm.mesh{pp = stages, dp = -1}
local schedule = o.schedule
local file = io.open(schedule)
if file then
  schedule = pipe.schedule.from_text(file:read "*a")
  file:close()
end

local program = zt.program(nn.gpt{layers = o.layers, hidden = o.hidden, heads = 4, vocab = VOCAB, seq = o.seq, seed = SEED},
                           {micro_batches = o.micro_batches, precision = o.precision})
  :apply(pipe.split{schedule = schedule, axis = mesh.pp, partition = o.partition, chunks = o.chunks > 0 and o.chunks or nil})
  :apply(zero.shard{stage = o.stage, axis = mesh.dp, reduce_every = o.reduce_every})
if o.recompute > 0 then program = program:apply(zt.recompute{every = o.recompute}) end

local trainer = zt.trainer(program, {
  optimizer = optim.adamw{lr = o.lr, weight_decay = 0.01},
  schedule = optim.warmup_cosine{warmup = math.floor(o.steps / 10), total = o.steps},
  clip = 1,
})
if not zt.world.dry then say("%s", trainer:report()) end

-- All ranks of one pipeline get the same samples: only the data-parallel coordinate decides.
local samples = o.micro_batches * o.batch
local function batch_of(step)
  zt.manual_seed(SEED + step * mesh.dp.size + mesh.dp.coordinate)
  local first = zt.randint(VOCAB, {samples, 1}, {dtype = "int64"})
  local tokens = (first + zt.arange(o.seq + 1):to "int64" * 5):remainder(VOCAB)
  return {tokens = tokens:narrow(1, 0, o.seq):contiguous(), labels = tokens:narrow(1, 1, o.seq):contiguous()}
end

local run = zt.run{name = "pipeline", folder = o.folder, overwrite = true, trainer = trainer, options = o, steps = o.steps,
                   mesh = mesh}
local last
for step = 0, o.steps - 1 do
  last = trainer:step(batch_of(step))
  run:log(step, last)
end
run:finish()
say("loss %.4f after %d steps (guessing: %.4f), %.0f tokens/s", last.loss, o.steps, math.log(VOCAB), last.tokens_per_second)
