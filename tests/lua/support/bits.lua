-- Reads tensors from golden files. An entry is {dtype, shape, bits}; `bits` has the elements as integers of the same size.
local zt = require "zt"

local bits = {}

-- By dtype: the integer dtype of its bits in a golden file.
bits.dtype = {
  float32 = "int32", float64 = "int64", bfloat16 = "int16", float16 = "int16", int64 = "int64", int32 = "int32",
  uint8 = "uint8", bool = "uint8",
}

function bits.decode(entry)
  local kind = bits.dtype[entry.dtype]
  local tensor = zt.tensor(entry.bits, {dtype = kind})
  if entry.dtype ~= kind then tensor = tensor:view(entry.dtype) end
  return tensor:reshape(entry.shape)
end

-- Returns the content of tests/golden/NAME.json.
function bits.golden(name)
  local file = assert(io.open("tests/golden/" .. name .. ".json"))
  local text = file:read "*a"
  file:close()
  return zt.json.decode(text)
end

return bits
