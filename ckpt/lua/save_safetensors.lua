--- ckpt.save_safetensors(trainer, path, {overwrite}): writes the state of a model in training, as whole tensors in the dtype in
-- which they compute: its parameters, and what its layers change themselves.
--
-- Collective. Rank 0 writes, with one tensor in memory at a time.

local check = require "zt.check"
local native = require "zt.ckpt"
local objects = require "zt.ckpt.objects"

local LARGEST_FILE = 5e9 -- bytes of tensors per file if `path` is a folder

local SCHEMA = {
  {"overwrite", "boolean", "replaces a model that is there already, after the new one is complete", default = false},
}

local function save_safetensors(trainer, path, value)
  local options = check.options("ckpt.save_safetensors", SCHEMA, value or {})
  check.argument("ckpt.save_safetensors", "the first argument", "Trainer", trainer)
  check.argument("ckpt.save_safetensors", "the name of a .safetensors file or of a folder", "string", path)
  local list = {}
  for index, tensor in ipairs(trainer:tensors()) do
    list[index] = {name = tensor.name, shape = tensor.shape, dtype = tensor.dtype}
  end
  return native.write_safetensors(path, list, LARGEST_FILE, function(name) return trainer:parameter(name) end,
                                  objects.mesh(nil, {trainer = trainer}), options.overwrite)
end

return save_safetensors
