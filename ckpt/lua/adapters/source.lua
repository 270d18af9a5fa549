--- The model of a trainer or of a checkpoint whose adapters are saved, loaded or merged:
--
--   options            of moe.gpt; `place`: where the model is, for messages
--   dtype              of a trainer's parameters
--   tensors            list of {name =, shape =, dtype = as layers see it}
--   trained            set of the parameters, without adapters, that are trained
--   formats            {name = format} of packed parameters
--   read(name)         returns a tensor in the optimizer's precision; of a trainer, collective
--   seen(name)         returns a tensor as layers see it; of a trainer, collective
--   mesh               of a trainer

local check = require "zt.check"
local fail = require "zt.fail"
local lora = require "zt.ckpt.adapters.lora"
local moe = require "zt.moe"
local objects = require "zt.ckpt.objects"

local source = {}

local PREFIX = "model/"

--- Returns the model of a trainer. An error, for the function `call`, unless nn.gpt or moe.gpt made it with the option `lora`.
function source.of_trainer(trainer, call)
  local tensors, options = trainer:tensors(), trainer.model.options
  if not lora.is_in(tensors) then
    fail("%s: the trainer's model has no adapters: give nn.gpt or moe.gpt the option lora", call)
  end
  if not options then
    fail("%s: the trainer's model does not tell its options, since nn.gpt or moe.gpt did not make it from plain ones. So the "
      .. "scales of its adapters are not known: make it without a function `mlp`", call)
  end
  local trained, formats, parameters = {}, {}, {}
  for _, parameter in ipairs(trainer.model:parameters()) do
    local name = parameter.name
    if parameter.trainable and not lora.adapter_of(name) then trained[name] = true end
    if parameter.format ~= "plain" then formats[name] = parameter.format end
  end
  for _, tensor in ipairs(tensors) do
    if tensor.is_parameter then parameters[#parameters + 1] = tensor end
  end
  return {
    options = options, place = "the trainer's model", dtype = parameters[1].dtype, tensors = parameters, trained = trained,
    formats = formats,
    read = function(name) return trainer:master(name) end, seen = function(name) return trainer:parameter(name) end,
    mesh = objects.mesh(nil, {trainer = trainer}),
  }
end

--- Returns the model of an opened folder (pretrained/folder.lua) with these options. Only the tensors of its base can be seen.
function source.of_opened(opened, options, place)
  local tensors, places = {}, {}
  for index, parameter in ipairs(moe.gpt(options):parameters()) do
    tensors[index] = {name = parameter.name, shape = parameter.shape}
  end
  for index, name in ipairs(opened.names) do places[name] = index end
  return {options = options, place = place, tensors = tensors, formats = {},
          seen = function(name) return opened.read(places[name], name) end}
end

--- Returns {name = format} of the matrices of a checkpoint's trainer that were packed, which the checkpoint does not have; nil if
-- there were none. content: what describe() returns.
function source.packed_of(content)
  local hashes = content.values["model/packed"]
  if not hashes then return nil end
  local formats = {}
  for name, hash in pairs(hashes) do formats[name] = hash:match "^%S+" end
  return formats
end

--- Returns the formats of packed matrices (packed_of) as a text.
function source.text_of(formats)
  local set = {}
  for _, format in pairs(formats) do set[format] = true end
  return table.concat(check.sorted_keys(set), " and ")
end

--- Returns the model of a checkpoint that was opened. options: those of moe.gpt, with `lora`. script: its record.
function source.of_checkpoint(checkpoint, options, script, folder)
  local tensors, trained, content = {}, {}, checkpoint:describe()
  for _, name in ipairs(script.trained or {}) do trained[name] = true end
  local formats = source.packed_of(content) or {}
  if next(formats) then
    local shapes = {}
    for _, parameter in ipairs(moe.gpt(options):parameters()) do shapes[parameter.name] = parameter.shape end
    for _, name in ipairs(check.sorted_keys(formats)) do tensors[#tensors + 1] = {name = name, shape = shapes[name]} end
  end
  for _, tensor in ipairs(content.tensors) do
    local name = tensor.name:sub(1, #PREFIX) == PREFIX and tensor.name:sub(#PREFIX + 1)
    if name then
      tensors[#tensors + 1] = {name = name, shape = tensor.shape, dtype = tensor.dtype}
      if tensor.attributes.trainable and not lora.adapter_of(name) then trained[name] = true end
    end
  end
  local function read(name) return checkpoint:read(PREFIX .. name) end
  return {options = options, place = ("'%s'"):format(folder), tensors = tensors, trained = trained, formats = formats,
          read = read, seen = read}
end

return source
