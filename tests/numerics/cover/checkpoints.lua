-- Tests that a checkpoint of cut parameters restores each tensor on other meshes: saved on one mesh and loaded on all others,
-- where other ranks share matrices or tokens, with other pipelines and stages of zero.shard. Tensors that are cut in groups, such
-- as queries, keys and values, or the halves of a gated MLP, are among them.
--
--   ztoolkit run tests/numerics/cover/checkpoints.lua
local here = arg and arg[0]:match "^(.*)/" or "."
local random = here .. "/../random"
package.path = random .. "/?.lua;" .. package.path
package.cpath = package.cpath:match("^[^;]*"):gsub("lib/%?%.so$", "tests/modules/?.so") .. ";" .. package.cpath
local zt = require "zt"
local ckpt, comm, nn, optim = require "zt.ckpt", require "zt.comm", require "zt.nn", require "zt.optim"
local pipe, ranks, zero = require "zt.pipe", require "zt.ranks", require "zt.zero"

local VOCAB, TOKENS = 17, 11

local MODELS = {
  {family = "gpt2", heads = 6, hidden = 12, tied = true},
  {family = "llama", heads = 6, kv_heads = 3, hidden = 12, head_dim = 4, ffn = 13, qk_norm = true},
  {family = "llama", heads = 4, kv_heads = 1, hidden = 8, head_dim = 2, ffn = 9, bias = true},
}

local MESHES = {
  {tp = 4, stage = 1}, {stage = 0}, {tp = 2, stage = 3}, {tp = 3, stage = 2, sequence = true}, {tp = 2, cp = 2, stage = 1},
  {cp = 4, stage = 3}, {pp = 2, tp = 2, stage = 1}, {dp = 2, tp = 3, stage = 3}, {tp = 4, dp = 2, stage = 0, sequence = true},
}

local function size_of(layout) return (layout.tp or 1) * (layout.cp or 1) * (layout.pp or 1) * (layout.dp or 1) end

local function trainer_of(options, layout)
  local mesh = comm.mesh{pp = layout.pp or 1, dp = layout.dp or 1, cp = layout.cp or 1, tp = layout.tp or 1}
  local all = {layers = 2, seq = TOKENS, vocab = VOCAB, seed = 3, std = 0.3, tensor = mesh.tp,
               sequence_parallel = layout.sequence, context = {axis = mesh.cp}}
  for key, value in pairs(options) do all[key] = value end
  local program = zt.program(nn.gpt(all), {micro_batches = layout.pp})
  if layout.pp then program = program:apply(pipe.split{axis = mesh.pp}) end
  program = program:apply(zero.shard{axis = mesh.dp, stage = layout.stage})
  return zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}}), mesh
end

local function batch(rank)
  local generator = zt.generator(rank)
  local function draw() return zt.randint(VOCAB, {2, TOKENS}, {generator = generator, dtype = "int64"}) end
  return {tokens = draw(), labels = draw()}
end

-- Returns all tensors of the trainer, whole: parameters and the optimizer's state.
local function tensors_of(trainer)
  local found = {}
  for _, name in ipairs(trainer:parameters()) do
    found[name] = trainer:master(name):clone()
    for key, values in pairs(trainer:optimizer_state(name)) do found[name .. " " .. key] = values:clone() end
  end
  return found
end

-- On a rank: trains two steps and saves, or loads. Gives the tensors.
local function work(task)
  zt.set_log_level "error"
  local trainer, mesh = trainer_of(task.model, task.layout)
  if task.saves then
    for _ = 1, 2 do trainer:step(batch(mesh.dp.rank)) end
    ckpt.save(task.folder, {trainer = trainer}, {step = 2, async = false})
  else
    ckpt.load(task.folder, {trainer = trainer})
  end
  ranks.give{tensors = tensors_of(trainer), step = trainer.global_step}
end

local function run(task)
  local results, message, rank = ranks.run(size_of(task.layout), here .. "/checkpoints.lua", task)
  if not results then error(("rank %d: %s"):format(rank, message), 0) end
  return results
end

-- Names the first tensor that is not equal, or returns nil.
local function first_difference(wanted, found)
  for name, values in pairs(wanted) do
    if not (found[name] and found[name]:equal(values)) then return name end
  end
end

local function text_of(layout)
  local parts = {}
  for _, key in ipairs{"pp", "dp", "cp", "tp", "stage", "sequence"} do
    if layout[key] then parts[#parts + 1] = ("%s %s"):format(key, layout[key]) end
  end
  return table.concat(parts, ", ")
end

-- Saves on one mesh and loads on all. Returns the number of pairs of meshes.
local function check(model, from)
  local folder = os.tmpname()
  os.remove(folder)
  local saved = run{saves = true, folder = folder, model = model, layout = from}[1]
  assert(next(saved.tensors) and saved.step == 2)
  for _, layout in ipairs(MESHES) do
    for rank, loaded in ipairs(run{folder = folder, model = model, layout = layout}) do
      local name = first_difference(saved.tensors, loaded.tensors)
      local where = ("saved with %s, loaded with %s, rank %d"):format(text_of(from), text_of(layout), rank - 1)
      if name then error(("%s: '%s' differs"):format(where, name), 0) end
      assert(loaded.step == saved.step, where)
    end
  end
  ckpt.remove_all(folder)
  os.remove(folder .. "/latest")
  assert(os.remove(folder))
  return #MESHES
end

local task = ranks.task()
if task then return work(task) end
local count = 0
for number, model in ipairs(MODELS) do
  for place, from in ipairs(MESHES) do
    if place == 1 or place == 3 + 2 * number or os.getenv "ZT_EXHAUSTIVE" then count = count + check(model, from) end
  end
end
print(("%d pairs of meshes restore all tensors"):format(count))
