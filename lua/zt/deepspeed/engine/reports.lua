--- Reports of an engine through zt.log on rank 0: progress, times, memory and settings.

local core = require "zt.core"
local log = require "zt.log"
local memory_text = require "zt.memory"
local text = require "zt.text"
local trace = require "zt.run.trace"

local reports = {}

local PARTS = {"forward", "backward", "communication", "step", "other"}

--- Returns the milliseconds of this rank's thread by part, from the events of a trace: {forward =, backward =, ..., all =}. `all`
-- is the time from the start of the first event to the end of the last.
function reports.times(events)
  local out, first, last = {}, math.huge, 0
  for _, part in ipairs(PARTS) do out[part] = 0 end
  for _, event in ipairs(core.json.decode("[" .. events .. "]")) do
    if event.tid == 0 and event.dur then
      local part = trace.part_of(event)
      out[part] = out[part] + event.dur / 1000
      first, last = math.min(first, event.ts), math.max(last, event.ts + event.dur)
    end
  end
  out.all = (last - first) / 1000
  return out
end

local function print_times(engine)
  local times, words = reports.times(engine.trainer:trace_events()), {}
  for _, part in ipairs(PARTS) do
    if part ~= "other" or times[part] > 0 then words[#words + 1] = ("%s %.2f"):format(part, times[part]) end
  end
  log.info("step %d: %s; %.2f ms in all", engine.global_steps, table.concat(words, ", "), times.all)
end

local function print_progress(engine)
  local now, pace = core.now(), engine.pace
  log.info("step %d, skipped %d, loss %.5g, lr %.6g, loss scale %g, %s samples/s", engine.global_steps, engine.skipped_steps,
           engine.result.loss, engine.result.lr, engine:loss_scale(),
           text.count((engine.global_samples - pace.samples) / (now - pace.since)))
  engine.pace = {samples = engine.global_samples, since = now}
end

local function print_memory(engine)
  log.info("memory at step %d\n%s", engine.global_steps, memory_text(engine.trainer, engine.mesh:world()))
end

--- Starts the clocks of a step. Called before its first micro-batch.
function reports.begin_step(engine)
  engine.pace = engine.pace or {samples = engine.global_samples, since = core.now()}
  if engine.config.reports.wall_clock_breakdown then engine.trainer:trace_start() end
end

--- Writes the reports that are due. Called after a step. With memory_breakdown, which reports after the first step and with every
-- progress line, the call is collective.
function reports.end_step(engine)
  local wanted = engine.config.reports
  if wanted.wall_clock_breakdown then print_times(engine) end
  local is_due = wanted.steps_per_print and engine.global_steps % wanted.steps_per_print == 0
  if is_due then print_progress(engine) end
  if wanted.memory_breakdown and (is_due or engine.global_steps == 1) then print_memory(engine) end
end

-- Returns a value of the configuration as text.
local function settings(value)
  if type(value) == "function" then return "a function" end
  if type(value) ~= "table" then return tostring(value) end
  local words = {}
  for _, item in ipairs(value) do words[#words + 1] = settings(item) end
  local keys = {}
  for key in pairs(value) do
    if type(key) == "string" then keys[#keys + 1] = key end
  end
  table.sort(keys)
  for _, key in ipairs(keys) do words[#words + 1] = key .. " = " .. settings(value[key]) end
  return "{" .. table.concat(words, ", ") .. "}"
end

--- Returns the configuration as ds.read understood it, as text: its parts, then every given key with its fate and reason.
function reports.dump(engine)
  local lines, keys = {}, {}
  for key in pairs(engine.config) do
    if key ~= "notes" and key ~= "notices" then keys[#keys + 1] = key end
  end
  table.sort(keys)
  for _, key in ipairs(keys) do lines[#lines + 1] = ("  %s = %s"):format(key, settings(engine.config[key])) end
  for _, note in ipairs(engine.config.notes) do
    lines[#lines + 1] = ("  %s (%s): %s"):format(note.key, note.fate:gsub("_", " "), note.reason)
  end
  return "the engine's settings, on " .. tostring(engine.mesh) .. "\n" .. table.concat(lines, "\n")
end

return reports
