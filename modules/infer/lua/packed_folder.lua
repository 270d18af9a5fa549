--- Writes folders of models whose matrices are packed, which zt.ckpt.pretrained.packed reads.

local ckpt = require "zt.ckpt"
local core = require "zt.core"
local fail = require "zt.fail"
local fs = require "zt.fs"
local moe = require "zt.moe"
local packed = require "zt.ckpt.pretrained.packed"
local parameters = require "zt.ckpt.pretrained.parameters"
local replacement = require "zt.infer.replacement"

local packed_folder = {}

local DESCRIPTION, VERSION = packed.DESCRIPTION, packed.VERSION
local LARGEST_FILE = 5e9
local DTYPES = {fp32 = "float32", bf16 = "bfloat16", fp16 = "float16", fp64 = "float64"}

local function copy(from)
  local all = {}
  for key, value in pairs(from) do all[key] = value end
  return all
end

--- Returns a model with matrices in the format `weights`, the options of model:pack, and the options that it is made from: a tied
-- head becomes a matrix of its own, unless it stays tied.
function packed_folder.model_of(options, weights, stays_tied)
  local model = moe.gpt(options)
  if parameters.is_tied(model) and not stays_tied then
    options = copy(options)
    options.tied = false
    model = moe.gpt(options)
  end
  model:pack(weights)
  return model, options
end

-- Returns the options of zt.pack for a parameter.
local function format_of(parameter, weights)
  local format = {format = parameter.format}
  if format.format == "panels" then
    format.dtype = weights.dtype
  else
    format.group = weights.group
    if format.format == "int4" then format.symmetric = weights.symmetric end
    if format.format == "nf4" then format.nested = weights.nested end
  end
  return format
end

-- Returns a function that reads a parameter of the packed model by its name.
local function reader_of(opened)
  local places = {}
  for place, name in ipairs(opened.names) do places[name] = place end
  return function(name)
    local from = places[name] and name or name == "head.weight" and "embedding.weight"
    if not places[from] then fail("the model has no tensor for '%s'", name) end
    return opened.read(places[from], from)
  end
end

-- Returns the packed bytes of a parameter, or the numbers of a plain one.
local function written(name, values, format, dtype)
  if not format then return values:to(DTYPES[dtype]) end
  local is_packed, bytes = pcall(core.pack, values, format)
  if not is_packed then fail("'%s' cannot be packed: %s", name, (tostring(bytes):gsub("^%S+:%d+: ", ""))) end
  return bytes
end

-- Returns the tensors to write as ckpt.write_safetensors takes them, the formats of packed ones by name, and the report.
local function plan_of(model, weights, dtype)
  local list, formats, report = {}, {}, {}
  for _, parameter in ipairs(model:parameters()) do
    local is_packed = parameter.format ~= "plain"
    local bytes = is_packed and parameter.room or parameter.numel * core.zeros({0}, {dtype = DTYPES[dtype]}):element_size()
    formats[parameter.name] = is_packed and format_of(parameter, weights) or nil
    list[#list + 1] = {name = parameter.name, shape = is_packed and {parameter.room} or parameter.shape,
                       dtype = is_packed and "uint8" or DTYPES[dtype]}
    report[#report + 1] = {name = parameter.name, format = parameter.format, numel = parameter.numel, bytes = bytes}
  end
  return list, formats, report
end

-- Writes the files of the model into a folder that has none.
local function write_files(folder, opened, list, formats, description)
  local read = reader_of(opened)
  local function provide(name) return written(name, read(name), formats[name], opened.dtype) end
  ckpt.write_safetensors(folder, list, LARGEST_FILE, provide)
  description.files = fs.list(folder)
  for name, content in pairs(opened.files or {}) do core.write_file(folder .. "/" .. name, content) end
  if opened.generation_config then core.write_file(folder .. "/generation_config.json", opened.generation_config) end
  core.write_file(folder .. "/" .. DESCRIPTION, core.json.encode(description) .. "\n")
end

--- Writes an opened model (zt.ckpt.pretrained.folder) to a folder, one tensor in memory at a time. Returns {{name, format,
-- numel, bytes}, ...}.
-- overwrite: it replaces a packed model that is there. A mistake in `weights` is an error before anything is written.
function packed_folder.write(opened, path, weights, overwrite)
  replacement.check(path, overwrite)
  local model, options = packed_folder.model_of(opened.options, weights)
  local list, formats, report = plan_of(model, weights, opened.dtype)
  local description = {version = VERSION, model = options, dtype = opened.dtype, weights = weights, tensors = formats,
                       stop_tokens = opened.stop_tokens}
  replacement.write(path, function(folder) write_files(folder, opened, list, formats, description) end)
  return report
end

return packed_folder
