--- Reads all that a report shows of a run, also of one that goes on or was killed.

local core = require "zt.core"
local expert_load = require "zt.run.expert_load"
local folder = require "zt.run.folder"
local fs = require "zt.fs"
local new_series = require "zt.run.report.series"
local records = require "zt.run.records"
local status = require "zt.run.report.status"

local MOST_ITEMS = 16  -- of a list of numbers, for curves of its items
local MOST_TEXTS = 20  -- of a name: the latest ones
local NULL = "\1null"  -- stands for a null of JSON, which zt.json.decode leaves out

-- Returns the line with NULL in place of every null outside of strings.
local function with_nulls(line)
  local parts, at = {}, 1
  while true do
    local quote = line:find('"', at, true)
    parts[#parts + 1] = line:sub(at, (quote or 0) - 1):gsub("null", '"\\u0001null"')
    if not quote then return table.concat(parts) end
    local stop = line:find('["\\]', quote + 1)
    while stop and line:byte(stop) == 92 do stop = line:find('["\\]', stop + 2) end
    parts[#parts + 1] = line:sub(quote, stop or #line)
    at = (stop or #line) + 1
  end
end

local add -- a function that calls itself by add_items

local function add_items(run, step, name, value)
  if #value > 0 then
    if type(value[1]) ~= "number" and value[1] ~= NULL or #value > MOST_ITEMS then return end
    for index, item in ipairs(value) do add(run, step, ("%s[%d]"):format(name, index - 1), item) end
    return
  end
  for key, item in pairs(value) do add(run, step, name .. "." .. key, item) end
end

local function add_text(run, step, name, value)
  local list = run.texts[name] or {}
  run.texts[name] = list
  if list[#list] and list[#list].step == step then table.remove(list) end
  list[#list + 1] = {step = step, text = value}
  if #list > MOST_TEXTS then table.remove(list, 1) end
end

-- Adds a value under its name: a number or a boolean to a curve, a text to the texts, the items of a table under longer names.
add = function(run, step, name, value)
  local kind = type(value)
  if kind == "boolean" then value, kind = value and 1 or 0, "number" end
  if kind == "number" or value == NULL then
    run.metrics[name] = run.metrics[name] or new_series()
    run.metrics[name]:add(step, kind == "number" and value or nil)
  elseif kind == "string" then
    add_text(run, step, name, value)
  elseif kind == "table" then
    add_items(run, step, name, value)
  end
end

local function read_metrics(run)
  if not core.exists(run.path .. "/metrics.jsonl") then return end
  for line in folder.lines(run.path) do
    local has_null = line:find("null", 1, true)
    local values = folder.values_of(has_null and with_nulls(line) or line)
    if values then
      run.steps, run.lines = math.max(run.steps, values.step + 1), run.lines + 1
      for name, value in pairs(values) do
        if name ~= "step" then add(run, values.step, name, value) end
      end
      local stats = has_null and folder.values_of(line).stats or values.stats
      if type(stats) == "table" then run.loads:add(values.step, stats) end
    else
      run.damaged = run.damaged + 1
    end
  end
end

--- Returns what records.open returns, and {name, number, status, summary, script, steps, lines, damaged, loads, metrics = {name =
--- Series}, texts = {name = {{step =, text =}}}}. `number` is the place of the run in the report.
return function(path, name, number)
  local run = records.open(path)
  run.name, run.number, run.summary = name, number, records.summary(path)
  run.steps, run.lines, run.damaged, run.metrics, run.texts = 0, 0, 0, {}, {}
  run.loads = expert_load()
  run.status = status.of(path, run.record, run.summary)
  run.script = core.exists(path .. "/script.lua") and fs.read(path .. "/script.lua") or nil
  read_metrics(run)
  return run
end
