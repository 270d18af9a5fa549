--- The line of metrics.jsonl that run:log writes. Every rank makes it, so that all ranks refuse the same values.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"

local SHOWN = {"loss", "validation_loss", "tokens_per_second"} -- by the progress line and the plot

local function check_names(values)
  if type(values) ~= "table" then
    fail("run:log(step, values): the values are a table, such as {loss = 2.5}, got %s", check.type_name(values))
  end
  for key in pairs(values) do
    if type(key) ~= "string" then
      fail("run:log(step, values): the values have names, such as {loss = 2.5}, got %s as a name", check.type_name(key))
    end
  end
end

-- A trainer's result, which has `terms`, may hold its own step: a trainer may have made steps before the run.
local function check_step(step, values)
  if values.step == nil or values.step == step or values.terms then return end
  fail("run:log(%d, values): the run writes the step itself, %d, but the values have step = %s: leave it out, or give it another "
    .. "name", step, step, tostring(values.step))
end

local function check_shown(values)
  for _, name in ipairs(SHOWN) do
    local value = values[name]
    if value ~= nil and type(value) ~= "number" then
      fail("run:log: '%s' is plotted or shown, so it must be a number, got %s: %s", name, check.type_name(value),
           type(value) == "userdata" and "take x:item() of a tensor" or "give another kind of value another name")
    end
  end
  if values.stats == nil then return end
  if type(values.stats) ~= "table" then
    fail("run:log: 'stats' has the layers' statistics, so it must be a table, got %s: give another kind of value another name",
         check.type_name(values.stats))
  end
  for name, value in pairs(values.stats) do
    if tostring(name):match "%.load$" then check.items("run:log: stats['" .. name .. "']", "number", value) end
  end
end

-- Returns `line` as JSON. The error for a value that JSON cannot hold names it.
local function encoded(line)
  local is_done, text = pcall(core.json.encode, line)
  if is_done then return text end
  for _, name in ipairs(check.sorted_keys(line)) do
    local is_right, why = pcall(core.json.encode, line[name])
    if not is_right then fail("run:log: '%s' cannot be written: %s", name, (tostring(why):gsub("^%S+:%d+: ", ""))) end
  end
  error(text, 0)
end

--- Returns the text of the line with the `values` of step `step`. Fails for values that are not plain or have no names, for
-- another `step` in them, and if the loss or another value that is plotted or shown is no number.
return function(step, values)
  check_names(values)
  check_step(step, values)
  check_shown(values)
  local line = {}
  for key, value in pairs(values) do line[key] = value end
  line.step = step
  return encoded(line) .. "\n"
end
