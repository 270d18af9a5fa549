--- Engines whose parameters are sharded, as those of ZeRO-Inference: each rank holds its part, in memory or in files, and the
-- ranks gather a layer when they compute it.

local core = require "zt.core"
local fail = require "zt.fail"
local infer = require "zt.infer"
local units = require "zt.deepspeed.engine.units"
local zero = require "zt.zero"

local sharded = {}

local BYTES = {fp32 = 4, fp64 = 8, fp16 = 2, bf16 = 2}
local PERSIST_BELOW = 1e5 -- DeepSpeed's default of stage3_param_persistence_threshold, if only the total is given
local OWN = {mesh = true, tensor = true, experts = true, data = true, dtype = true, weights = true, model = true}

local function with(base, more)
  local all = {}
  for _, from in ipairs {base, more} do
    for key, value in pairs(from) do all[key] = value end
  end
  return all
end

-- Returns the model of a folder or of a trainer: {options =, dtype =, load = function(trainer, is_packed), ...}.
local function open(options)
  if options.model then return require("zt.infer.model").open(options.model) end
  local trainer = options.trainer
  if not trainer.model.options then
    fail "zero.stage = 3: nn.gpt or moe.gpt did not make the trainer's model, so it cannot be made again: shard the trainer"
  end
  return {
    options = trainer.model.options, dtype = infer.abilities(trainer).dtype,
    load = function(to) require("zt.infer.parameters").copy(trainer, to) end,
  }
end

local function model_of(opened, options)
  local of_gpt = with(opened.options, {tensor = options.tensor, dropout = 0})
  if options.experts then
    if not of_gpt.moe then fail("moe.ep_size = %d, but the model has no experts: leave it out", options.experts.size) end
    of_gpt.moe = with(of_gpt.moe, {axis = options.experts})
  end
  if opened.weights and options.weights then
    fail("the matrices of the folder are packed already, as %s: leave out dtype 'int8', quant and weights", opened.weights.format)
  end
  local format = opened.weights or options.weights
  if not format then return require("zt.moe").gpt(of_gpt), false end
  local model = require("zt.infer.packed_folder").model_of(of_gpt, format)
  return model, true
end

-- Returns the options of zero.shard for a model.
local function shard_options(model, axis, given)
  local out = {axis = axis, stage = 3, overlap = given.overlap, max_live = given.max_live,
               max_reuse_distance = given.max_reuse_distance}
  local sizes = units.sizes(model)
  if given.persist_below or given.persist_total then
    out.persist_below = units.persist_below(sizes, given.persist_below or PERSIST_BELOW, given.persist_total)
  end
  if given.prefetch_elements then out.prefetch = units.prefetch(sizes, given.prefetch_elements, out.persist_below or 0) end
  if given.offload then out.node_shared = false end -- each rank moves its own part
  return out
end

-- Makes a folder on every rank, because machines have disks of their own. An error of a rank is raised on all. Collective.
local function make_folder(folder, ranks)
  local is_done, why = pcall(core.mkdir_p, folder)
  local outcome = {}
  if not is_done then outcome.error = tostring(why) .. ": give a folder on the disk as zero.offload_param.nvme_path" end
  for _, each in ipairs(ranks:gather_values(outcome)) do
    if each.error then error(each.error, 0) end
  end
end

local function offload_pass(given, dtype, mesh)
  if given.folder and not core.world.dry then make_folder(given.folder, mesh:world()) end
  local memory = given.elements and given.elements * BYTES[dtype] or nil
  return require("zt.offload").move{parameters = given.parameters, folder = given.folder, memory = memory}
end

--- Returns an engine as infer.engine{...} does, with parameters that are sharded over the axis `data` of the options. `given` is
-- the field `zero` of config.read. Collective over the mesh.
function sharded.engine(options, given)
  local opened = open(options)
  local dtype = options.dtype or opened.dtype
  local model, is_packed = model_of(opened, options)
  local program = core.program(model, {precision = dtype, mesh = options.mesh})
    :apply(zero.shard(shard_options(model, options.data, given)))
  if given.offload then program = program:apply(offload_pass(given.offload, dtype, options.mesh)) end
  local trainer = core.trainer(program, {separate = true})
  if not core.world.dry then opened.load(trainer, is_packed) end
  local of_engine = {trainer = trainer}
  for name, value in pairs(options) do
    if not OWN[name] and name ~= "trainer" then of_engine[name] = value end
  end
  of_engine.tokenizer = options.tokenizer or opened.tokenizer
  of_engine.stop_tokens = options.stop_tokens or opened.stop_tokens
  local engine = infer.engine(of_engine)
  engine.chat = engine.chat or opened.chat
  return engine
end

return sharded
