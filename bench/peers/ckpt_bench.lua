-- The ztoolkit side of ckpt_bench.py: saves and loads the state of a GPT in training. Rank 0 prints the seconds as a line of
-- JSON.
local zt = require "zt"
local ckpt = require "zt.ckpt"
local comm = require "zt.comm"
local nn = require "zt.nn"
local optim = require "zt.optim"
local zero = require "zt.zero"

local o = zt.cli{
  name = "ckpt_bench", about = "Times saves and loads; started by ckpt_bench.py.",
  options = {
    {"folder", nil, "the folder of the checkpoints", type = "string"},
    {"layers", 8, "blocks"}, {"hidden", 1024, "width"}, {"heads", 16, "attention heads"}, {"vocab", 4096, "vocabulary"},
    {"seq", 32, "tokens per sample"}, {"stage", 1, "ZeRO stage"}, {"load_stage", 1, "ZeRO stage with --only-load"},
    {"saves", 3, "number of blocking saves, and of asynchronous saves", at_least = 1},
    {"only_load", false, "only load the existing checkpoint, on these ranks"},
  },
}
local mesh = comm.mesh{dp = -1}

local function trainer_of(stage)
  local model = nn.gpt{
    layers = o.layers, hidden = o.hidden, heads = o.heads, vocab = o.vocab, seq = o.seq, tied = false, seed = 1,
  }
  local program = zt.program(model):apply(zero.shard{stage = stage, axis = mesh.dp})
  return zt.trainer(program, {optimizer = optim.adamw{lr = 1e-4}})
end

-- Returns the seconds of `action`, from the time when all ranks begin to the time when all have ended. Collective.
local function timed(action)
  mesh.dp:barrier()
  local began = zt.now()
  action()
  mesh.dp:barrier()
  return zt.now() - began
end

local trainer = trainer_of(o.only_load and o.load_stage or o.stage)
local tokens = (zt.arange(o.seq) + zt.world.rank):remainder(o.vocab):view{1, o.seq}:to "int64"
local function step() trainer:step{tokens = tokens, labels = tokens} end

local function save(number, is_async) ckpt.save(o.folder, {trainer = trainer}, {step = number, async = is_async}) end

-- Saves asynchronously while steps run. Returns the seconds of the call, the seconds from its end until the checkpoint is
-- complete on the disk, and the number of steps that ran in that time.
local function save_behind_steps(number)
  local steps = 0
  local blocked = timed(function() save(number, true) end)
  local began = zt.now()
  while not zt.exists(("%s/step_%08d/checkpoint.h5"):format(o.folder, number)) and zt.now() - began < 300 do
    step()
    steps = steps + 1
  end
  return blocked, zt.now() - began, steps
end

-- Returns the number of fp32 elements that one rank writes: its shard of the parameters and of two averages.
local function own_elements()
  local sum = 0
  for _, name in ipairs(trainer:parameters()) do
    local numel = 1
    for _, size in ipairs(trainer:describe_parameter(name).shape) do numel = numel * size end
    sum = sum + 3 * numel
  end
  return math.floor(sum / mesh.dp.size)
end

-- Returns the seconds to copy `elements` fp32 elements in memory.
local function copy_seconds(elements)
  local from, to = zt.zeros{elements}, zt.ones{elements}
  return timed(function() to:copy_(from) end)
end

local result = {blocking = {}, blocked = {}, background = {}, steps_behind = {}}
if not o.only_load then
  step()
  local calm = timed(function() for _ = 1, 3 do step() end end) / 3
  local before = zt.memory().rss_anon
  for number = 1, o.saves do result.blocking[number] = timed(function() save(number, false) end) end
  result.memory_blocking = zt.memory().rss_anon - before
  for number = 1, o.saves do
    local seconds, steps
    result.blocked[number], seconds, steps = save_behind_steps(o.saves + number)
    result.background[number], result.steps_behind[number] = seconds, seconds / math.max(steps, 1)
  end
  result.memory_async = zt.memory().rss_anon - before
  result.step = calm
  result.copy = copy_seconds(own_elements())
  result.bytes = 4 * own_elements() * mesh.dp.size
end
result.load = timed(function() ckpt.load(o.folder, {trainer = trainer}) end)
if zt.world.rank == 0 then print(zt.json.encode(result)) end
