--- Records the trace of a run: one file for all ranks, in the format of chrome://tracing and Perfetto (ui.perfetto.dev).
--
-- While the run goes on, each rank appends its events to a file of its own, its part. A part has one event per line with a comma
-- after it, so that a line that a killed rank has begun is known by its end. The run joins the parts to trace.json; for a run
-- that was killed, `ztoolkit trace RUN` does so. A start of a run is {started =, ranks =}, as options.json has them. The names of
-- parts hold the time of the start, so that those of an earlier start are never taken for new ones.

local core = require "zt.core"
local fail = require "zt.fail"
local fs = require "zt.fs"
local methods = require "zt.methods"

local MOST_BYTES = 24 * 2 ^ 20 -- of a part, about 200,000 events: what a viewer can show. Later events are not recorded

local trace = {}

-- By kind of action: the part of a step that its time counts to. Recomputing counts to the backward, as in DeepSpeed's times.
local PART_OF = {
  F = "forward", B = "backward", I = "backward", W = "backward", R = "backward", NORM = "step", STEP = "step",
  COUNT = "communication", REDUCE_GRAD = "communication", REPLICATE_GRAD = "communication", REDUCE_TIE = "communication",
  UNSHARD = "communication", RESHARD = "communication", SEND = "communication", RECV = "communication",
  SEND_GRAD = "communication", RECV_GRAD = "communication", wait = "communication", FETCH = "movement", EVICT = "movement",
  FETCH_VALUE = "movement", EVICT_VALUE = "movement",
}

local LAYERS = {forward = true, backward = true}

--- Returns whether an event of a trace is a layer's exchange of tensors with other ranks, such as the dispatch of tokens to
--- experts: F or B of a layer that does not compute.
function trace.is_exchange(event)
  return event.cat == "communication" and LAYERS[PART_OF[event.name:match "^%S+"]] or false
end

--- Returns the part of a step to which an event counts: "forward", "backward", "communication", "movement" (of data between
--- memories), "step", or "other" for kinds of actions that a script has made.
function trace.part_of(event)
  if trace.is_exchange(event) then return "communication" end
  local kind, waited_for = event.name:match "^(%S+)%s*(%S*)"
  if kind == "wait" and PART_OF[waited_for] == "movement" then kind = waited_for end
  return PART_OF[kind] or "other"
end

local function path_of(folder, start, rank)
  return ("%s/trace.%s.%d.part"):format(folder, (start.started:gsub("[^%w]", "")), rank)
end

local Recorder = {__name = "Recorder"}

--- Notes that the values of step `step` are logged: the steps of the trace get their numbers from these events.
function Recorder:mark(step)
  if self.is_over then return end
  self.marks[#self.marks + 1] = ('{"name":"step %d","cat":"run","ph":"i","s":"p","pid":%d,"tid":0,"ts":%.3f,"args":{"step":%d}}')
    :format(step, core.world.rank, 1e6 * core.now(), step)
end

-- Takes the events since the last call from the trainer. The first event of each text names the rank: it is kept once.
function Recorder:take()
  local events = self.trainer:trace_events()
  self.trainer:trace_start()
  local first, rest = events:match "^([^\n]*),\n(.*)$"
  first, rest = first or events, rest or ""
  if first == self.first then return rest end
  self.first = first
  return events
end

--- Appends the events since the last call to this rank's part. The part ends if it has MOST_BYTES, or if this rank does not see
-- the run's folder, because it uses another file system.
function Recorder:write()
  if self.is_over then return end
  if not self.file then
    self.is_over = not core.exists(self.folder)
    if self.is_over then return end
    local path = path_of(self.folder, self.start, core.world.rank)
    fs.remove(path)
    self.file = fs.append(path)
  end
  local lines, events = self.marks, self:take()
  self.marks = {}
  if events ~= "" then table.insert(lines, 1, events) end
  if #lines > 0 then self.file:write(table.concat(lines, ",\n") .. ",\n") end
  self.is_over = self.file.size >= MOST_BYTES
end

--- Writes the last events, and closes the part.
function Recorder:close()
  self:write()
  self.is_over = true
  if self.file then self.file:close() end
end

methods(Recorder, "recorder", {"first", "file"})

--- Starts to record the actions of the trainer for this start of the run in `folder`.
function trace.record(trainer, folder, start)
  trainer:trace_start()
  return setmetatable({trainer = trainer, folder = folder, start = start, marks = {}, is_over = false}, Recorder)
end

-- Returns the whole lines of a part; nil if there is no such file.
local function events_of(path)
  if not core.exists(path) then return nil end
  local content = fs.read(path)
  local last = content:match ".*(),\n"
  return last and content:sub(1, last - 1) or ""
end

-- Writes the parts to the file, and returns the list of ranks without one. Holds one part at a time.
local function write_parts(file, folder, start)
  local missing, separator = {}, ""
  local is_written, why = file:write '{"traceEvents":['
  for rank = 0, start.ranks - 1 do
    local events = events_of(path_of(folder, start, rank))
    if not events then missing[#missing + 1] = rank end
    if is_written and events and events ~= "" then
      is_written, why = file:write(separator, events)
      separator = ",\n"
    end
  end
  if is_written then is_written, why = file:write "]}\n" end
  return is_written and missing, why
end

--- Joins the parts of a start to `folder`/trace.json: a reader finds the earlier file or the new one. `by`: who joins, "run" or
-- "command", which may do so at the same time. Returns the list of ranks without a part.
function trace.join(folder, start, by)
  local path = ("%s/trace.json"):format(folder)
  local new = ("%s.%s.new"):format(path, by)
  local file, why = io.open(new, "wb")
  if not file then fail("cannot write %s", why) end
  local is_read, missing, cause = pcall(write_parts, file, folder, start)
  local is_closed, reason = file:close()
  if not is_read or not missing or not is_closed then
    fs.remove(new)
    if not is_read then error(missing, 0) end
    fail("cannot write '%s': %s", path, cause or reason)
  end
  local is_renamed, failure = os.rename(new, path)
  if not is_renamed then fail("cannot write %s", failure) end
  return missing
end

-- Returns the sizes of all parts as text.
local function sizes_of(folder, start)
  local sizes = {}
  for rank = 0, start.ranks - 1 do
    local file = io.open(path_of(folder, start, rank), "rb")
    sizes[rank + 1] = file and file:seek "end" or -1
    if file then file:close() end
  end
  return table.concat(sizes, " ")
end

--- Joins the parts on a rank that ends, after it has written its own. The ranks of a run that fails end one by one without
--- waiting for each other: the last one must find all parts, and none may replace its file with an older one.
function trace.join_last(folder, start)
  if not core.exists(folder) then return end
  local sizes
  repeat
    sizes = sizes_of(folder, start)
    trace.join(folder, start, "rank" .. core.world.rank)
  until sizes_of(folder, start) == sizes
end

--- Removes the parts of a start.
function trace.remove_parts(folder, start)
  for rank = 0, start.ranks - 1 do fs.remove(path_of(folder, start, rank)) end
end

--- Returns whether the start has left parts: the run goes on, or has ended without run:finish().
function trace.has_parts(folder, start)
  for rank = 0, start.ranks - 1 do
    if core.exists(path_of(folder, start, rank)) then return true end
  end
  return false
end

--- Joins the parts that a start has left, for others than the run. Returns the list of ranks without a part; nil if there is
-- nothing to join; nil and the reason if trace.json cannot be written.
function trace.join_left(folder, start)
  if not (start.started and start.ranks and trace.has_parts(folder, start)) then return nil end
  local is_joined, result = pcall(trace.join, folder, start, "command")
  if is_joined then return result end
  return nil, result
end

return trace
