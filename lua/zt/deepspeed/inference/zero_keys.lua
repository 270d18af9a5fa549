--- The keys of the block `zero` of deepspeed.init_inference: those of zero_optimization, of which an engine needs the ones of
-- parameters. Keys of gradients, optimizers and checkpoints have no effect, because an engine has none of these.

local offload = require "zt.deepspeed.keys.offload"
local zero = require "zt.deepspeed.keys.zero"

local ROOT = "zero_optimization"
local TRAINING = "it concerns training: an engine has no gradients and no optimizer, and writes no checkpoint"

-- The keys that have an effect, with their texts.
local MAPPED = {
  zero = {
    stage = "3: each rank holds its part of the parameters (`zero.shard{stage = 3}`), and the ranks gather a layer when they "
      .. "compute it; 0, 1 and 2: each rank holds all",
    overlap_comm = "`zero.shard.overlap`, at stage 3: the next layer is gathered beside compute",
    stage3_prefetch_bucket_size = "`zero.shard.prefetch`, at stage 3: elements that are gathered ahead of their use",
    stage3_param_persistence_threshold = "`zero.shard.persist_below`, at stage 3: units of up to so many elements stay gathered",
    stage3_model_persistence_threshold = "`zero.shard.persist_below`, at stage 3: largest number of elements that stay gathered",
    stage3_max_live_parameters = "`zero.shard.max_live`, at stage 3",
    stage3_max_reuse_distance = "`zero.shard.max_reuse_distance`, at stage 3",
    cpu_offload_param = "deprecated: as device \"cpu\" in offload_param; `false` as \"none\"",
  },
  ["zero.offload_param"] = {
    device = "`offload.move.parameters`, needs stage 3: \"nvme\", or \"host\" for \"cpu\"; \"none\": they stay",
    nvme_path = "`offload.move.folder`, which is made if it is missing",
    max_in_cpu = "`offload.move.memory` if device is \"nvme\": elements x bytes of a parameter that may stay in memory",
  },
}

-- The keys that have the fate and text of training.
local KEPT = {}
for name in ([[
  stage3_gather_16bit_weights_on_model_save stage3_module_granularity_threshold stage3_use_all_reduce_for_fetch_params
  stage3_allgather_sequential parameter_alignment zero_hpz_partition_size memory_efficient_linear pipeline_loading_checkpoint
  override_module_apply log_trace_cache_warnings enable_sanity_checks mics_hierarchical_params_gather cpu_offload_use_pin_memory
  buffer_count buffer_size pin_memory]]):gmatch "%S+" do KEPT[name] = true end

local PACK = "parameters are gathered as they are; to send fewer bytes give dtype \"int8\": then packed matrices are gathered"
local REFUSED = {
  zero_quantized_weights = {PACK}, zero_quantized_nontrainable_weights = {PACK},
  mics_shard_size = {"the shards lie over all ranks that have other requests; leave the key out, or give -1", default = -1},
}

-- Returns a copy of a row with another fate and text. `base` is the row of training.
local function changed(base, fate, text, default)
  local row = {}
  for key, value in pairs(base) do row[key] = value end
  row[2], row[4] = fate, text
  row.auto, row.to, row.needs_stage = nil, nil, nil
  if default ~= nil then row.default = default end
  if fate == "always" then row.agrees = "any" end
  return row
end

-- Returns the row of inference for a row of training, in the block `path`.
local function row_of(path, base)
  local name = base[1]
  local text, refused = MAPPED[path] and MAPPED[path][name], REFUSED[name]
  if text then return changed(base, "mapped", text) end
  if refused then return changed(base, "refused", refused[1], refused.default) end
  if KEPT[name] and path ~= "zero.offload_optimizer" then return changed(base, base[2], base[4]) end
  return changed(base, "always", TRAINING)
end

local function path_of(path) return "zero" .. path:sub(#ROOT + 1) end

-- Returns the rows of a block. Rows of `inherit` have no fate and no text.
local function rows_of(path, spec)
  local rows = {}
  for _, base in ipairs(spec.rows or {}) do rows[#rows + 1] = row_of(path, base) end
  for _, base in ipairs(spec.inherit or {}) do rows[#rows + 1] = {base[1], "always", base[2], TRAINING, agrees = "any"} end
  return rows
end

local TEXTS = {
  zero = "`zero.shard` at stage 3: parameters are divided over the ranks that have other requests",
  ["zero.offload_param"] = "`offload.move`: where the parts of parameters lie between their uses",
  ["zero.leaf_module"] = "every layer of the model's list is gathered whole, experts included",
}

local specs = {}
for _, file in ipairs {zero, offload} do
  for _, spec in ipairs(file) do
    if spec.path:sub(1, #ROOT) == ROOT then
      local path = path_of(spec.path)
      local is_mapped = MAPPED[path] ~= nil
      specs[#specs + 1] = {path = path, fate = is_mapped and "mapped" or "always", text = TEXTS[path] or TRAINING,
                           is_on = is_mapped and spec.is_on or nil, extends = spec.extends, rows = rows_of(path, spec)}
    end
  end
end
return specs
