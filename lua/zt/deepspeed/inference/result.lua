--- Makes the result of zt.deepspeed.inference.config from `given`, the values of mapped keys by path.

local fail = require "zt.fail"
local weights = require "zt.deepspeed.inference.weights"

local result = {}

-- Keys with two names: {old, new, whether DeepSpeed calls the old one deprecated}.
local RENAMED = {
  {"mp_size", "tensor_parallel.tp_size", true}, {"ep_size", "moe.ep_size", true}, {"moe_experts", "moe.moe_experts", true},
  {"moe_type", "moe.type", true}, {"checkpoint_config.checkpoint_dir", "checkpoint"}, {"checkpoint_config.base_dir", "base_dir"},
}

-- Gives the values of renamed keys to their new names. Returns a line about each deprecated key.
local function rename(given)
  local advice = {}
  for _, names in ipairs(RENAMED) do
    local old, new, is_deprecated = unpack(names)
    if given[old] ~= nil and given[new] ~= nil then
      fail("'%s' and '%s' are one key with two names: give the second only", old, new)
    end
    if given[old] ~= nil then
      given[new] = given[old]
      if is_deprecated then advice[#advice + 1] = ("%s is deprecated: give %s"):format(old, new) end
    end
  end
  return advice
end

-- Returns the folder of the parameters, or nil.
local function folder_of(given)
  local path, base = given.checkpoint, given.base_dir
  if base == "" then base = nil end
  if path == nil then
    if base then fail("base_dir = '%s' is the folder in which 'checkpoint' lies: give checkpoint too", base) end
    return nil
  end
  local is_list = type(path) == "table"
  if is_list or path:find "%.json$" then
    fail("checkpoint %s, a list of files that PyTorch has written, which are not read here: give the folder of a model as "
      .. "Hugging Face writes it, of a run or of a checkpoint", is_list and "is a table" or "= '" .. path .. "' is a JSON file")
  end
  return base and path:sub(1, 1) ~= "/" and base:gsub("/+$", "") .. "/" .. path or path
end

-- Returns the numbers of experts that layers must have, or nil.
local function expert_counts(given)
  local counts = given["moe.moe_experts"]
  if counts == nil then return nil end
  for place, count in ipairs(counts) do
    if type(count) ~= "number" or count < 1 or count ~= math.floor(count) then
      fail("moe.moe_experts[%d] must be a number of experts, an integer of at least 1", place)
    end
  end
  if #counts == 1 and counts[1] == 1 then return nil end
  return counts
end

local function check_experts(given)
  if given["moe.type"] ~= "residual" then return end
  fail("moe.type = 'residual' is refused: the layers of a model have either an MLP or experts; give 'standard', with shared "
    .. "experts in the model")
end

-- Returns where parameters lie between their uses, or nil: on the device.
local function offload_of(given)
  local device = given["zero.offload_param.device"]
  local is_old = given["zero.cpu_offload_param"]
  if is_old and device and device ~= "cpu" then
    fail("zero.cpu_offload_param = true means device 'cpu', but zero.offload_param.device = '%s': leave the first out", device)
  end
  if is_old then device = "cpu" end
  if device == nil or device == "none" then return nil end
  local folder, elements = given["zero.offload_param.nvme_path"], given["zero.offload_param.max_in_cpu"]
  if device == "cpu" then return {parameters = "host"} end
  if folder == nil or folder == "" then
    fail "zero.offload_param.device = 'nvme' needs a place for the files: give nvme_path, a folder on a fast disk"
  end
  return {parameters = "nvme", folder = folder, elements = elements}
end

local AT_STAGE_3 = {
  overlap_comm = "overlap", stage3_prefetch_bucket_size = "prefetch_elements",
  stage3_param_persistence_threshold = "persist_below", stage3_model_persistence_threshold = "persist_total",
  stage3_max_live_parameters = "max_live", stage3_max_reuse_distance = "max_reuse_distance",
}

-- Returns the options of sharded parameters; nil if every rank holds all. Adds a line per key without effect to `advice`.
local function zero_of(given, advice)
  local stage, offload = given["zero.stage"] or 0, offload_of(given)
  if offload and stage < 3 then
    fail("zero.offload_param moves the parts of parameters that ranks own at stage 3, and zero.stage = %d has none: give stage 3",
         stage)
  end
  local out, idle = {offload = offload}, {}
  for key, name in pairs(AT_STAGE_3) do
    local value = given["zero." .. key]
    if value ~= nil and stage < 3 then idle[#idle + 1] = "zero." .. key end
    out[name] = value
  end
  if stage == 3 then return out end
  table.sort(idle)
  for _, key in ipairs(idle) do advice[#advice + 1] = ("%s: no effect at stage %d: it is for stage 3"):format(key, stage) end
  return nil
end

--- Returns the result for a configuration of deepspeed.init_inference. `config` is the configuration itself.
function result.of(given, config)
  local advice = rename(given)
  check_experts(given)
  local is_int8 = given.dtype == "int8"
  local packed, matched = weights.of(given, config, is_int8)
  local dtype
  if not is_int8 then dtype = given.dtype end
  return {
    tensor = given["tensor_parallel.tp_size"], experts = given["moe.ep_size"], expert_counts = expert_counts(given),
    folder = folder_of(given), dtype = dtype, weights = packed, matched = matched, max_context = given.max_out_tokens,
    least_context = given.min_out_tokens, zero = zero_of(given, advice), advice = advice,
  }
end

--- Returns the result for a configuration of FastGen.
function result.of_ragged(given)
  local function of(name) return given["state_manager." .. name] end
  local tokens, sequences, tracked = of "max_ragged_batch_size", of "max_ragged_sequence_count", of "max_tracked_sequences"
  for _, limit in ipairs {{"max_tracked_sequences", tracked}, {"max_ragged_batch_size", tokens}} do
    local name, value = unpack(limit)
    if sequences and value and sequences > value then
      fail("state_manager.max_ragged_sequence_count = %d must be at most %s = %d: a step has a token of each of its sequences",
           sequences, name, value)
    end
  end
  if tokens and not sequences then sequences = math.min(64, tokens) end
  return {tensor = given["tensor_parallel.tp_size"], token_budget = tokens, max_sequences = sequences,
          max_context = of "max_context", advice = {}}
end

return result
