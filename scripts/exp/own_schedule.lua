-- A pipeline schedule of your own: written as data, checked, simulated, and run. Copy this file and change my_schedule.
--
--   ztoolkit run -n 2 scripts/exp/own_schedule.lua
local zt = require "zt"
local comm, nn, optim, pipe = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.pipe"

-- As 1F1B, but backwards are split: a W runs as soon as its rank has `behind` of them waiting.
local function my_schedule(ranks, micro_batches, behind)
  local schedule = pipe.schedule.empty{ranks = ranks, micro_batches = micro_batches}
  for rank = 0, ranks - 1 do
    local list, forwards, weights = schedule:rank(rank), 0, 0
    local function forward()
      if forwards < micro_batches then list:insert(pipe.F(rank, forwards)) end
      forwards = forwards + 1
    end
    for _ = rank + 1, ranks - 1 do forward() end
    for m = 0, micro_batches - 1 do
      forward()
      list:insert(pipe.I(rank, m))
      if m - weights >= behind then
        list:insert(pipe.W(rank, weights))
        weights = weights + 1
      end
    end
    for m = weights, micro_batches - 1 do list:insert(pipe.W(rank, m)) end
  end
  return schedule
end

local MICRO_BATCHES, VOCAB, SEQ, STEPS = 8, 64, 32, 60
local function say(...) if zt.world.rank == 0 then print(string.format(...)) end end
local mesh = comm.mesh{pp = -1}
local schedule = my_schedule(mesh.pp.size, MICRO_BATCHES, 1)
say("%s", tostring(schedule))

-- pipe.check returns the mistakes of a schedule, each with its rank and step; none here.
for _, mistake in ipairs(pipe.check(schedule)) do say("%s", mistake) end
local broken = schedule:copy()
broken:rank(0):remove(1)
say("without its first step: %s", pipe.check(broken)[1])

local function batch_of(step)
  zt.manual_seed(step)
  local first = zt.randint(VOCAB, {2 * MICRO_BATCHES, 1}, {dtype = "int64"})
  local tokens = (first + zt.arange(SEQ + 1):to "int64" * 5):remainder(VOCAB)
  return {tokens = tokens:narrow(1, 0, SEQ):contiguous(), labels = tokens:narrow(1, 1, SEQ):contiguous()}
end
local function program_with(scheduled)
  local model = nn.gpt{layers = 6, hidden = 64, heads = 4, vocab = VOCAB, seq = SEQ, seed = 1}
  return zt.program(model, {micro_batches = MICRO_BATCHES})
    :apply(pipe.split{schedule = scheduled, axis = mesh.pp})
end
for _, each in ipairs{schedule, "one_f_one_b", "zb_v"} do
  local simulation = program_with(each):simulate{costs = "h200", batch = batch_of(0)}
  say("%s: %.3f ms per step on H200s", each == schedule and "mine" or each, simulation.seconds * 1e3)
end

local trainer = zt.trainer(program_with(schedule), {optimizer = optim.adamw{lr = 3e-3}})
for step = 0, STEPS - 1 do
  local s = trainer:step(batch_of(step))
  if step % 20 == 19 then say("step %d: loss %.4f", step + 1, s.loss) end
end
