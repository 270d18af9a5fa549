-- Reads the binary formats that lua/zt/run/formats writes. It shares no code with the writers.
local bit = require "bit"
local ffi = require "ffi"

local decode = {}

--- Returns the check of `text`, bit by bit, with the reflected polynomial.
function decode.crc(polynomial, text)
  local value = -1
  for place = 1, #text do
    value = bit.bxor(value, text:byte(place))
    for _ = 1, 8 do
      local is_odd = bit.band(value, 1) == 1
      value = bit.rshift(value, 1)
      if is_odd then value = bit.bxor(value, polynomial) end
    end
  end
  return bit.bnot(value) % 2^32
end

--- Returns the number of type `type`, such as "uint32_t", at the place `at` (from 1) of the text.
function decode.number(type, text, at)
  local size = ffi.sizeof(type)
  assert(at + size - 1 <= #text, "the text ends within a number")
  local out = ffi.new(type .. "[1]")
  ffi.copy(out, text:sub(at, at + size - 1), size)
  return tonumber(out[0])
end

-- Returns the varint at `at`, and the place after it.
local function varint(text, at)
  local value, factor = 0, 1
  repeat
    local byte = assert(text:byte(at), "the text ends within a varint")
    value, factor, at = value + byte % 128 * factor, factor * 128, at + 1
  until byte < 128
  return value, at
end

--- Returns the fields of a message of Protocol Buffers: a list {{number, value}, ...}. Values of 8 and 4 bytes are a double and a
-- float; strings and messages are text.
function decode.message(text)
  local out, at = {}, 1
  while at <= #text do
    local tag, value
    tag, at = varint(text, at)
    local kind = tag % 8
    if kind == 0 then
      value, at = varint(text, at)
    elseif kind == 1 then
      value, at = decode.number("double", text, at), at + 8
    elseif kind == 5 then
      value, at = decode.number("float", text, at), at + 4
    else
      assert(kind == 2, "an unknown kind of field")
      local length
      length, at = varint(text, at)
      assert(at + length - 1 <= #text, "the text ends within a field")
      value, at = text:sub(at, at + length - 1), at + length
    end
    out[#out + 1] = {(tag - kind) / 8, value}
  end
  return out
end

--- Returns the records of a file of TFRecord, after a check of lengths and checks.
function decode.tfrecords(text)
  local function check(part, at)
    local crc = decode.crc(0x82f63b78, part)
    local masked = (bit.bor(bit.rshift(crc, 15), bit.lshift(crc, 17)) % 2^32 + 0xa282ead8) % 2^32
    assert(decode.number("uint32_t", text, at) == masked, "a check is wrong")
  end
  local out, at = {}, 1
  while at <= #text do
    local length = decode.number("uint64_t", text, at)
    check(text:sub(at, at + 7), at + 8)
    local data = text:sub(at + 12, at + 11 + length)
    assert(#data == length, "the text ends within a record")
    check(data, at + 12 + length)
    out[#out + 1], at = data, at + 16 + length
  end
  return out
end

--- Returns the records of a log of LevelDB with the CRC-32 of zlib that begins at the place `at`, after a check of its blocks,
-- and the number of blocks whose end is filled with zeros.
function decode.leveldb(text, at)
  local out, filled, parts, block = {}, 0, nil, 32768
  while at <= #text do
    local room = block - (at - 1) % block
    if room < 7 then
      assert(text:sub(at, at + room - 1) == ("\0"):rep(room), "the end of a block is not zero")
      at, filled = at + room, filled + 1
    else
      local length, kind = decode.number("uint16_t", text, at + 4), text:byte(at + 6)
      local data = text:sub(at + 7, at + 6 + length)
      assert(#data == length and length + 7 <= room, "a record crosses a block")
      assert(decode.crc(0xedb88320, string.char(kind) .. data) == decode.number("uint32_t", text, at), "a check is wrong")
      assert((kind == 1 or kind == 2) == (parts == nil), "a record begins within another, or goes on without a begin")
      parts = parts or {}
      parts[#parts + 1] = data
      if kind == 1 or kind == 4 then out[#out + 1], parts = table.concat(parts), nil end
      at = at + 7 + length
    end
  end
  assert(parts == nil, "the last record has no end")
  return out, filled
end

return decode
