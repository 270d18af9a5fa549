--- Reads a run's folder for the export to other tools.
--
-- metrics.jsonl has no clock: the time of a line is the start of the run plus the `seconds` of its lines so far.

local fail = require "zt.fail"
local folder = require "zt.run.folder"
local records = require "zt.run.records"
local scalars_of = require "zt.run.formats.scalars"
local status = require "zt.run.report.status"

local DAY = 86400

local recorded = {}

-- Returns the seconds since 1970 of a time such as "2026-01-31T12:00:00Z", or nil for other text. The days are counted as in
-- Howard Hinnant's "chrono-compatible low-level date algorithms": years begin in March, so that leap days are at their end.
local function seconds_of(text)
  local parts = {tostring(text):match "^(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)Z$"}
  if #parts == 0 then return nil end
  for place, part in ipairs(parts) do parts[place] = tonumber(part) end
  local year, month, day, hour, minute, second = unpack(parts)
  if month <= 2 then year = year - 1 end
  local days = 365 * year + math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400)
    + math.floor((153 * ((month + 9) % 12) + 2) / 5) + day - 1 - 719468
  return days * DAY + hour * 3600 + minute * 60 + second
end

--- Returns {path, name, started, began, options, command, state} of the run in the folder `path`: `started` is the time of its
-- first start as text, `began` the same in seconds since 1970, `command` the command line, and `state` that of status.of. Fails
-- if it holds no run.
function recorded.read(path)
  local run = records.open(path)
  local record = run.record
  local started = record.begun or record.started
  local began = seconds_of(started) or fail("'%s/options.json' is damaged: it does not say when the run started", path)
  local name = type(record.name) == "string" and record.name or path:gsub("/+$", ""):match "[^/]+$"
  return {
    path = path, name = name, started = started, began = began, options = run.options,
    command = table.concat(record.command or {}, " "), state = status.of(path, record, records.summary(path)).state,
  }
end

--- Iterates over the lines of a run: {step =, time =, scalars = {{name, value}, ...}}, with times in seconds since 1970.
function recorded.lines(run)
  local next_record, time = folder.records(run.path), run.began
  return function()
    local values = next_record()
    if not values then return nil end
    if type(values.seconds) == "number" then time = time + values.seconds end
    return {step = values.step, time = time, scalars = scalars_of(values)}
  end
end

return recorded
