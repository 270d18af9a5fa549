--- Converts between the rotary positions of a config.json of Hugging Face's and nn.gpt's options rope_base and rope_scaling.
--
-- transformers 5 writes rope_parameters; version 4 writes rope_theta and rope_scaling.

local Reader = require "zt.ckpt.config_reader"
local core = require "zt.core"
local fail = require "zt.fail"

local rope = {}

local KNOWN = {rope_type = true, type = true, rope_theta = true, factor = true, low_freq_factor = true, high_freq_factor = true,
               original_max_position_embeddings = true, partial_rotary_factor = true}
local PARTIAL = {{"partial_rotary_factor", 1, "nn.attention rotates all elements of a head"}}

local function above_zero(found, key, kind)
  local value = found:above_zero(key)
  if not value then
    fail("%s has no '%s', which angles of the type '%s' need: get the file again or correct it", found.path, key, kind)
  end
  return value
end

-- Returns the length of the first training. transformers knows two places for it.
local function original_of(reader, found, seq)
  local most = Reader.MOST_ROWS
  local outside = reader:size("original_max_position_embeddings", most, seq)
  local original = found:size("original_max_position_embeddings", most, outside)
  if reader.config.original_max_position_embeddings and original ~= outside then
    fail("%s has 'original_max_position_embeddings' = %d, and inside of its rotary positions %d: remove the wrong one",
      reader.path, outside, original)
  end
  return original
end

-- Returns {base =, scaling =} of the object under a key, or nil if it is missing.
local function read_object(reader, key, seq)
  local object = reader:get(key, "table", "an object {...}")
  if not object then return nil end
  local found = Reader.of(object, ("%s: '%s'"):format(reader.path, key))
  for name in pairs(object) do
    if not KNOWN[name] then reader:refuse(key, object, ("nn.attention does not have its '%s'"):format(tostring(name))) end
  end
  found:check_fixed(PARTIAL)
  local base, kind = found:above_zero "rope_theta", found:text "rope_type" or found:text("type", "default")
  if kind == "default" then return {base = base} end
  if kind ~= "linear" and kind ~= "llama3" then
    reader:refuse(key, object, "nn.attention scales rotary angles only as the types 'linear' and 'llama3'")
  end
  local scaling = {type = kind, factor = above_zero(found, "factor", kind)}
  if kind == "llama3" then
    scaling.low_freq_factor = above_zero(found, "low_freq_factor", kind)
    scaling.high_freq_factor = above_zero(found, "high_freq_factor", kind)
    scaling.original = original_of(reader, found, seq)
  end
  return {base = base, scaling = scaling}
end

local function is_same(a, b)
  local is_same_base = not a.base or not b.base or a.base == b.base
  return is_same_base and core.json.encode(a.scaling or {}) == core.json.encode(b.scaling or {})
end

--- Returns rope_base and rope_scaling, which is nil if angles are not scaled. base: that of a file without one. seq: the model's
-- longest sequence.
function rope.read(reader, base, seq)
  reader:check_fixed(PARTIAL)
  local old, new = read_object(reader, "rope_scaling", seq), read_object(reader, "rope_parameters", seq)
  if old and new and not is_same(old, new) then
    fail("%s has 'rope_scaling' and 'rope_parameters', which describe different angles: remove the wrong one", reader.path)
  end
  local found = new or old or {}
  return found.base or (old and old.base) or reader:above_zero("rope_theta", base), found.scaling
end

--- Adds the rotary positions to a config.json, for both versions of transformers. o: complete options of nn.gpt.
function rope.write(config, o)
  local scaling = o.rope_scaling
  config.rope_theta = o.rope_base
  config.rope_parameters = {rope_type = scaling and scaling.type or "default", rope_theta = o.rope_base}
  if not scaling then return end
  config.rope_scaling = {
    rope_type = scaling.type, factor = scaling.factor, low_freq_factor = scaling.low_freq_factor,
    high_freq_factor = scaling.high_freq_factor, original_max_position_embeddings = scaling.original,
  }
  for key, value in pairs(config.rope_scaling) do config.rope_parameters[key] = value end
end

return rope
