--- The line of metrics.jsonl that run:log writes, and the values in it. Every rank makes the line, so that all ranks refuse the
-- same values.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"

local line = {}

--- The keys that every run shows, by its progress or its plot.
line.SHOWN = {"loss", "validation_loss", "tokens_per_second"}

--- Returns the value with the name `name`, or nil. "stats.balance" is the key `balance` of the table `stats`. Keys may have dots:
--- "stats.blocks.1.router.balance" is that of stats["blocks.1.router.balance"].
function line.value(values, name)
  if values[name] ~= nil then return values[name] end
  local dot = name:find(".", 1, true)
  while dot do
    local inner = values[name:sub(1, dot - 1)]
    local value
    if type(inner) == "table" then value = line.value(inner, name:sub(dot + 1)) end
    if value ~= nil then return value end
    dot = name:find(".", dot + 1, true)
  end
  return nil
end

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

local function check_number(values, name)
  local value = line.value(values, name)
  if value == nil or type(value) == "number" then return end
  fail("run:log: '%s' is plotted or shown, so it must be a number, got %s: %s", name, check.type_name(value),
       type(value) == "userdata" and "take x:item() of a tensor" or "give another kind of value another name")
end

local function check_shown(values, show)
  for _, name in ipairs(line.SHOWN) do check_number(values, name) end
  for _, name in ipairs(show) do check_number(values, name) end
  if values.stats == nil then return end
  if type(values.stats) ~= "table" then
    fail("run:log: 'stats' has the layers' statistics, so it must be a table, got %s: give another kind of value another name",
         check.type_name(values.stats))
  end
  for name, value in pairs(values.stats) do
    if tostring(name):match "%.load$" then check.items("run:log: stats['" .. name .. "']", "number", value) end
  end
end

-- Returns `values` as JSON. The error for a value that JSON cannot hold names it.
local function encoded(values)
  local is_done, text = pcall(core.json.encode, values)
  if is_done then return text end
  for _, name in ipairs(check.sorted_keys(values)) do
    local is_right, why = pcall(core.json.encode, values[name])
    if not is_right then fail("run:log: '%s' cannot be written: %s", name, (tostring(why):gsub("^%S+:%d+: ", ""))) end
  end
  error(text, 0)
end

--- Returns the text of the line with the `values` of step `step`. `show` is the run's option. Fails for values that are not plain
--- or have no names, for another `step` in them, and if the loss or another value that is plotted or shown is no number.
function line.text(step, values, show)
  check_names(values)
  check_step(step, values)
  check_shown(values, show)
  local all = {}
  for key, value in pairs(values) do all[key] = value end
  all.step = step
  return encoded(all) .. "\n"
end

return line
