--- The head of a report: what the runs are, how far they are, and their most important numbers.

local core = require "zt.core"
local folder = require "zt.run.folder"
local html = require "zt.run.report.html"
local text = require "zt.text"

local overview = {}

-- Returns the whole seconds since the last line of metrics; nil if there is none.
local function age_of_metrics(run)
  local facts = core.file_facts(run.path .. "/metrics.jsonl")
  return facts and math.floor(facts.age)
end

local function seconds_of(time)
  local year, month, day, hour, minute, second = tostring(time):match "^(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)Z$"
  return year and os.time{year = year, month = month, day = day, hour = hour, min = minute, sec = second, isdst = false}
end

-- Returns how long this start of the run took: up to its end, or up to its last line.
local function duration_of(run)
  local begin, stop = seconds_of(run.record.started), nil
  if not begin then return "-" end
  local now = seconds_of(folder.time())
  if run.status.state == "ended" then stop = seconds_of(run.summary.finished) end
  if run.status.state == "running" then stop = now end
  local age = age_of_metrics(run)
  stop = stop or age and now - age
  return stop and text.duration(math.max(0, stop - begin)) or "-"
end

local function number(value) return ("%.6g"):format(value) end

local function last(run, name)
  local series = run.metrics[name]
  return series and series.last and number(series.last) or nil
end

local function least(run, name)
  local series = run.metrics[name]
  return series and series.least and number(series.least) .. " at step " .. series.least_step or nil
end

-- Returns the tokens of all steps divided by their seconds.
local function throughput(run)
  local tokens, seconds = run.metrics.tokens, run.metrics.seconds
  return tokens and seconds and seconds.sum > 0 and text.count(tokens.sum / seconds.sum) or nil
end

-- Returns the largest total of a rank, measured.
local function memory(run)
  local most = -1
  for _, kinds in ipairs(run.summary and run.summary.memory or {}) do
    most = math.max(most, (kinds.total or {}).measured or -1)
  end
  return most >= 0 and text.bytes(most) or nil
end

local function steps(run)
  local total = run.summary and run.summary.steps
  return total and ("%d of %d"):format(run.steps, total) or tostring(run.steps)
end

--- Returns the mark of a run's state.
function overview.badge(run)
  local state = run.status.state
  return html.format('<span class="badge %s">%s</span>', state, state == "killed" and "killed or failed" or state)
end

--- Returns the class of a run's color in the charts.
function overview.color(run) return "c" .. (run.number - 1) % 6 end

--- Returns the name of a run beside its color in the charts.
function overview.named(run) return ('<i class="swatch %s"></i>'):format(overview.color(run)) .. html.escape(run.name) end

-- The numbers of a run: {title, function that returns its text, or nil}.
local FACTS = {
  {"steps", steps},
  {"time since the last start", function(run) return run.record.begun ~= run.record.started and duration_of(run) or nil end},
  {"time", function(run) return run.record.begun == run.record.started and duration_of(run) or nil end},
  {"loss", function(run) return last(run, "loss") end},
  {"least loss", function(run) return least(run, "loss") end},
  {"validation loss", function(run) return last(run, "validation_loss") end},
  {"least validation loss", function(run) return least(run, "validation_loss") end},
  {"tokens per second", throughput},
  {"memory per rank", memory},
  {"ranks", function(run) return run.record.ranks end},
}

local function tiles(run)
  local parts = {}
  for _, fact in ipairs(FACTS) do
    local value = fact[2](run)
    if value then
      local main, rest = tostring(value):match "^(%S+)( %l%l .*)$" -- "12 of 40", "1.5 at step 7"
      parts[#parts + 1] = html.format('<div><dt>%s</dt><dd>%s<small>%s</small></dd></div>', fact[1], main or value, rest or "")
    end
  end
  return '<dl class="tiles">' .. table.concat(parts, "\n") .. "</dl>"
end

local function table_of_runs(runs)
  local head, rows = {""}, {{"state"}, {"started"}}
  for index, run in ipairs(runs) do
    head[index + 1] = {html = overview.named(run)}
    rows[1][index + 1], rows[2][index + 1] = {html = overview.badge(run)}, run.record.begun or run.record.started or "-"
  end
  for _, fact in ipairs(FACTS) do
    local row, is_known = {fact[1]}, false
    for index, run in ipairs(runs) do
      local value = fact[2](run)
      row[index + 1], is_known = value or "-", is_known or value ~= nil
    end
    if is_known then rows[#rows + 1] = row end
  end
  return html.table(rows, head, "numbers runs")
end

-- Returns the sentences about a run: its state, and what its records lack.
local function notes_of(run)
  local notes = {run.status.text}
  local age = age_of_metrics(run)
  if run.status.state == "running" and age then
    notes[#notes + 1] = ("Its last line of metrics is %s old."):format(age < 60 and age .. " s" or text.duration(age))
  end
  if run.lines == 0 then notes[#notes + 1] = "It has recorded no metrics yet." end
  if run.damaged > 0 then
    notes[#notes + 1] = ("Damaged lines of metrics.jsonl, which are left out: %d."):format(run.damaged)
  end
  return table.concat(notes, " ")
end

--- Returns the head of the page.
function overview.section(runs)
  local parts = {}
  for index, run in ipairs(runs) do
    local name = #runs > 1 and "<b>" .. overview.named(run) .. "</b> " or ""
    parts[index] = '<p class="state">' .. name .. html.escape(notes_of(run)) .. "</p>"
  end
  return (#runs > 1 and table_of_runs(runs) or tiles(runs[1])) .. table.concat(parts, "\n")
end

return overview
