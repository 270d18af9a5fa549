--- Cyclic redundancy checks of 32 bits, which the files of TensorBoard and of W&B hold.
--
--   crc.castagnoli("123456789") == 0xe3069283        crc.ieee("123456789") == 0xcbf43926

local bit = require "bit"
local ffi = require "ffi"

local crc = {}

-- Returns the table of remainders for the reflected polynomial.
local function remainders(polynomial)
  local out = ffi.new "uint32_t[256]"
  for byte = 0, 255 do
    local value = byte
    for _ = 1, 8 do
      value = bit.band(value, 1) == 1 and bit.bxor(bit.rshift(value, 1), polynomial) or bit.rshift(value, 1)
    end
    out[byte] = value % 2^32
  end
  return out
end

-- Returns the function of text to its check, a number from 0 to 2^32 - 1.
local function check_of(polynomial)
  local rest = remainders(polynomial)
  return function(text)
    local bytes, value = ffi.cast("const uint8_t *", text), -1
    for place = 0, #text - 1 do
      value = bit.bxor(rest[bit.band(bit.bxor(value, bytes[place]), 255)], bit.rshift(value, 8))
    end
    return bit.bnot(value) % 2^32
  end
end

--- CRC-32C, as in TFRecord files.
crc.castagnoli = check_of(0x82f63b78)

--- CRC-32 of zlib.
crc.ieee = check_of(0xedb88320)

return crc
