--- Returns the numbers among the values of a step, as other tools show them: a list {{name, value}, ...}, sorted by name. A
-- number in a nested table has the name "stats/NAME". The step, lists, text and booleans are left out.

local check = require "zt.check"
local core = require "zt.core"

-- Returns the text with U+FFFD in place of what is no UTF-8, as metrics.jsonl has it.
local function repaired(text) return core.json.decode(core.json.encode(text)) end

local function add(out, prefix, values)
  for _, name in ipairs(check.sorted_keys(values)) do
    local value = values[name] -- nil for the items of a list, whose keys are numbers
    if type(value) == "number" then
      out[#out + 1] = {prefix .. repaired(name), value}
    elseif type(value) == "table" then
      add(out, prefix .. repaired(name) .. "/", value)
    end
  end
  return out
end

return function(values)
  local out = {}
  for _, scalar in ipairs(add({}, "", values)) do
    if scalar[1] ~= "step" then out[#out + 1] = scalar end
  end
  return out
end
