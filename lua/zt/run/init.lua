--- zt.run: the folder and the record of one run.
--
--   local run = zt.run{name = "gpt", mesh = mesh, trainer = trainer, options = options, steps = 1000}
--   for step, batch in text:steps(1000) do
--     run:log(step, trainer:step(batch))
--   end
--   run:finish()
--
-- With resume = true the run continues an earlier run of that name (ckpt.resume), or is a first run if there is none. It changes
-- the earlier run's files when ckpt.resume has loaded the checkpoint, or at its first log, save or finish: a start that is
-- refused before leaves them as they were. Without ckpt.resume it may log only what follows the earlier run's last line.
--
-- The folder runs/gpt/ holds script.lua and options.json (the exact script, options, versions, command line), metrics.jsonl (one
-- JSON object per call of `log`), loss.svg, expert_load.svg if the model has experts, and trace.json. With tensorboard = true
-- the folder tensorboard/ has the numbers as event files. `log` keeps all of them up to date: the metrics at once, the plots and
-- the trace about once per second, and when the script fails. So a run that fails or is killed leaves them. Of one that is
-- killed, `ztoolkit plot` adds the steps of its last second, which the trace lacks. The process holds the folder's lock from
-- zt.run to run:finish() or the end of the script: meanwhile a second run of that name is an error.

local check = require "zt.check"
local core = require "zt.core"
local new_curves = require "zt.run.curves"
local fail = require "zt.fail"
local folder = require "zt.run.folder"
local fs = require "zt.fs"
local hooks = require "zt.run.hooks"
local line = require "zt.run.line"
local log = require "zt.log"
local methods = require "zt.methods"
local on_rank_zero = require "zt.on_rank_zero"
local progress = require "zt.run.progress"
local scalars_of = require "zt.run.formats.scalars"
local summary = require "zt.run.report.summary"
local tensorboard = require "zt.run.formats.tensorboard"
local terminal = require "zt.run.terminal"
local trace = require "zt.run.trace"

local SCHEMA = {
  {"name", "string", "the run's folder under `folder`", required = true},
  {"folder", "string", "the parent folder of all runs", default = "runs"},
  {"overwrite", "boolean", "remove the files of an earlier run of that name, its checkpoints too", default = false},
  {"resume", "boolean", "continue in the folder of an earlier run of that name, if there is one", default = false},
  {"options", "table", "the script's options, written to options.json", default = {}},
  {"steps", "integer", "total number of steps, to estimate the time left", at_least = 1},
  {"mesh", "Mesh", "the ranks of the run; all ranks when absent"},
  {"trainer", "Trainer", "the trainer whose trace is written"},
  {"data", "any", "the data stream, kept as run.data"},
  {"tokenizer", "any", "what the run's checkpoints keep of a tokenizer, with its chat template and end tokens: those of "
    .. "ckpt.pretrained(...), or of a folder. Without it they keep the tokenizer of `data`"},
  {"trace", "boolean", "record the times of all actions", default = true},
  {"tensorboard", "boolean", "write the numbers of run:log also as TensorBoard's event files", default = false},
  {"every", "number", "seconds between two progress lines without a terminal", default = 10, above = 0},
  {"show", "list", "keys of the logged values to show besides loss, validation_loss and tokens_per_second", default = {}},
}

local REFRESH_SECONDS, REFRESH_SHARE = 1, 0.01 -- between two refreshes of the plots; the part of the time that they may take
-- Returns when work may be done again that began at `begin` and has just ended.
local function next_time(begin)
  local ended = core.now()
  return ended + math.max(REFRESH_SECONDS, (ended - begin) / REFRESH_SHARE)
end

local Run = {__name = "Run"}
local open_runs = setmetatable({}, {__mode = "k"}) -- those that a failing script leaves open

local function check_name(name)
  if name == "" or name == "." or name == ".." or name:find "[/%z]" then
    fail("zt.run.name must be the name of a folder, got '%s': letters, digits, '-', '_' and '.' make a good one", name)
  end
end

local function check_show(show)
  check.items("zt.run.show", "string", show)
  local is_known = {}
  for _, key in ipairs(show) do
    if key == "" then fail "zt.run.show holds an empty name: give the names of values that run:log gets" end
    if is_known[key] then fail("zt.run.show holds '%s' twice: give each name once", key) end
    is_known[key] = true
  end
end

-- Returns the communicator of the run's ranks; nil for one rank, and in a dry run.
local function ranks_of(mesh)
  if core.world.size == 1 or core.world.dry then return nil end
  mesh = mesh or require("zt.comm").mesh{dp = -1}
  return mesh:world()
end

--- Opens a run. Collective: all ranks pass equal options. Fails on every rank if the folder exists (without resume and
-- overwrite), or if rank 0 cannot make it. With `ztoolkit run --dry` nothing is written.
local function open(value)
  local options = check.options("zt.run", SCHEMA, value)
  check_name(options.name)
  check_show(options.show)
  local tokenizer = options.tokenizer ~= nil
    and require("zt.ckpt.tokenizer_files").record_of(options.tokenizer, "zt.run.tokenizer") or nil
  if options.resume and options.overwrite then fail "zt.run: either resume or overwrite the earlier run, not both" end
  local self = setmetatable({
    name = options.name, path = options.folder .. "/" .. options.name, trainer = options.trainer, data = options.data,
    is_writer = core.world.rank == 0 and not core.world.dry, next_refresh = -math.huge, next_part = -math.huge,
    mesh = options.mesh, steps = options.steps, ranks = ranks_of(options.mesh), options = options.options, given = options,
    tokenizer = tokenizer or false,
    last_step = 0, finishers = {}, hooks = hooks.none(), running_hooks = {}, is_stopping = false,
    curves = new_curves(options.show),
  }, Run)
  local found = on_rank_zero(self.ranks, function()
    self.start = {started = folder.time(), ranks = core.world.size}
    if not self.is_writer then return {start = self.start} end
    local is_empty
    self.lock, is_empty = folder.open(self.path, options)
    local is_done, result = pcall(is_empty and self.begin_record or folder.last_step, is_empty and self or self.path)
    if not is_done then
      self.lock:release()
      error(result, 0)
    end
    return {start = self.start, earlier_step = not is_empty and result or nil}
  end) or {} -- a planned rank that is not 0
  self.start, self.earlier_step = found.start, found.earlier_step
  if not core.world.dry then core.set_run_folder(self.path) end
  if self.is_writer then
    self.progress = progress.new{
      name = options.name, total = options.steps, is_terminal = terminal.is_watched(), every = options.every,
      show = options.show, out = io.stdout, now = core.now,
    }
  end
  if options.trace and options.trainer and not core.world.dry then
    self.recorder = trace.record(self.trainer, self.path, self.start)
  end
  open_runs[self] = true
  return self
end

-- Writes this start's script and options, and opens the metrics. Called by rank 0, before the first change of a run's files.
function Run:begin_record()
  if self.metrics then return end
  local is_resumed = self.earlier_step ~= nil
  if self.given.tensorboard then self.events = tensorboard.open(self.path .. "/tensorboard") end
  self.metrics = folder.record(self.path, self.given, self.start)
  if is_resumed then self.curves:read(folder.records(self.path)) end
  summary.begin(self)
end

function Run:expect_open(call)
  if self.is_finished then fail("run:%s comes after run:finish(), which has closed the run '%s'", call, self.name) end
end

-- Fails, on every rank, unless run:log may write values for `step`.
function Run:check_step(step)
  if type(step) ~= "number" or step % 1 ~= 0 or step < 0 then
    local got = type(step) == "number" and ("%g"):format(step) or check.type_name(step)
    fail("run:log(step, values): the step is an integer from 0 on, got %s", got)
  end
  if self.earlier_step and step < self.earlier_step then
    fail("run:log: step %d is before step %d, which the earlier run in '%s' has reached: continue that run from its checkpoint "
      .. "by ckpt.resume(run) after zt.run, or choose a new folder%s", step, self.earlier_step, self.path,
         folder.by("name", "name"))
  end
  if step < self.last_step then
    fail("run:log: step %d is before step %d, which the run has reached: log steps in ascending order, or go back by "
      .. "run:rewind(step) first", step, self.last_step)
  end
  if self.steps and step >= self.steps then
    fail("run:log: step %d is beyond the last one, %d: steps count from 0, and zt.run has steps = %d", step, self.steps - 1,
         self.steps)
  end
end

--- Appends the `values` of step `step` (0-based) to metrics.jsonl as one line, and updates the progress bar. `values` is the
-- result of trainer:step, or any table of plain values with names. `loss`, `validation_loss`, the keys of the option `show` and
-- the experts' load in `stats` are plotted. Only rank 0 writes. JSON has no nan: nan and infinities become null. Fails if the run
-- has finished, if the step is before the last one logged or beyond the end, if a value is not plain, or if the line cannot be
-- written (the disk is full); the earlier lines stay valid. Returns false if a hook has told the run to stop, else true.
function Run:log(step, values)
  self:expect_open "log"
  self:check_step(step)
  local text = line.text(step, values, self.given.show)
  self.last_step = step
  if core.world.dry then return true end
  if self.is_writer then
    self:begin_record()
    self.metrics:write(text)
    if self.events then self.events:add(step, scalars_of(values)) end
    self.curves:add(step, values)
    self.progress:update(step + 1, values)
  end
  if self.recorder then self.recorder:mark(step) end
  self:refresh()
  hooks.call(self, "step", step, values)
  if values.validation_loss then hooks.call(self, "evaluate", step, values) end
  return not self.is_stopping
end

Run.on = hooks.add

-- Writes the plots and the whole trace, on the writer.
function Run:write_pictures()
  if not self.is_writer then return end
  self.curves:write(self.path, self.name)
  if self.recorder then trace.join(self.path, self.start, "run") end
end

-- Brings the files up to date, so that a run that is killed leaves them: at most once per second, and in at most a hundredth of
-- the time. A rank's own part of the trace, of which only the end is written, does not wait for the plots and the whole trace.
function Run:refresh()
  local begin = core.now()
  local is_due = begin >= self.next_refresh
  if self.recorder and (is_due or begin >= self.next_part) then
    self.recorder:write()
    self.next_part = next_time(begin)
  end
  if not is_due then return end
  self:write_pictures()
  self.next_refresh = next_time(begin)
end

--- Removes the records of step `step` and later steps, which the resumed run repeats. Collective.
function Run:rewind(step)
  self:expect_open "rewind"
  check.argument("run:rewind", "the step", "integer", step)
  self.last_step, self.earlier_step = step, nil
  on_rank_zero(self.ranks, function()
    if not self.is_writer then return end
    self:begin_record()
    self.curves = new_curves(self.given.show)
    self.progress:forget()
    self.metrics:close()
    local path = folder.cut(self.path, step, function(values) self.curves:add(values.step, values) end)
    self.metrics = fs.append(path)
    if self.events then self.events:restart(step) end
  end)
end

--- Fails, on every rank, if another run has taken over the folder. Called before a save. Collective.
function Run:check_lock()
  self:expect_open "check_lock"
  on_rank_zero(self.ranks, function()
    if not self.is_writer then return end
    self.lock:check()
    self:begin_record()
  end)
end

--- Registers `action`, which run:finish() calls on every rank before it closes the files. `action` may be collective.
function Run:before_finish(action)
  self:expect_open "before_finish"
  check.argument("run:before_finish", "the action", "function", action)
  self.finishers[#self.finishers + 1] = action
end

-- Warns about the keys of the option `show` that no step had.
function Run:note_missing()
  local missing = self.curves:missing(self.given.show)
  if #missing == 0 then return end
  log.warn("zt.run{show}: no step of the run '%s' had a number named '%s': name the values as run:log gets them, and one in a "
    .. "table as in 'stats.NAME'", self.name, table.concat(missing, "', '"))
end

--- Calls the actions of before_finish, writes the plots and trace.json, closes the files. Collective. The ranks must share one
-- file system to join their traces. If an action fails (such as a save in the background), raises its error at the end.
function Run:finish()
  self:expect_open "finish"
  self.is_finished, open_runs[self] = true, nil
  if core.world.dry then return end
  local problem
  for _, action in ipairs(self.finishers) do
    local is_done, message = pcall(action)
    if not is_done then problem = problem or message end
  end
  if self.recorder then self.recorder:close() end
  if self.ranks then self.ranks:barrier() end
  on_rank_zero(self.ranks, function()
    self:begin_record()
    self.progress:close()
    self.metrics:close()
    if self.events then self.events:close() end
    self.curves:write(self.path, self.name)
    self:note_missing()
    if not self.recorder then return end
    local missing = trace.join(self.path, self.start, "run")
    if #missing > 0 then
      log.warn("%s/trace.json lacks the ranks %s: they use another file system", self.path, table.concat(missing, ", "))
    end
    trace.remove_parts(self.path, self.start)
  end)
  summary.finish(self)
  if self.lock then self.lock:release() end
  if problem then error(problem, 0) end
end

methods(Run, "run", {
  "trainer", "data", "mesh", "steps", "ranks", "lock", "metrics", "events", "progress", "is_finished", "earlier_step", "start",
  "recorder",
})

core.set_hook("script_failed", function()
  for run in pairs(open_runs) do
    if run.metrics or not run.is_writer then
      pcall(function()
        if run.recorder then run.recorder:write() end
        if run.is_writer then run.curves:write(run.path, run.name) end
        if run.recorder then trace.join_last(run.path, run.start) end
      end)
    end
  end
end)

return open
