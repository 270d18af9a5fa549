-- The memory of an iteration of PPO by phase, planned by rlhf.report before anything runs, beside what is measured. Four models:
-- actor, critic, reference and reward model. While answers are sampled, the optimizers' data and gradients are away in files, and
-- the reference's and the reward model's parameters except while they score. With --lora the reference is the actor without its
-- adapters.
--
--   ztoolkit run -n 2 bench/rlhf/memory.lua
--   ztoolkit run -n 2 bench/rlhf/memory.lua --lora
local zt = require "zt"
local comm, infer, nn, optim = require "zt.comm", require "zt.infer", require "zt.nn", require "zt.optim"
local rlhf, zero = require "zt.rlhf", require "zt.zero"

local o = zt.cli{name = "memory", about = "Memory of PPO by phase, planned and measured.", options = {
  {"layers", 4, "blocks", at_least = 1}, {"hidden", 256, "width", at_least = 1}, {"vocab", 1024, "vocabulary", at_least = 2},
  {"rows", 8, "rows of a batch of a rank", at_least = 1}, {"seq", 64, "positions of a row", at_least = 2},
  {"lora", false, "adapters in place of a reference"}, {"folder", "/tmp", "where data lie that are away"},
}}
local mesh, files = comm.mesh{dp = -1}, {to = "nvme", folder = o.folder}
local function model_of(head, lora)
  return nn.gpt{layers = o.layers, hidden = o.hidden, heads = 4, vocab = o.vocab, seq = o.seq, family = "llama", head = head,
                lora = lora or nil, seed = 1}
end
local function trainer_of(model, trains, stage)
  local program = zt.program(model):apply(zero.shard{axis = mesh.dp, stage = stage, node_shared = false})
  return zt.trainer(program, trains and {optimizer = optim.adamw{lr = 1e-4}} or nil)
end
local actor = trainer_of(model_of("logprobs", o.lora and {rank = 8}):append(rlhf.loss.ppo{}, "policy"), true, 1)
local critic = trainer_of(model_of "value":append(rlhf.loss.value{}, "value"), true, 1)
local reward = trainer_of(model_of "value", false, 3)
local reference = not o.lora and trainer_of(model_of "logprobs", false, 3) or nil
local engine = infer.engine{trainer = actor, cache = {memory = 2 ^ 21}, max_sequences = 32}

local trained, frozen = {"optimizer", "gradients"}, {"parameters"}
local models = {
  actor = {trainer = actor, rows = o.rows, seq = o.seq}, critic = {trainer = critic, rows = o.rows, seq = o.seq},
  reward = {trainer = reward, rows = o.rows, seq = o.seq},
  reference = reference and {trainer = reference, rows = o.rows, seq = o.seq} or nil,
}
local function away(...)
  local list = {}
  for _, name in ipairs{...} do
    if models[name] then list[name] = (name == "actor" or name == "critic") and trained or frozen end
  end
  return list
end
local phases = {
  {name = "roll-out", away = away("actor", "critic", "reward", "reference")},
  {name = "score", away = away("actor", "critic"), runs = reference and {"reward", "reference"} or {"reward"}},
  {name = "update of the actor", away = away("critic", "reward", "reference"), runs = {"actor"}},
  {name = "update of the critic", away = away("actor", "reward", "reference"), runs = {"critic"}},
}
local report = rlhf.report{models = models, phases = phases, engine = engine}

-- Brings the trainers into the state of a phase.
local is_away = {}
local function enter(phase)
  for _, name in ipairs{"actor", "critic", "reward", "reference"} do -- in one order on all ranks
    local model, wanted = models[name], phase.away[name]
    if wanted and not is_away[name] then model.trainer:evict(wanted, files) end
    if not wanted and is_away[name] then model.trainer:fetch() end
    is_away[name] = wanted
  end
end
-- Returns the bytes that this rank's trainers hold now, and the peak of the activations of those that train.
local function held()
  local bytes, peak = engine:stats().cache_bytes, 0
  for _, model in pairs(models) do
    for kind, line in pairs(model.trainer:memory()) do
      if kind == "activations" then peak = math.max(peak, line.measured or 0)
      elseif kind ~= "total" and kind ~= "files" and kind ~= "host" then bytes = bytes + line.measured end
    end
  end
  return bytes, peak
end

local prompts = {prompts = {}}
for i = 1, 32 do prompts.prompts[i] = {i, i + 1, i + 2, i + 3} end
local measured = {}
enter(phases[1])
local answers = rlhf.rollout{engine = engine, prompts = prompts, max_tokens = o.seq - 4, min_tokens = o.seq - 4, mesh = mesh}
measured[1] = held()
enter(phases[2])
rlhf.score(answers, {actor = actor, reference = reference or "base", reward = reward, critic = critic, rows = o.rows})
measured[2] = held()
rlhf.advantages(answers, {kind = "gae", kl = {}})
enter(phases[3])
for batch in rlhf.batches(answers, {trainer = actor, updates = 2}) do actor:step(batch) end
local bytes, peak = held()
measured[3] = bytes + peak
enter(phases[4])
for batch in rlhf.batches(answers, {trainer = critic, updates = 2}) do critic:step(batch) end
local of_actor = models.actor
models.actor = nil -- its peak is not of this phase
bytes, peak = held()
models.actor = of_actor
local of_rest = 0
for kind, line in pairs(actor:memory()) do
  if kind ~= "activations" and kind ~= "total" and kind ~= "files" then of_rest = of_rest + line.measured end
end
measured[4] = bytes + peak + of_rest

if zt.world.rank == 0 then
  print(report.text)
  local lines = {{"phase", "planned", "measured", "ratio"}}
  for i, phase in ipairs(report.phases) do
    local planned = i <= 2 and phase.total - phase.activations or phase.total
    lines[#lines + 1] = {phase.name, zt.text.bytes(planned), zt.text.bytes(measured[i]), ("%.3f"):format(measured[i] / planned)}
  end
  print("\nroll-out and score without activations\n" .. zt.text.columns(lines))
end
