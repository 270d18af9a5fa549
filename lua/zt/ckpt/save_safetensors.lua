--- ckpt.save_safetensors(trainer, path): the parameters of a model in training, whole, in the type in which they compute.
--
-- Collective; rank 0 writes, with one parameter in memory at a time.

local fail = require "zt.fail"
local native = require "zt.ckpt"
local objects = require "zt.ckpt.objects"

local LARGEST_FILE = 5e9 -- bytes of tensors, where `path` is a folder

local function save_safetensors(trainer, path)
  if type(trainer) ~= "userdata" or type(path) ~= "string" then
    fail "ckpt.save_safetensors takes a trainer and the name of a .safetensors file or of a folder"
  end
  local list = {}
  for index, name in ipairs(trainer:parameters()) do
    local described = trainer:describe_parameter(name)
    list[index] = {name = name, shape = described.shape, dtype = described.dtype}
  end
  return native.write_safetensors(path, list, LARGEST_FILE, function(name) return trainer:parameter(name) end,
                                  objects.mesh(nil, {trainer = trainer}))
end

return save_safetensors
