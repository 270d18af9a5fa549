--- The curves of runs as JSON, which the page's script reads.

local check = require "zt.check"
local core = require "zt.core"

local MOST_BUCKETS = 80000 -- of all curves together: about 3 MiB
local LEAST_BUCKETS = 100  -- of a curve
local FIRST = {"loss", "validation_loss"}
local FIXED = {"tokens_per_second", "lr", "grad_norm"} -- have charts of their own

local data = {}

--- Returns the names of the metrics of the runs that have a number: the losses first, then by the alphabet.
function data.names(runs)
  local found, names = {}, {}
  for _, run in ipairs(runs) do
    for name, series in pairs(run.metrics) do found[name] = found[name] or series.count > 0 or nil end
  end
  for _, name in ipairs(FIRST) do
    if found[name] then names[#names + 1] = name end
    found[name] = nil
  end
  for _, name in ipairs(check.sorted_keys(found)) do names[#names + 1] = name end
  return names
end

--- Returns those of the names that have charts of their own.
function data.fixed(names)
  local known, list = {}, {}
  for _, name in ipairs(names) do known[name] = true end
  for _, name in ipairs(FIXED) do
    if known[name] then list[#list + 1] = name end
  end
  return list
end

-- Returns JSON text that may stand in a script element: there, "</script>" and "<!--" would end it or change its meaning.
local function safe(value)
  return (core.json.encode(value):gsub("[<>&]", function(sign) return ("\\u%04x"):format(sign:byte()) end))
end

-- Returns a list of names as JSON.
local function list_of(names)
  local parts = {}
  for index, name in ipairs(names) do parts[index] = safe(name) end
  return "[" .. table.concat(parts, ",") .. "]"
end

--- Returns the JSON text: {runs, metrics, series = {name = [curve or null of each run]}, written, reload}. `reload` is the number
--- of seconds after which the page is written again; nil if it is not.
function data.json(runs, reload)
  local names, run_names, curves = data.names(runs), {}, {}
  for index, run in ipairs(runs) do run_names[index] = run.name end
  local most = math.max(LEAST_BUCKETS, math.floor(MOST_BUCKETS / math.max(1, #names * #runs)))
  for place, name in ipairs(names) do
    local of_runs = {}
    for index, run in ipairs(runs) do
      local series = run.metrics[name]
      of_runs[index] = series and series.count > 0 and series:json(most) or "null"
    end
    curves[place] = safe(name) .. ":[" .. table.concat(of_runs, ",\n") .. "]"
  end
  return ('{"runs":%s,"metrics":%s,"written":%d,"reload":%s,"series":{%s}}'):format(
    list_of(run_names), list_of(names), os.time(), reload and ("%g"):format(reload) or "null", table.concat(curves, ",\n"))
end

return data
