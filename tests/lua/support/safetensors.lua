-- Reads safetensors files that are known to be valid: golden files, and files saved by transformers.
local zt = require "zt"

local safetensors = {}

local DTYPES = {F32 = "float32", F64 = "float64", BF16 = "bfloat16", I64 = "int64", U8 = "uint8"}

--- Returns {name = tensor, ...}.
function safetensors.read(path)
  local text = zt.fs.read(path)
  local length = 0
  for place = 8, 1, -1 do length = length * 256 + text:byte(place) end
  local header = zt.json.decode(text:sub(9, 8 + length))
  local bytes = zt.from_file(path, false, #text, {dtype = "uint8"})
  local tensors = {}
  for name, entry in pairs(header) do
    if name ~= "__metadata__" then
      local first, last = unpack(entry.data_offsets)
      local part = bytes:narrow(0, 8 + length + first, last - first):clone()
      tensors[name] = part:view(DTYPES[entry.dtype]):reshape(entry.shape)
    end
  end
  return tensors
end

return safetensors
