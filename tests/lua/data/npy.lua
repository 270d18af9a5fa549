-- Returns a function that reads an .npy file: the type in its header, such as "<u2", and the list of its numbers.
local ffi = require "ffi"
local fs = require "zt.fs"

local TYPES = {["<u1"] = "uint8_t", ["<u2"] = "uint16_t", ["<u4"] = "uint32_t", ["<i8"] = "int64_t"}
local HEADER = 128

return function(path)
  local bytes = fs.read(path)
  local type, count = bytes:match "'descr': '([^']+)', 'fortran_order': False, 'shape': %((%d+),%)"
  local numbers, list = ffi.cast("const " .. TYPES[type] .. " *", ffi.cast("const char *", bytes) + HEADER), {}
  assert(#bytes == HEADER + tonumber(count) * ffi.sizeof(TYPES[type]), path)
  for place = 1, tonumber(count) do list[place] = tonumber(numbers[place - 1]) end
  return type, list
end
