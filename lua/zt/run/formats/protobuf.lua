--- Encodes messages of Protocol Buffers (protobuf.dev/programming-guides/encoding). A message is the concatenation of its fields.
--
--   protobuf.bytes(1, "loss") .. protobuf.float(2, 0.5)

local ffi = require "ffi"

local protobuf = {}

local VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5

-- Returns the bytes of a whole number from 0 to 2^53: seven bits per byte, the low ones first.
local function varint(value)
  local out = {}
  while value >= 0x80 do
    out[#out + 1] = string.char(value % 0x80 + 0x80)
    value = math.floor(value / 0x80)
  end
  out[#out + 1] = string.char(value)
  return table.concat(out)
end

local function tag(field, kind) return varint(field * 8 + kind) end

-- Returns the bytes of `value` in memory, little-endian on all machines that ztoolkit supports.
local function fixed(type, value) return ffi.string(ffi.new(type .. "[1]", value), ffi.sizeof(type)) end

--- Returns the bytes of an unsigned number of 16, 32 or 64 bits, the low byte first.
function protobuf.unsigned(bits, value) return fixed(("uint%d_t"):format(bits), value) end

--- Returns the field with a whole number from 0 to 2^53, of the types int32, int64, uint64, bool and enum.
function protobuf.integer(field, value) return tag(field, VARINT) .. varint(value) end

--- Returns the field with a string, or with an encoded message.
function protobuf.bytes(field, text) return tag(field, BYTES) .. varint(#text) .. text end

function protobuf.double(field, value) return tag(field, FIXED_64) .. fixed("double", value) end

--- Returns the field with the number rounded to 32 bits.
function protobuf.float(field, value) return tag(field, FIXED_32) .. fixed("float", value) end

return protobuf
