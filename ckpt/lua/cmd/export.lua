-- ztoolkit ckpt export: the parameters of a checkpoint as safetensors.

local cli = require "zt.cli"
local core = require "zt.core"
local fail = require "zt.fail"
local folder_of = require "zt.ckpt.cmd.folder"
local huggingface = require "zt.ckpt.huggingface"
local json_file = require "zt.ckpt.cmd.json_file"
local names = require "zt.ckpt.names"
local native = require "zt.ckpt"
local nn = require "zt.nn"
local text = require "zt.text"

local PREFIX = "model/"
local DTYPES = {fp64 = "float64", fp32 = "float32", bf16 = "bfloat16", fp16 = "float16"}
local FLOATING = {float64 = true, float32 = true, bfloat16 = true, float16 = true}

-- {name = {dtype, shape}} of the parameters, without their prefix.
local function parameters_of(checkpoint)
  local found = {}
  for _, tensor in ipairs(checkpoint:describe().tensors) do
    if tensor.name:sub(1, #PREFIX) == PREFIX then found[tensor.name:sub(#PREFIX + 1)] = tensor end
  end
  return found
end

-- What is written: {name, shape, dtype, and the parameter that it is made of}.
local function plain_list(parameters)
  local list = {}
  for name, tensor in pairs(parameters) do
    list[#list + 1] = {name = name, shape = tensor.shape, dtype = tensor.dtype, parameter = name}
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

-- The checkpoint's parameters have to be those of the model, all of them and no others.
local function check_model(parameters, options, path)
  local wanted, lines = {}, {}
  for _, parameter in ipairs(nn.gpt(options):parameters()) do
    local saved, shape = parameters[parameter.name], text.shape(parameter.shape)
    wanted[parameter.name] = true
    if not saved then
      lines[#lines + 1] = ("%s is not in the checkpoint"):format(parameter.name)
    elseif text.shape(saved.shape) ~= shape then
      lines[#lines + 1] = ("%s is %s instead of %s"):format(parameter.name, text.shape(saved.shape), shape)
    end
  end
  for name in pairs(parameters) do
    if not wanted[name] then lines[#lines + 1] = ("%s is not in the model"):format(name) end
  end
  table.sort(lines)
  if #lines > 0 then
    fail("the options of nn.gpt in '%s' are not those of the checkpoint's model:\n%s", path, table.concat(lines, "\n"))
  end
end

-- As Hugging Face names and cuts them, and the model's config.json.
local function huggingface_list(parameters, path)
  local options = json_file(path)
  check_model(parameters, options, path)
  local config, form = huggingface.config(options)
  local list = names.by_tensor(names.map(form, huggingface.complete(options)))
  for _, part in ipairs(list) do part.dtype = parameters[part.parameter].dtype end
  return list, config
end

local function list_of(parameters, path)
  if path then return huggingface_list(parameters, path) end
  return plain_list(parameters)
end

local function provider(checkpoint, list)
  local by_name = {}
  for _, part in ipairs(list) do by_name[part.name] = part end
  return function(name)
    local part = by_name[name]
    local values = checkpoint:read(PREFIX .. part.parameter)
    if part.rows then values = values:narrow(0, part.first, part.rows) end
    if part.transposed then values = values:t() end
    return values:to(part.dtype)
  end
end

return function()
  local o = cli{
    name = "ckpt export", usage = "ztoolkit ckpt export",
    about = "Writes the parameters of a checkpoint as safetensors, with one tensor in memory at a time.",
    options = {
      {"format", "safetensors", "what to write; there is this one", one_of = {"safetensors"}},
      {"dtype", "saved", "of floating tensors", one_of = {"saved", "fp64", "fp32", "bf16", "fp16"}},
      {"shard_bytes", 5e9, "into a folder: a file has so many bytes of tensors, or one tensor", at_least = 1},
      {"overwrite", false, "replaces a model that is there already"},
      {"model", nil, "JSON of nn.gpt's options: names and config.json as Hugging Face writes them", type = "string"},
    },
    positional = {
      {"checkpoint", "its folder, or a run's, whose latest one is meant"},
      {"to", "a file NAME.safetensors, or a folder: then model.safetensors, or several files and their index"},
    },
  }
  local checkpoint = native.open(folder_of(o.checkpoint))
  local list, config = list_of(parameters_of(checkpoint), o.model)
  if #list == 0 then fail("the checkpoint has no parameters: nothing is named '%s...'", PREFIX) end
  for _, part in ipairs(list) do
    if FLOATING[part.dtype] then part.dtype = DTYPES[o.dtype] or part.dtype end
  end
  local announced = {}
  for index, part in ipairs(list) do announced[index] = {name = part.name, shape = part.shape, dtype = part.dtype} end
  local written = native.write_safetensors(o.to, announced, o.shard_bytes, provider(checkpoint, list), nil, o.overwrite)
  if config then
    local folder = o.to:find "%.safetensors$" and (o.to:match "^(.*)/" or ".") or o.to
    core.write_file(folder .. "/config.json", core.json.encode(config) .. "\n")
    written[#written + 1] = folder .. "/config.json"
  end
  for _, path in ipairs(written) do print("wrote " .. path) end
  print(("%s tensors"):format(text.count(#list)))
end
