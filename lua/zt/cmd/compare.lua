-- ztoolkit compare: sets runs side by side: the options in which they differ, their last values, least losses, and one plot.
--
--   ztoolkit compare runs/a runs/b runs/c --metric validation --picture compare.svg
local zt      = require "zt"
local check   = require "zt.check"
local command = require "zt.command"
local fail    = require "zt.fail"
local picture = require "zt.run.picture"
local records = require "zt.run.records"

local options = zt.cli {
  name = "compare", usage = "ztoolkit compare",
  about = "Compares runs: the options and last values in which they differ, the least losses, and a plot of one metric.",
  positional = {{"runs", "the folders of two runs or more", at_least = 2}},
  options = {
    {"metric", "loss", "the metric that the plot shows"},
    {"picture", nil, "write the plot to this SVG file", type = "string"},
    {"all", false, "list the metrics that only some of the runs have, too"},
  },
}

local function with(first, cells)
  local row = {first}
  for _, cell in ipairs(cells) do row[#row + 1] = cell end
  return row
end

-- Returns rows of the metrics in which the runs differ: the last values, and of losses the least ones with their steps.
local function values(runs)
  local counts, rows = {}, {}
  for _, run in ipairs(runs) do
    for name in pairs(run.metrics) do counts[name] = (counts[name] or 0) + 1 end
  end
  for _, name in ipairs(check.sorted_keys(counts)) do
    local last, least, is_same = {}, {}, true
    for i, run in ipairs(runs) do
      local metric = run.metrics[name]
      last[i] = metric and ("%.6g"):format(metric.last) or "-"
      least[i] = metric and ("%.6g at %d"):format(metric.least, metric.least_step) or "-"
      is_same = is_same and last[i] == last[1] and least[i] == least[1]
    end
    if not is_same and (counts[name] == #runs or options.all) then
      rows[#rows + 1] = with(name, last)
      if name:find "loss" then rows[#rows + 1] = with(name .. ", least", least) end
    end
  end
  return rows
end

local function write_plot(runs, names)
  local series = {}
  for i, run in ipairs(runs) do
    local metric = run.metrics[options.metric]
    if not metric then
      fail("the run '%s' has no metric '%s'%s", run.path, options.metric,
        zt.suggest(options.metric, check.sorted_keys(run.metrics)))
    end
    series[i] = {name = names[i], points = metric.points}
  end
  zt.write_file(options.picture, zt.plot.lines{title = options.metric, x = "step", y = options.metric, series = series})
  print("wrote " .. options.picture)
end

local function compare()
  if options.picture then picture.check(options.picture) end
  local runs, names = {}, records.names(options.runs)
  for i, path in ipairs(options.runs) do runs[i] = records.read(path) end
  local rows = {with("", names), with("steps", {})}
  for i, run in ipairs(runs) do rows[2][i + 1] = run.steps end
  for _, part in ipairs{(records.options_of(runs)), values(runs)} do
    for _, row in ipairs(part) do rows[#rows + 1] = row end
  end
  print(zt.text.columns(rows))
  if options.picture then write_plot(runs, names) end
end

command("compare", compare)
