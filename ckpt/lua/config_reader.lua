--- Reads the values of one config.json of Hugging Face's, and checks the type and range of each. null counts as missing.

local core = require "zt.core"
local fail = require "zt.fail"

local Reader = {}
Reader.__index = Reader

--- Returns a reader of the table `config`. path: its file, for messages.
function Reader.of(config, path) return setmetatable({config = config, path = path}, Reader) end

local function shown(value)
  local kind = type(value)
  if kind == "table" then return core.json.encode(value) .. " (a list or an object)" end
  if kind == "string" then return ("'%s' (a string)"):format(value) end
  return ("%s (a %s)"):format(tostring(value), kind == "cdata" and "number" or kind)
end

function Reader:refuse(key, value, why)
  local text = type(value) == "table" and core.json.encode(value) or tostring(value)
  fail("%s has '%s' = %s: %s, so nn.gpt would compute other logits", self.path, key, text, why)
end

-- Returns a value, or `otherwise` if the key is missing. An error if its type is not `kind` or `is_right(value)` is false.
-- wanted: the allowed values in words, for the message.
function Reader:get(key, kind, wanted, otherwise, is_right)
  local value = self.config[key]
  if value == nil then return otherwise end
  if type(value) ~= kind or (is_right and not is_right(value)) then
    fail("%s has '%s' = %s, where %s is needed: get the file again or correct it", self.path, key, shown(value), wanted)
  end
  return value
end

function Reader:truth(key, otherwise) return self:get(key, "boolean", "true or false", otherwise) end

function Reader:text(key, otherwise) return self:get(key, "string", "a string", otherwise) end

function Reader:above_zero(key, otherwise)
  return self:get(key, "number", "a number above 0", otherwise, function(x) return x > 0 end)
end

function Reader:at_least_zero(key, otherwise)
  return self:get(key, "number", "a number of at least 0", otherwise, function(x) return x >= 0 end)
end

function Reader:rate(key, otherwise)
  return self:get(key, "number", "a number from 0 to below 1", otherwise, function(x) return x >= 0 and x < 1 end)
end

-- Why a file's biases are refused.
Reader.BIASES = "nn.gpt has biases in all matmuls, in none, or in that of queries, keys and values"
Reader.NO_MLP_BIAS = "its MLPs have no biases, and " .. Reader.BIASES

-- Upper bounds of sizes, far above those of any model.
Reader.MOST_LAYERS, Reader.MOST_COLUMNS, Reader.MOST_ROWS = 10000, 2 ^ 24, 2 ^ 31 - 1

-- Returns a whole number from 1 to `most`. Without `otherwise`, a missing key is an error.
function Reader:size(key, most, otherwise)
  local wanted = ("a whole number from 1 to %d"):format(most)
  local value = self:get(key, "number", wanted, otherwise, function(x) return x >= 1 and x <= most and x == math.floor(x) end)
  if value then return value end
  fail("%s has no '%s', %s, so the model's size is unknown: is it the right file?", self.path, key, wanted)
end

-- Returns a list of whole numbers of at least 0; an empty one if the key is missing.
function Reader:numbers(key)
  return self:get(key, "table", "a list of whole numbers of at least 0", {}, function(list)
    local count = 0
    for _ in pairs(list) do count = count + 1 end
    for _, value in ipairs(list) do
      if type(value) ~= "number" or value < 0 or value ~= math.floor(value) then return false end
    end
    return count == #list
  end)
end

-- Checks keys for which only one value is supported. fixed: rows {key, that value, why others are refused}.
function Reader:check_fixed(fixed)
  for _, row in ipairs(fixed) do
    local key, only, why = unpack(row)
    local value = self:get(key, type(only), type(only) == "boolean" and "true or false" or "a " .. type(only), only)
    if value ~= only then self:refuse(key, value, why) end
  end
end

function Reader:check_divides(key, value, parts_key, parts)
  if value % parts == 0 then return end
  fail("%s has '%s' = %d, which '%s' = %d does not divide: one of them is wrong", self.path, key, value, parts_key, parts)
end

return Reader
