--- The hash by which an adapter knows its base. It is that of a text with a line "NAME DTYPE [SIZES] HASH" for each parameter
-- that is neither an adapter's nor trained as a whole, sorted by name, where HASH is that of its values as layers see them,
-- row-major, little-endian. A packed matrix counts by the numbers that it stands for. All hashes are xxh3 of 64 bits.

local adapter_folder = require "zt.ckpt.adapters.adapter_folder"
local core = require "zt.core"
local fail = require "zt.fail"
local lora = require "zt.ckpt.adapters.lora"
local native = require "zt.ckpt"
local text = require "zt.text"

local base_hash = {}

-- Returns the parameters of the base, sorted by name. left_out: the set of those that are trained as a whole.
local function parameters_of(source, left_out)
  local list = {}
  for _, tensor in ipairs(source.tensors) do
    if not lora.adapter_of(tensor.name) and not left_out[tensor.name] then list[#list + 1] = tensor end
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

--- Returns the dtypes of a base's parameters and the formats of its packed ones, as one text. Only hashes of equal texts can be
-- compared.
function base_hash.dtype(source, left_out)
  local set, list = {}, {}
  for _, tensor in ipairs(parameters_of(source, left_out)) do
    local of = source.formats[tensor.name] or tensor.dtype
    if not set[of] then list[#list + 1] = of end
    set[of] = true
  end
  table.sort(list)
  return table.concat(list, ", ")
end

--- Returns the hash of the base of a model (source.lua). Tensors that do not tell their dtype get that of their values. Of a
-- trainer, collective.
function base_hash.of(source, left_out)
  local lines = {}
  for _, tensor in ipairs(parameters_of(source, left_out)) do
    core.scope(function()
      local values = source.seen(tensor.name)
      tensor.dtype = tensor.dtype or values:dtype()
      local hash = native.digest(values)
      lines[#lines + 1] = ("%s %s %s %s\n"):format(tensor.name, tensor.dtype, text.shape(tensor.shape), hash)
    end)
  end
  return native.digest(table.concat(lines))
end

--- An error if the adapter's folder tells the hash of another base. source: with tensors that do not tell their dtype.
-- say(message): told that bases in other precisions are not compared. place: of the base, for messages.
function base_hash.check(folder, source, left_out, place, say)
  local wanted = adapter_folder.base_of(folder)
  if not wanted then return end
  local hash = base_hash.of(source, left_out) -- first: it finds out the dtypes
  local dtype = base_hash.dtype(source, left_out)
  if dtype ~= wanted.dtype then
    say(("the base is not compared with that of the training: its parameters are %s, and were %s"):format(dtype, wanted.dtype))
    return
  end
  if hash ~= wanted.hash then
    fail("'%s' is an adapter of another base than '%s': the hash of its parameters is %s there and %s here "
      .. "(ztoolkit_adapter.json)", folder, place, wanted.hash, hash)
  end
end

return base_hash
