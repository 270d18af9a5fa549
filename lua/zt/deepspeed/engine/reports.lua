--- Reports of an engine through zt.log on rank 0: progress, times, memory and settings.

local check = require "zt.check"
local core = require "zt.core"
local flops = require "zt.deepspeed.engine.flops"
local fs = require "zt.fs"
local log = require "zt.log"
local memory_text = require "zt.memory"
local monitors = require "zt.deepspeed.engine.monitors"
local new_comms = require "zt.deepspeed.engine.comms"
local on_rank_zero = require "zt.on_rank_zero"
local text = require "zt.text"
local trace = require "zt.run.trace"

local reports = {}

local PARTS = {"forward", "backward", "communication", "movement", "step", "other"}
local SHOWN_IF_ANY = {movement = true, other = true}

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

local function print_times(engine, times)
  local words = {}
  for _, part in ipairs(PARTS) do
    if not SHOWN_IF_ANY[part] or times[part] > 0 then words[#words + 1] = ("%s %.2f"):format(part, times[part]) end
  end
  log.info("step %d: %s; %.2f ms in all", engine.global_steps, table.concat(words, ", "), times.all)
end

local function print_progress(engine)
  local now, pace = core.now(), engine.reporting.pace
  log.info("step %d, skipped %d, loss %.5g, lr %.6g, loss scale %g, %s samples/s", engine.global_steps, engine.skipped_steps,
           engine.result.loss, engine.result.lr, engine:loss_scale(),
           text.count((engine.global_samples - pace.samples) / (now - pace.since)))
  engine.reporting.pace = {samples = engine.global_samples, since = now}
end

local function print_memory(engine)
  log.info("memory at step %d\n%s", engine.global_steps, memory_text(engine.trainer, engine.mesh:world()))
end

-- Writes what DeepSpeed's monitors write after a step, at the count of samples: the loss, the rate of the next step, in fp16 the
-- loss scale, and with wall_clock_breakdown the times, of which backward_allreduce is all communication.
local function write_numbers(engine, times)
  local numbers = {{"Train/Samples/train_loss", engine.result.loss}, {"Train/Samples/lr", engine:get_lr()}}
  if engine.config.precision.name == "fp16" then
    numbers[#numbers + 1] = {"Train/Samples/loss_scale", engine:loss_scale()}
  end
  for _, part in ipairs(times and {
    {"forward", times.forward}, {"backward", times.backward + times.communication}, {"backward_inner", times.backward},
    {"backward_allreduce", times.communication}, {"step", times.step},
  } or {}) do
    numbers[#numbers + 1] = {"Train/Samples/elapsed_time_ms_" .. part[1], part[2]}
  end
  engine.reporting.monitors:add(engine.global_samples, numbers)
end

-- Prints the operations of the step, or writes them to output_file.
local function print_flops(engine, events)
  local wanted, seconds = engine.config.reports.flops_profiler, core.now() - engine.reporting.step_begin
  local is_done, counted = pcall(flops.count, engine.trainer, engine.reporting.batch, events)
  if not is_done then return log.warn("flops_profiler: the operations of this model cannot be counted: %s", counted) end
  local report = flops.text(counted, wanted, wanted.step, seconds)
  if wanted.file then core.write_file(wanted.file, report) else io.write(report) end
end

-- Adds the step to the statistics of communication. The bytes are those of the first step.
local function count_communication(engine, events)
  local state = engine.reporting
  local step = state.comms:add(events)
  if engine.config.reports.comms_logger.verbose then log.info("step %d: %s", engine.global_steps, state.comms.line(step)) end
  if state.sent then return end
  local is_done, plan = pcall(engine.trainer.plan, engine.trainer, state.batch)
  state.sent = is_done and plan[1].sent or {}
  if not is_done then log.warn("comms_logger: the bytes that this model sends are not known: %s", plan) end
end

--- Opens the files that the reports need, on rank 0. Collective.
function reports.open(engine)
  local wanted, state = engine.config.reports, {}
  engine.reporting = state
  if core.world.dry then return end
  if core.world.rank == 0 and wanted.comms_logger then state.comms = new_comms() end
  local file = wanted.flops_profiler and wanted.flops_profiler.file
  if not (wanted.csv_monitor or wanted.tensorboard or file) then return end
  on_rank_zero(engine.mesh:world(), function()
    state.monitors = monitors.open(wanted)
    if file and file:find "/" then core.mkdir_p(file:match "^(.*)/") end
    if file then fs.append(file):close() end -- a file that cannot be written is an error now, not at the step
  end)
end

-- Returns a batch with `copies` times the samples. A batch that the trainer will refuse is returned as it is.
local function repeated(batch, copies)
  if copies == 1 or type(batch) ~= "table" then return batch end
  local out = {}
  for name, field in pairs(batch) do
    if not check.is("tensor", field) then return batch end
    local parts = {}
    for index = 1, copies do parts[index] = field end
    out[name] = core.cat(parts, 0)
  end
  return out
end

--- Starts the clocks of a step. Called before its first micro-batch. `copies` times `batch` has the shapes of this rank's batch
-- of the step.
function reports.begin_step(engine, batch, copies)
  local wanted, state = engine.config.reports, engine.reporting
  state.pace = state.pace or {samples = engine.global_samples, since = core.now()}
  state.step_begin = core.now()
  local profiler = wanted.flops_profiler
  state.is_profiled = profiler and core.world.rank == 0 and engine.global_steps == profiler.step
  if state.is_profiled or state.comms and not state.sent then state.batch = repeated(batch, copies) end
  state.is_traced = wanted.wall_clock_breakdown or state.comms ~= nil or state.is_profiled
  if state.is_traced then engine.trainer:trace_start() end
end

--- Writes the reports that are due. Called after a step. With memory_breakdown, which reports after the first step and with every
-- progress line, the call is collective.
function reports.end_step(engine)
  local wanted, state = engine.config.reports, engine.reporting
  local events = state.is_traced and engine.trainer:trace_events()
  local times = wanted.wall_clock_breakdown and reports.times(events)
  if times then print_times(engine, times) end
  if state.is_profiled then print_flops(engine, events) end
  if state.comms then count_communication(engine, events) end
  if state.monitors then write_numbers(engine, times) end
  state.batch = nil
  local is_due = wanted.steps_per_print and engine.global_steps % wanted.steps_per_print == 0
  if is_due then print_progress(engine) end
  if is_due and state.comms then reports.print_communication(engine) end
  if wanted.memory_breakdown and (is_due or engine.global_steps == 1) then print_memory(engine) end
end

--- Logs the statistics of communication since the engine's begin. Does nothing on other ranks than 0.
function reports.print_communication(engine)
  local state = engine.reporting
  if state.comms then log.info("%s", state.comms:text(state.sent or {})) end
end

--- Writes the loss of an evaluation to the monitors.
function reports.evaluated(engine, loss)
  local open = engine.reporting.monitors
  if open then open:add(engine.global_samples, {{"Train/Samples/eval_loss", loss}}) end
end

--- Tells the monitors that a checkpoint was loaded.
function reports.loaded(engine)
  if engine.reporting.monitors then engine.reporting.monitors:restart(engine.global_samples) end
end

-- Returns a value of the configuration as text.
local function settings(value)
  if type(value) == "function" then return "a function" end
  if type(value) ~= "table" then return tostring(value) end
  local words = {}
  for _, item in ipairs(value) do words[#words + 1] = settings(item) end
  for _, key in ipairs(check.sorted_keys(value)) do -- with the numbers of the items, as strings
    if value[key] ~= nil then words[#words + 1] = key .. " = " .. settings(value[key]) end
  end
  return "{" .. table.concat(words, ", ") .. "}"
end

--- Returns the configuration as ds.read understood it, as text: its parts, then every given key with its fate and reason.
function reports.dump(engine)
  local lines = {}
  for _, key in ipairs(check.sorted_keys(engine.config)) do
    if key ~= "notes" and key ~= "notices" then
      lines[#lines + 1] = ("  %s = %s"):format(key, settings(engine.config[key]))
    end
  end
  for _, note in ipairs(engine.config.notes) do
    lines[#lines + 1] = ("  %s (%s): %s"):format(note.key, note.fate:gsub("_", " "), note.reason)
  end
  return "the engine's settings, on " .. tostring(engine.mesh) .. "\n" .. table.concat(lines, "\n")
end

return reports
