--- Reads what runs have recorded: options.json and metrics.jsonl of their folders.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local folder = require "zt.run.folder"
local fs = require "zt.fs"

local records = {}

-- Adds the values of a line of metrics.jsonl to `metrics`: of each number its points, its last value, and the least one with its
-- step. Numbers in a table `stats` are named "stats.NAME"; those in lists are left out.
local function add_values(metrics, line, values, prefix)
  for key, value in pairs(values) do
    local name = prefix .. tostring(key)
    if type(value) == "table" and #value == 0 then add_values(metrics, line, value, name .. ".") end
    if type(value) == "number" and name ~= "step" then
      local metric = metrics[name] or {points = {}, least = math.huge, least_step = line.step}
      metrics[name], metric.last = metric, value
      metric.points[#metric.points + 1] = {line.step, value}
      if value < metric.least then metric.least, metric.least_step = value, line.step end
    end
  end
end

local function metrics_of(path)
  local metrics, steps = {}, 0
  if not core.exists(path .. "/metrics.jsonl") then return metrics, steps end
  for line in folder.records(path) do
    add_values(metrics, line, line, "")
    steps = math.max(steps, line.step + 1)
  end
  return metrics, steps
end

--- Returns {path, options, record} of the run in the folder `path`, without its metrics: `record` is the content of options.json,
-- `options` are those of the script in it, with the number of ranks. Fails if the folder holds no run.
function records.open(path)
  local record = folder.start(path) or fail("'%s' is no run: it has no options.json", path)
  local options = type(record.options) == "table" and record.options or {}
  options.ranks = options.ranks == nil and record.ranks or options.ranks
  return {path = path, options = options, record = record}
end

--- Returns the content of summary.json (report/summary.lua) of the run in the folder `path`; nil if there is none.
function records.summary(path)
  local file = path .. "/summary.json"
  if not core.exists(file) then return nil end
  local is_whole, summary = pcall(core.json.decode, fs.read(file))
  if is_whole and type(summary) == "table" then return summary end
  fail("'%s' is damaged: it holds no JSON. Remove it: then the run lacks its memory and its end", file)
end

--- Returns what records.open returns, and {steps, metrics = {name = {last, least, least_step, points = {{step, value}, ...}}}}.
function records.read(path)
  local run = records.open(path)
  run.metrics, run.steps = metrics_of(path)
  return run
end

--- Returns short names of the runs: the last parts of their paths, if these differ.
function records.names(paths)
  local names, seen, differ = {}, {}, true
  for i, path in ipairs(paths) do
    names[i] = path:gsub("/+$", ""):match "[^/]+$" or path
    differ = differ and not seen[names[i]]
    seen[names[i]] = true
  end
  return differ and names or paths
end

local function shown(value) return type(value) == "table" and core.json.encode(value) or tostring(value) end

--- Returns a row {key, value of the first run, ...} per option of the runs, in the order of the keys: a list with the options in
--- which the runs differ, and one with the others. A run without the option has "-".
function records.options_of(runs)
  local keys, differing, same = {}, {}, {}
  for _, run in ipairs(runs) do
    for key in pairs(run.options) do keys[key] = true end
  end
  for _, key in ipairs(check.sorted_keys(keys)) do
    local row, is_same = {key}, true
    for i, run in ipairs(runs) do
      row[i + 1] = run.options[key] == nil and "-" or shown(run.options[key])
      is_same = is_same and row[i + 1] == row[2]
    end
    table.insert(is_same and same or differing, row)
  end
  return differing, same
end

return records
