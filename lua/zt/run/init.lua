--- zt.run: the folder and the record of one run.
--
--   local run = zt.run{name = "gpt", mesh = mesh, trainer = trainer, options = options, steps = 1000}
--   for step, batch in text:steps(1000) do
--     run:log(step, trainer:step(batch))
--   end
--   run:finish()
--
-- With resume = true an earlier run of that name goes on (ckpt.resume); without one, a first run begins. runs/gpt/ then holds
-- script.lua and options.json (the exact script and options, versions, command line), metrics.jsonl (one JSON object a call of
-- `log`), loss.svg and trace.json. A run that fails in between leaves all it had written. One process at a time holds the
-- folder, from zt.run to run:finish() or the end of the script: a second run of that name is an error meanwhile.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local fs = require "zt.fs"
local log = require "zt.log"
local on_rank_zero = require "zt.on_rank_zero"
local plot = require "zt.run.plot"
local progress = require "zt.run.progress"
local script = require "zt.run.script"
local terminal = require "zt.run.terminal"
local trace = require "zt.run.trace"

local SCHEMA = {
  {"name", "string", "the run's folder under `folder`", required = true},
  {"folder", "string", "where runs are kept", default = "runs"},
  {"overwrite", "boolean", "remove what an earlier run of that name has written, its checkpoints too", default = false},
  {"resume", "boolean", "go on with the folder of an earlier run of that name, if there is one", default = false},
  {"options", "table", "what to write into options.json", default = {}},
  {"steps", "integer", "steps in all, for the time left", at_least = 1},
  {"mesh", "any", "the ranks of the run; without it all ranks"},
  {"trainer", "any", "whose trace is written"},
  {"data", "any", "the data stream, kept as run.data"},
  {"trace", "boolean", "record what ran when", default = true},
  {"every", "number", "seconds between two progress lines where there is no terminal", default = 10, above = 0},
}
local FILES = {"metrics.jsonl", "loss.svg", "trace.json", "script.lua", "options.json"}

local Run = {}
Run.__index = Run

local function check_name(name)
  if name == "" or name == "." or name == ".." or name:find("[/%z]") then
    fail("zt.run.name must be the name of a folder, got '%s': letters, digits, '-', '_' and '.' make a good one", name)
  end
end

local function command_line()
  local words = {}
  for word in fs.read("/proc/self/cmdline"):gmatch("([^%z]*)%z") do words[#words + 1] = word end
  return words
end

local function record(options)
  return core.json.encode{
    name = options.name,
    options = options.options,
    command = command_line(),
    versions = core.versions(),
    ranks = core.world.size,
    launch = core.world.launch,
    mesh = options.mesh and tostring(options.mesh):match("mesh (.-) %("),
    started = os.date("!%Y-%m-%dT%H:%M:%SZ"),
  } .. "\n"
end

-- Says which options of a run that goes on are not those that it had so far.
local function note_changes(path, options)
  if not core.exists(path .. "/options.json") then return end
  local before, now, changed = core.json.decode(fs.read(path .. "/options.json")).options or {}, options.options, {}
  for key in pairs(now) do
    if core.json.encode{now[key]} ~= core.json.encode{before[key]} then
      changed[#changed + 1] = ("%s = %s (was %s)"):format(key, tostring(now[key]), tostring(before[key]))
    end
  end
  table.sort(changed)
  if #changed > 0 then log.warn("the run in '%s' goes on with other options: %s", path, table.concat(changed, ", ")) end
end

-- Writes what a run begins with into its folder, which this process holds.
local function fill_folder(path, options, is_new)
  if not is_new and options.resume then note_changes(path, options) end
  if not is_new and options.overwrite then
    for _, name in ipairs(FILES) do fs.remove(path .. "/" .. name) end
    require("zt.ckpt").remove_all(path)
  end
  if script.text then core.write_file(path .. "/script.lua", script.text) end
  core.write_file(path .. "/options.json", record(options))
end

-- Rank 0 makes the folder and holds it; returns the lock.
local function make_folder(path, options)
  if options.folder:find "%z" then fail "zt.run.folder has a NUL character, which the system takes for its end: leave it out" end
  core.mkdir_p(options.folder)
  local is_new = fs.make_folder(path)
  if not is_new and not options.resume and not options.overwrite then
    fail("the folder '%s' of an earlier run exists: choose another name (--name), or replace that run (--overwrite)", path)
  end
  -- A run that ends well removes its lock, and the system ends that of a process that does not (ckpt/save/run_lock.h).
  local held = require("zt.ckpt").lock_run(path)
  local is_done, message = pcall(fill_folder, path, options, is_new)
  if is_done then return held end
  held:release()
  error(message, 0)
end

local function ranks_of(mesh)
  if core.world.size == 1 or core.world.dry then return nil end
  mesh = mesh or require("zt.comm").mesh{dp = -1}
  return mesh:world()
end

--- Opens a run. Collective: called by all ranks alike. Errors, on every rank alike: a folder that exists, or cannot be made. With
-- `ztoolkit run --dry` nothing is written.
local function open(value)
  local options = check.options("zt.run", SCHEMA, value)
  check_name(options.name)
  if options.resume and options.overwrite then fail "zt.run: either resume or overwrite the earlier run, not both" end
  local self = setmetatable({
    name = options.name, path = options.folder .. "/" .. options.name, trainer = options.trainer, data = options.data,
    is_writer = core.world.rank == 0 and not core.world.dry, has_trace = options.trace and options.trainer ~= nil,
    mesh = options.mesh, steps = options.steps, ranks = ranks_of(options.mesh), options = options.options, finishers = {},
    curves = {loss = {}, validation_loss = {}},
  }, Run)
  on_rank_zero(self.ranks, function()
    if not self.is_writer then return end
    self.lock = make_folder(self.path, options)
    self.metrics = fs.append(self.path .. "/metrics.jsonl")
  end)
  if not core.world.dry then core.set_run_folder(self.path) end
  if self.is_writer then
    self.progress = progress.new{
      name = options.name, total = options.steps, is_terminal = terminal.is_watched(), every = options.every,
      out = io.stdout, now = core.now,
    }
  end
  if self.has_trace then self.trainer:trace_start() end
  return self
end

--- Records the numbers of step `step` (0-based): a line of metrics.jsonl, flushed, and the progress bar. `values` is what
-- trainer:step returned, or any table of plain values; `loss` and `validation_loss` are plotted at the end. Only rank 0 writes.
-- JSON has no nan: that and infinities become null. A line that cannot be written (the disk is full) is an error and ends the
-- run: the lines before it stay.
function Run:log(step, values)
  if not self.is_writer then return end
  local line = {step = step}
  for key, value in pairs(values) do line[key] = value end
  self.metrics:write(core.json.encode(line) .. "\n")
  self:plot_point(step, values)
  self.progress:update(step + 1, values)
end

--- Forgets what was recorded of step `step` and later, which is about to be done again. Collective.
function Run:rewind(step)
  on_rank_zero(self.ranks, function()
    if not self.is_writer then return end
    local path, kept, damaged = self.path .. "/metrics.jsonl", {}, 0
    for line in fs.read(path):gmatch "([^\n]+)\n" do -- a run that was killed may have left a part of a line
      local is_whole, values = pcall(core.json.decode, line)
      if not is_whole or type(values) ~= "table" or type(values.step) ~= "number" then
        damaged = damaged + 1
      elseif values.step < step then
        kept[#kept + 1] = line .. "\n"
        self:plot_point(values.step, values)
      end
    end
    if damaged > 0 then log.warn("%s: %d damaged lines are left out", path, damaged) end
    self.metrics:close()
    core.write_file(path, table.concat(kept))
    self.metrics = fs.append(path)
  end)
end

--- An error, on every rank alike, if another run has taken the folder over. Collective.
function Run:check_lock()
  on_rank_zero(self.ranks, function()
    if self.lock then self.lock:check() end
  end)
end

--- Calls `action`, collective, when the run is finished, before its files are closed.
function Run:before_finish(action) self.finishers[#self.finishers + 1] = action end

function Run:plot_point(step, values)
  for key, points in pairs(self.curves) do
    if type(values[key]) == "number" then points[#points + 1] = {step, values[key]} end
  end
end

function Run:write_plot()
  local series = {}
  for _, curve in ipairs {{"loss", "train"}, {"validation_loss", "validation"}} do
    local points = self.curves[curve[1]]
    if #points > 0 then series[#series + 1] = {name = curve[2], points = points} end
  end
  local svg = plot.lines{title = "loss of " .. self.name, x = "step", y = "nats per token", series = series}
  core.write_file(self.path .. "/loss.svg", svg)
end

--- Writes loss.svg and trace.json and closes the files. Collective. The ranks must see one file system to join their traces. An
-- error of what waits for the run's end, as a save in the background, is raised behind that.
function Run:finish()
  if core.world.dry then return end
  local problem
  for _, action in ipairs(self.finishers) do
    local is_done, message = pcall(action)
    if not is_done then problem = problem or message end
  end
  if self.has_trace then trace.write_part(self.path, core.world.rank, self.trainer:trace_events()) end
  if self.ranks then self.ranks:barrier() end
  on_rank_zero(self.ranks, function()
    self.progress:close()
    self.metrics:close()
    self:write_plot()
    if not self.has_trace then return end
    local missing = trace.join(self.path, core.world.size)
    if #missing > 0 then
      log.warn("%s/trace.json lacks the ranks %s: they see another file system", self.path, table.concat(missing, ", "))
    end
  end)
  if self.lock then self.lock:release() end
  if problem then error(problem, 0) end
end

return open
