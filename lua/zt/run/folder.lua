--- The folder of a run, on rank 0: opening it, and its first files. A run that continues an earlier one changes nothing in the
-- folder before `record`: until then a check may still refuse the options or the checkpoint.

local core = require "zt.core"
local fail = require "zt.fail"
local fs = require "zt.fs"
local log = require "zt.log"
local script = require "zt.run.script"
local tensorboard = require "zt.run.formats.tensorboard"
local trace = require "zt.run.trace"

local MOST_RANKS = 2 ^ 24 -- of a run
local FILES = {"metrics.jsonl", "loss.svg", "expert_load.svg", "trace.json", "script.lua", "options.json", "summary.json",
               "report.html"}

local folder = {}

local function command_line()
  local words = {}
  for word in fs.read("/proc/self/cmdline"):gmatch("([^%z]*)%z") do words[#words + 1] = word end
  return words
end

-- `begun`: when the first start of the run was.
local function options_text(options, start, begun)
  return core.json.encode{
    name = options.name,
    options = options.options,
    show = options.show,
    command = command_line(),
    versions = core.versions(),
    ranks = start.ranks,
    launch = core.world.launch,
    mesh = options.mesh and tostring(options.mesh):match("mesh (.-) %("),
    started = start.started,
    begun = begun,
  } .. "\n"
end

--- Returns the content of the folder's options.json, which the latest start of the run has written; nil if there is none. Fails
--- if it is damaged.
function folder.start(path)
  local file = path .. "/options.json"
  if not core.exists(file) then return nil end
  local is_whole, start = pcall(core.json.decode, fs.read(file))
  if not is_whole or type(start) ~= "table" then fail("'%s' is damaged: it holds no JSON", file) end
  local ranks = start.ranks
  if ranks ~= nil and not (type(ranks) == "number" and ranks >= 1 and ranks <= MOST_RANKS and ranks % 1 == 0) then
    fail("'%s' is damaged: ranks = %s is no number of ranks", file, core.json.encode(ranks))
  end
  return start
end

-- Removes the parts of the trace that the start has left, if there was one.
local function remove_parts(path, start)
  if start and start.started and start.ranks then trace.remove_parts(path, start) end
end

-- Warns about the options of a resumed run that differ from those of its earlier start, the content of its options.json.
local function note_changes(path, start, options)
  if not start then return end
  local before, now, changed = start.options or {}, options.options, {}
  for key in pairs(now) do
    if core.json.encode{now[key]} ~= core.json.encode{before[key]} then
      changed[#changed + 1] = ("%s = %s (was %s)"):format(key, tostring(now[key]), tostring(before[key]))
    end
  end
  table.sort(changed)
  if #changed > 0 then log.warn("the run in '%s' continues with changed options: %s", path, table.concat(changed, ", ")) end
end

--- Returns the time, as options.json has it.
function folder.time() return os.date "!%Y-%m-%dT%H:%M:%SZ" end

--- Returns how to give an option of zt.run: by the script's own option of that name, if it has one, else in its call of zt.run.
function folder.by(name, assignment)
  return (" (%s)"):format(script.flags[name] or "zt.run{" .. assignment .. "}")
end

--- Removes from the folder's metrics.jsonl damaged lines, with a warning, and those of step `step` and later steps. Calls
--- `keep(values)` for each line that stays. Returns the file's path.
function folder.cut(path, step, keep)
  local file, kept, damaged = path .. "/metrics.jsonl", {}, 0
  for one in folder.lines(path) do
    local values = folder.values_of(one)
    if not values then
      damaged = damaged + 1
    elseif values.step < step then
      kept[#kept + 1] = one .. "\n"
      keep(values)
    end
  end
  if damaged > 0 then log.warn("%s: removed %d damaged lines", file, damaged) end
  core.write_file(file, table.concat(kept))
  return file
end

--- Makes the folder, or takes that of an earlier run. Removes the earlier run's files with overwrite. Returns the folder's lock,
-- and whether the folder holds no run. run:finish() releases the lock. The system releases the lock of a process that dies
-- (ckpt/folder/run_lock.h).
function folder.open(path, options)
  if options.folder:find "%z" then fail "zt.run.folder has a NUL character, which would end the name: leave it out" end
  core.mkdir_p(options.folder)
  local is_new = fs.make_folder(path)
  if not is_new and not options.resume and not options.overwrite then
    fail("the folder '%s' of an earlier run exists: choose another name%s, or replace that run%s", path,
         folder.by("name", "name"), folder.by("overwrite", "overwrite = true"))
  end
  local held = require("zt.ckpt").lock_run(path)
  if is_new or options.resume then return held, is_new end
  local is_done, message = pcall(function()
    remove_parts(path, folder.start(path))
    for _, name in ipairs(FILES) do fs.remove(path .. "/" .. name) end
    tensorboard.remove(path .. "/tensorboard")
    require("zt.ckpt").remove_all(path)
  end)
  if is_done then return held, true end
  held:release()
  error(message, 0)
end

--- Iterates over the lines of the folder's metrics.jsonl, without an incomplete last line that a killed run has left.
function folder.lines(path) return fs.read(path .. "/metrics.jsonl"):gmatch "([^\n]+)\n" end

--- Returns the values of a line of metrics.jsonl, or nil for a damaged one.
function folder.values_of(line)
  local is_whole, values = pcall(core.json.decode, line)
  return is_whole and type(values) == "table" and type(values.step) == "number" and values or nil
end

--- Iterates over the values of the lines that are whole.
function folder.records(path)
  local next_line = folder.lines(path)
  return function()
    for line in next_line do
      local values = folder.values_of(line)
      if values then return values end
    end
  end
end

--- Returns the step of the last line of the folder's metrics.jsonl; nil if there is none.
function folder.last_step(path)
  if not core.exists(path .. "/metrics.jsonl") then return nil end
  local lines = {}
  for line in folder.lines(path) do lines[#lines + 1] = line end
  for place = #lines, 1, -1 do
    local values = folder.values_of(lines[place])
    if values then return values.step end
  end
  return nil
end

-- Removes a last line that a killed run has not finished: the next line would be appended to it.
local function cut_unfinished(path)
  if not core.exists(path) then return end
  local content = fs.read(path)
  if content == "" or content:sub(-1) == "\n" then return end
  log.warn("%s: removed an unfinished last line", path)
  core.write_file(path, content:match "^(.*\n)" or "")
end

--- Writes the script and the options of this start, and says which options of an earlier start have changed. `start` is this
-- start: {started = time, ranks =}. Returns the open file of the metrics.
function folder.record(path, options, start)
  local earlier = folder.start(path)
  note_changes(path, earlier, options)
  remove_parts(path, earlier)
  if script.text then core.write_file(path .. "/script.lua", script.text) end
  local begun = earlier and (earlier.begun or earlier.started) or start.started
  core.write_file(path .. "/options.json", options_text(options, start, begun))
  cut_unfinished(path .. "/metrics.jsonl")
  return fs.append(path .. "/metrics.jsonl")
end

return folder
