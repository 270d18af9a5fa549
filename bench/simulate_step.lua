-- Simulates training steps with measured costs and compares them with steps that run: time, and memory per rank.
--
--   mpirun -n 2 --bind-to core ztoolkit run bench/simulate_step.lua
--   mpirun -n 2 --bind-to core ztoolkit run bench/simulate_step.lua --tp 2 --stage 1
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local o = zt.cli{
  name = "simulate_step", about = "Compares simulated steps of a GPT with measured ones.",
  options = {
    {"layers", 6, "blocks", at_least = 1}, {"hidden", 512, "width", at_least = 1}, {"heads", 8, "attention heads", at_least = 1},
    {"vocab", 8192, "tokens in the vocabulary", at_least = 1}, {"seq", 256, "tokens per sample", at_least = 1},
    {"samples", 4, "samples per rank and step", at_least = 1}, {"micro_batches", 2, "micro-batches per step", at_least = 1},
    {"stage", -1, "ZeRO stage; -1: each", between = {-1, 3}},
    {"tp", 1, "ranks that share matrices", at_least = 1},
    {"sequence_parallel", false, "they share the tokens between the matrices, too"},
    {"cp", 1, "ranks that share the tokens of samples", at_least = 1},
    {"method", "ring", "how they exchange what attention needs", one_of = {"ring", "gather", "ulysses"}},
    {"rounds", 5, "rounds of costs and steps in alternation", at_least = 1},
    {"steps", 3, "steps of each in a round", at_least = 1},
    {"precision", "fp32", "type of parameters and arithmetic", one_of = {"fp32", "bf16", "fp16"}},
    {"costs_file", "", "write the costs of the last case to this file"},
  },
}

local VARIANTS = {
  {"whole backward", function(program) return program end},
  {"recompute", function(program) return program:apply(zt.recompute{every = 1}) end},
  {"split backward", function(program) return program:apply(zt.split_backward{}) end},
}
local mesh = comm.mesh{dp = -1, cp = o.cp, tp = o.tp}
local all = zt.arange(o.samples * (o.seq + 1)):mul(7919):remainder(o.vocab):to("int64"):view({o.samples, o.seq + 1})
local batch = {tokens = all:narrow(1, 0, o.seq):contiguous(), labels = all:narrow(1, 1, o.seq):contiguous()}

local function median(values)
  table.sort(values)
  return values[math.ceil(#values / 2)]
end

local function trainer_of(stage, variant)
  local model = nn.gpt{layers = o.layers, hidden = o.hidden, heads = o.heads, vocab = o.vocab, seq = o.seq, tied = false,
                       tensor = mesh.tp, sequence_parallel = o.sequence_parallel, context = {axis = mesh.cp, method = o.method}}
  local program = variant(zt.program(model, {micro_batches = o.micro_batches, precision = o.precision}))
  program = program:apply(zero.shard{stage = stage, axis = mesh.dp})
  return zt.trainer(program, {optimizer = optim.adamw{lr = 1e-4, weight_decay = 0.1}, clip = 1})
end

-- Returns the seconds of a step: measured, and simulated with costs of steps in between.
local function compare(trainer)
  local measured, simulated, costs = {}, {}, nil
  for _ = 1, 2 do trainer:step(batch) end
  for _ = 1, o.rounds do
    costs = trainer:costs(batch, {steps = o.steps})
    simulated[#simulated + 1] = trainer:simulate(batch, costs).seconds
    trainer:step(batch) -- fills the overlap with the step before again
    for _ = 1, o.steps do
      mesh:world():barrier()
      measured[#measured + 1] = trainer:step(batch).seconds
    end
  end
  return median(measured), median(simulated), costs
end

local function say(...) if zt.world.rank == 0 then print(string.format(...)) end end
say("%d ranks, %s, %d micro-batches\n", zt.world.size, o.precision, o.micro_batches)
say("| program | stage | measured ms | simulated ms | simulated / measured | memory measured | memory predicted | ratio |")
say("| --- | --- | --- | --- | --- | --- | --- | --- |")
for _, variant in ipairs(VARIANTS) do
  for stage = math.max(o.stage, 0), o.stage < 0 and 3 or o.stage do
    local trainer = trainer_of(stage, variant[2])
    local measured, simulated, costs = compare(trainer)
    local memory = trainer:memory().total
    say("| %s | %d | %.1f | %.1f | %.3f | %.1f MiB | %.1f MiB | %.3f |", variant[1], stage, measured * 1e3, simulated * 1e3,
        simulated / measured, memory.measured / 2 ^ 20, memory.predicted / 2 ^ 20, memory.predicted / memory.measured)
    if o.costs_file ~= "" and zt.world.rank == 0 then zt.write_file(o.costs_file, zt.json.encode(costs)) end
    trainer = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
  end
end
