--- Engines whose parameters are sharded, as those of ZeRO-Inference: each rank holds its part, in memory or in files, and the
-- ranks gather a layer when they compute it.

local core = require "zt.core"
local infer = require "zt.infer"
local units = require "zt.deepspeed.engine.units"

local sharded = {}

local BYTES = {fp32 = 4, fp64 = 8, fp16 = 2, bf16 = 2}
local PERSIST_BELOW = 1e5 -- DeepSpeed's default of stage3_param_persistence_threshold, if only the total is given

-- Returns the options of zero.shard for a model.
local function shard_options(model, given)
  local out = {overlap = given.overlap, max_live = given.max_live,
               max_reuse_distance = given.max_reuse_distance}
  local sizes = units.sizes(model)
  if given.persist_below or given.persist_total then
    out.persist_below = units.persist_below(sizes, given.persist_below or PERSIST_BELOW, given.persist_total)
  end
  if given.prefetch_elements then out.prefetch = units.prefetch(sizes, given.prefetch_elements, out.persist_below or 0) end
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

-- Returns the options of offload.move. Collective.
local function offload_options(given, dtype, mesh)
  if given.folder and not core.world.dry then make_folder(given.folder, mesh:world()) end
  return {parameters = given.parameters, folder = given.folder,
          memory = given.elements and given.elements * BYTES[dtype] or nil}
end

-- Returns the dtype of the parameters that the options name.
local function dtype_of(options)
  if options.dtype then return options.dtype end
  if options.trainer then return infer.abilities(options.trainer).dtype end
  return require("zt.ckpt.pretrained.folder").open(options.model).dtype
end

--- Fails if the dtype of the parameters cannot be read: `engine` needs it between calls that wait for other ranks.
function sharded.check(options) dtype_of(options) end

--- Returns an engine as infer.engine{...} does, with parameters that are sharded over the axis `data` of the options. `given` is
-- the field `zero` of config.read. Collective over the mesh.
function sharded.engine(options, given)
  local all = {shard = function(model) return shard_options(model, given) end}
  for key, value in pairs(options) do all[key] = value end
  if given.offload then all.offload = offload_options(given.offload, dtype_of(options), options.mesh) end
  return infer.engine(all)
end

return sharded
