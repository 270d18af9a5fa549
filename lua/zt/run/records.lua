--- Reads what runs have recorded: options.json and metrics.jsonl of their folders.

local core = require "zt.core"
local fail = require "zt.fail"
local folder = require "zt.run.folder"

local records = {}

-- Adds a line of metrics.jsonl to `metrics`: of each number its points, its last value, and the least one with its step.
local function add_line(metrics, line)
  for name, value in pairs(line) do
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
    add_line(metrics, line)
    steps = math.max(steps, line.step + 1)
  end
  return metrics, steps
end

--- Returns the content of options.json in the folder `path`. Fails if it holds no run.
function records.record(path)
  return folder.start(path) or fail("'%s' is no run: it has no options.json", path)
end

--- Returns the options of the script in `record`, with the number of ranks.
function records.options(record)
  local options = type(record.options) == "table" and record.options or {}
  options.ranks = options.ranks == nil and record.ranks or options.ranks
  return options
end

--- Returns {path, options, steps, metrics = {name = {last, least, least_step, points = {{step, value}, ...}}}} of the run in the
--- folder `path`. Fails if it holds no run.
function records.read(path)
  local options = records.options(records.record(path))
  local metrics, steps = metrics_of(path)
  return {path = path, options = options, steps = steps, metrics = metrics}
end

return records
