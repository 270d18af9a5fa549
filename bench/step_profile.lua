-- Measures the parts of a training step at every ZeRO stage: runs the stages in alternation and prints medians of rank 0 in
-- milliseconds.
--
--   mpirun -n 2 --bind-to core ztoolkit run bench/step_profile.lua --precision bf16
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"
local reports = require "zt.deepspeed.engine.reports"

local o = zt.cli{
  name = "step_profile", about = "Times the parts of a training step of a GPT.",
  options = {
    {"layers", 6, "blocks", at_least = 1}, {"hidden", 512, "width", at_least = 1}, {"heads", 8, "attention heads", at_least = 1},
    {"vocab", 8192, "tokens in the vocabulary", at_least = 1}, {"seq", 256, "tokens per sample", at_least = 1},
    {"samples", 4, "samples per rank and step", at_least = 1},
    {"steps", 9, "timed steps per stage, after one untimed step", at_least = 1},
    {"precision", "fp32", "type of parameters and arithmetic", one_of = {"fp32", "bf16", "fp16"}},
    {"backend", nil, "how ranks communicate (shm, mpi); default: the backend that suits the ranks", type = "string"},
  },
}

local PARTS = {"forward", "backward", "communication", "step", "other", "all"}
local mesh = comm.mesh{dp = -1, backend = o.backend}

local function trainer_at(stage)
  local model = nn.gpt{layers = o.layers, hidden = o.hidden, heads = o.heads, vocab = o.vocab, seq = o.seq, tied = false}
  local program = zt.program(model, {precision = o.precision}):apply(zero.shard{stage = stage, axis = mesh.dp})
  return zt.trainer(program, {optimizer = optim.adamw{lr = 1e-4, weight_decay = 0.1}, clip = 1})
end

local function median(values)
  table.sort(values)
  return values[math.ceil(#values / 2)]
end

local all = zt.arange(o.samples * (o.seq + 1)):mul(7919):remainder(o.vocab):to("int64"):view({o.samples, o.seq + 1})
local batch = {tokens = all:narrow(1, 0, o.seq):contiguous(), labels = all:narrow(1, 1, o.seq):contiguous()}
local trainers, times = {}, {}
for stage = 0, 3 do trainers[stage], times[stage] = trainer_at(stage), {} end
for step = 0, o.steps do
  for stage = 0, 3 do
    mesh.dp:barrier()
    trainers[stage]:trace_start()
    trainers[stage]:step(batch)
    local parts = reports.times(trainers[stage]:trace_events())
    for _, part in ipairs(PARTS) do
      times[stage][part] = times[stage][part] or {}
      if step > 0 then table.insert(times[stage][part], parts[part]) end
    end
  end
end

if zt.world.rank == 0 then
  print(("%d ranks, %s: milliseconds per step\n"):format(zt.world.size, o.precision))
  print("| part | stage 0 | stage 1 | stage 2 | stage 3 |\n| --- | --- | --- | --- | --- |")
  for _, part in ipairs(PARTS) do
    local cells = {}
    for stage = 0, 3 do cells[#cells + 1] = ("%.1f"):format(median(times[stage][part])) end
    print(("| %s | %s |"):format(part, table.concat(cells, " | ")))
  end
end
