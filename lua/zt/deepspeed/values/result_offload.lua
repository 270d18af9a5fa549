--- Makes the field `offload` of the result of ds.read, the options of offload.move.

local fail = require "zt.fail"
local hjson = require "zt.deepspeed.hjson"
local result = require "zt.deepspeed.values.result"

local result_offload = {}

-- DeepSpeed's devices in the words of offload.move; nil means the device's memory.
local PLACES = {cpu = "host", nvme = "nvme"}

local ZERO = "zero_optimization."
local OPTIMIZER, PARAMETERS = ZERO .. "offload_optimizer", ZERO .. "offload_param"
local FORMER = {[OPTIMIZER] = ZERO .. "cpu_offload", [PARAMETERS] = ZERO .. "cpu_offload_param"}

--- Return whether optimizer state and gradients, or parameters, lie in files.
function result_offload.optimizer_in_files(given) return given[OPTIMIZER .. ".device"] == "nvme" end
function result_offload.parameters_in_files(given) return given[PARAMETERS .. ".device"] == "nvme" end

-- Returns whether the configuration has the block `path` of zero_optimization.
local function has_block(config, path)
  local block = (config.zero_optimization or {})[path:sub(#ZERO + 1)]
  return type(block) == "table" and block ~= hjson.null
end

-- Returns the place of the data of a block, nil if they stay, and the key that says so. Fails if the block and its former key
-- contradict each other.
local function place_of(given, config, block)
  local device, former = given[block .. ".device"], given[FORMER[block]]
  if former == nil then return PLACES[device], block .. ".device" end
  local meant = former and "cpu" or "none"
  if has_block(config, block) and (device or "none") ~= meant then
    fail("%s = %s means %s.device = '%s', which is '%s': leave %s out", FORMER[block], tostring(former), block, meant,
         device or "none", FORMER[block]:sub(#ZERO + 1))
  end
  return PLACES[meant], FORMER[block]
end

-- Adds the folder of a block to `folders`, once.
local function add_folder(folders, given, block)
  local path = given[block .. ".nvme_path"] or ""
  if path == "" then
    fail("%s.device = 'nvme' needs %s.nvme_path, a folder on the disk that is to hold the data", block, block)
  end
  path = path:gsub("(.)/+$", "%1")
  for _, folder in ipairs(folders) do
    if folder == path then return end
  end
  folders[#folders + 1] = path
end

local function check_stage(given, key)
  local stage = given[ZERO .. "stage"] or 0
  if stage < 3 then
    fail("%s moves shards of parameters, and at stage %d every rank uses the whole ones all the time: give "
      .. "zero_optimization.stage = 3, or leave offload_param out", key, stage)
  end
end

-- Returns the bytes that max_in_cpu lets stay in memory; nil if it is absent or has no effect.
local function memory_of(given, ratio, precision)
  local key = PARAMETERS .. ".max_in_cpu"
  local elements = given[key]
  if not elements or not result_offload.parameters_in_files(given) then return nil end
  if ratio and ratio < 1 then
    fail("%s.ratio = %g and %s = %.14g both say how much stays in memory: leave one of them out", OPTIMIZER, ratio, key, elements)
  end
  return elements * result.BYTES[precision]
end

--- Returns the field `offload`; nil if all data stay in the device's memory. `out` is the result so far, which has the options
-- that are copied. Fails for keys that are missing or contradict each other.
function result_offload.offload(given, config, out)
  local optimizer = place_of(given, config, OPTIMIZER)
  local parameters, key = place_of(given, config, PARAMETERS)
  local activations = given["activation_checkpointing.cpu_checkpointing"] and "host" or nil
  if not optimizer and not parameters and not activations then return nil end
  if parameters then check_stage(given, key) end
  local folders = {}
  if optimizer == "nvme" then add_folder(folders, given, OPTIMIZER) end
  if parameters == "nvme" then add_folder(folders, given, PARAMETERS) end
  local offload = out.offload or {}
  offload.optimizer, offload.gradients, offload.parameters = optimizer, optimizer, parameters
  offload.activations = activations
  offload.folder = #folders > 0 and folders or nil
  offload.memory = memory_of(given, offload.ratio, out.precision.name)
  if offload.memory then offload.ratio = nil end -- 1: all of what memory has no room for travels
  return offload
end

return result_offload
