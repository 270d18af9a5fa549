-- The ztoolkit side of offload.py: trains the model of train_vs.lua, on its batches, with data in files between their uses. With
-- --saves it then saves and loads checkpoints. train_vs.py describes the files of a run.
local zt = require "zt"
local ckpt = require "zt.ckpt"
local comm = require "zt.comm"
local nn = require "zt.nn"
local offload = require "zt.offload"
local optim = require "zt.optim"
local zero = require "zt.zero"

local WHERE = {"device", "nvme"}
local o = zt.cli{
  name = "offload", about = "Times training steps with data in files; started by bench/peers/offload.py.",
  options = {
    {"folder", nil, "the folder of the files of a run", type = "string"},
    {"layers", 5, "blocks"}, {"hidden", 192, "width"}, {"heads", 3, "attention heads"},
    {"vocab", 4096, "tokens in the vocabulary"}, {"seq", 128, "tokens per sample"}, {"batch", 8, "samples per step"},
    {"steps", 40, "steps"}, {"warmup", 5, "number of untimed first steps"}, {"lr", 1e-3, "learning rate"},
    {"stage", 1, "ZeRO stage"}, {"precision", "fp32", "type of parameters and arithmetic"},
    {"disk", nil, "the folder of the files of data; default: all data stay in memory", type = "string"},
    {"optimizer", "device", "where optimizer state lies", one_of = WHERE},
    {"gradients", "device", "where gradients lie", one_of = WHERE},
    {"parameters", "device", "where parameters lie", one_of = WHERE},
    {"activations", "device", "where activations lie", one_of = WHERE},
    {"recompute", false, "keep the inputs of blocks only"},
    {"ratio", 1, "share of these data that travels", type = "number", between = {0, 1}},
    {"slice", 2 ^ 20, "most elements that move together", at_least = 4096},
    {"gemm", nil, "the GEMM provider", type = "string"},
    {"simulates", false, "also simulate a step with costs measured after the timed steps"},
    {"saves", 0, "number of checkpoints to save and to load"},
    {"checkpoints", nil, "the folder of the checkpoints", type = "string"},
  },
}

if o.gemm then zt.gemm{provider = o.gemm} end
local mesh = comm.mesh{dp = -1}

local function mark(name, content) zt.write_file(("%s/run/%s.%d"):format(o.folder, name, zt.world.rank), content) end

-- Returns the sum of the numbers that a file of /proc/self has for these names.
local function sum_of(file, names, unit)
  local sum = 0
  for line in io.lines("/proc/self/" .. file) do
    local name, number = line:match "^([%w_]+):%s*(%d+)"
    if names[name] then sum = sum + unit * number end
  end
  return sum
end

-- Returns the same number as held_bytes of train_vs.py.
local function held_bytes() return sum_of("smaps_rollup", {Pss_Anon = true, Pss_Shmem = true}, 1024) end

-- Returns the bytes that this rank has read from disks and written to them, as the kernel counts them.
local function disk_bytes() return sum_of("io", {read_bytes = true, write_bytes = true}, 1) end

local function trainer_of()
  local model = nn.gpt{
    layers = o.layers, hidden = o.hidden, heads = o.heads, vocab = o.vocab, seq = o.seq, tied = false, seed = 1,
  }
  -- Parameters in files need sharded ones, so at stage 3 all runs have them.
  local shard = zero.shard{stage = o.stage, axis = mesh.dp, node_shared = o.stage < 3}
  local program = zt.program(model, {precision = o.precision}):apply(shard)
  if o.recompute then program = program:apply(zt.recompute{}) end
  if o.disk then
    program = program:apply(offload.move{
      optimizer = o.optimizer, gradients = o.gradients, parameters = o.parameters, folder = {o.disk}, ratio = o.ratio,
      slice = o.slice, activations = o.activations,
    })
  end
  return zt.trainer(program, {optimizer = optim.adamw{lr = o.lr, betas = {0.9, 0.95}, weight_decay = 0.1}, clip = 1})
end

mesh.dp:barrier()
mark("idle", zt.json.encode{pid = io.open("/proc/self/stat"):read "*n", bytes = held_bytes()})
local trainer = trainer_of()
local samples = zt.from_file(o.folder .. "/batches.i64", false, o.steps * o.batch * (o.seq + 1), {dtype = "int64"})
  :view{o.steps, o.batch, o.seq + 1}

-- Returns this rank's samples of a step, counted from 0.
local function batch(step)
  local rows = o.batch / mesh.dp.size
  local mine = samples:select(0, step):narrow(0, mesh.dp.coordinate * rows, rows)
  return {tokens = mine:narrow(1, 0, o.seq):contiguous(), labels = mine:narrow(1, 1, o.seq):contiguous()}
end

-- A machine on which only disks take time, one second per byte.
local NETWORK = {latency = 0, bandwidth = 1e30}
local DISK_ONLY = {hardware = {
  flops = {fp32 = 1e30, bf16 = 1e30}, inside = NETWORK, across = NETWORK, ranks_per_machine = 1, host_copy = 1e30,
  file_read = 1, file_write = 1,
}}

-- Returns what a FETCH, EVICT or STEP is about: "3 state", and the slice: "0", or "all" for the unit as a whole.
local function subject_of(action)
  local text = action.text
  local part = (text:match "parts=(%d+)" or "1") ~= "1" and text:match "part=(%d+)" or "all"
  return ("%d %s"):format(action.target, text:match "what=(%w+)" or ""), part
end

-- Returns the bytes that all ranks read and write in a step: all of them, and those between whose FETCH and EVICT is the STEP of
-- the slice. So the latter do not contain the parameters for UNSHARD, nor the gradients on their way to the files.
local function moved_bytes()
  local all, update = 0, 0
  for _, rank in ipairs(trainer:simulate(batch(0), DISK_ONLY).ranks) do
    local here = {} -- by subject and slice: {bytes of the FETCH, unit, part, is_updated}
    for _, action in ipairs(rank.actions) do
      local bytes = math.floor((action.transfer_stop or 0) - (action.transfer_begin or 0) + 0.5) * rank.count
      if action.kind == "STEP" then
        local _, part = subject_of(action)
        for _, slice in pairs(here) do
          if slice.unit == action.target and (slice.part == part or slice.part == "all") then slice.is_updated = true end
        end
      elseif action.kind == "FETCH" then
        local subject, part = subject_of(action)
        here[subject .. part] = {bytes = bytes, unit = action.target, part = part}
        all = all + bytes
      elseif action.kind == "EVICT" then
        local subject, part = subject_of(action)
        local slice = here[subject .. part]
        here[subject .. part] = nil
        all = all + bytes
        if slice and slice.is_updated then update = update + slice.bytes + bytes end
      end
    end
  end
  return {all = all, update = update}
end

local function train()
  local losses, began, first_step_at, disk = {}, nil, nil, nil
  mark("ready", "")
  for step = 0, o.steps - 1 do
    if step == o.warmup then
      mark("timed", "")
      mesh.dp:barrier()
      began, disk = zt.now(), disk_bytes()
    end
    losses[step + 1] = trainer:step(batch(step)).loss
    first_step_at = first_step_at or zt.now()
  end
  mesh.dp:barrier()
  local seconds, timed = zt.now() - began, o.steps - o.warmup
  local memory = trainer:memory()
  local function predicted(kind) return memory[kind] and memory[kind].predicted or 0 end
  return {
    losses = losses, tokens_per_second = timed * o.batch * o.seq / seconds, first_step_at = first_step_at,
    predicted_memory = predicted "total", staging = predicted "staging", files = predicted "files",
    activations = memory.activations.measured, measured_bytes = (disk_bytes() - disk) / timed, moved = moved_bytes(),
  }
end

-- Returns the seconds of `action`, from the time when all ranks begin to the time when all have ended, and how many more bytes
-- than before this process held meanwhile. Collective.
local function measured(action)
  mesh.dp:barrier()
  local peak = assert(io.open("/proc/self/clear_refs", "w"))
  peak:write "5" -- from here on, peak_rss is that of the action
  peak:close()
  local held, began = zt.memory().rss, zt.now()
  action()
  mesh.dp:barrier()
  return zt.now() - began, zt.memory().peak_rss - held
end

-- Saves and loads checkpoints. Fails if a loaded state does not train as the saved one does.
local function save_and_load(result)
  result.save, result.load, result.save_memory, result.load_memory = {}, {}, {}, {}
  for i = 1, o.saves do
    local function save() ckpt.save(o.checkpoints, {trainer = trainer}, {step = i, async = false}) end
    result.save[i], result.save_memory[i] = measured(save)
  end
  local loss = trainer:step(batch(0)).loss
  for i = 1, o.saves do
    local function load() ckpt.load(o.checkpoints, {trainer = trainer}) end
    result.load[i], result.load_memory[i] = measured(load)
  end
  assert(trainer:step(batch(0)).loss == loss, "after the load the loss of a step is not the one after the save")
end

local result = train()
if o.simulates then result.simulated_seconds = trainer:simulate(batch(0), trainer:costs(batch(0), {steps = 10})).seconds end
if o.saves > 0 then save_and_load(result) end
if zt.world.rank == 0 then zt.write_file(o.folder .. "/run/result.json", zt.json.encode(result)) end
