--- Reads the steps of a trace file: that of a run (RUN/trace.json), or that of a planned step (ztoolkit plan --trace FILE).

local core = require "zt.core"
local fail = require "zt.fail"
local fs = require "zt.fs"
local trace = require "zt.run.trace"

local steps = {}

local function decoded(path)
  if not core.exists(path) then fail("there is no trace '%s': a run with a trainer writes RUN/trace.json at its end", path) end
  local is_read, content = pcall(core.json.decode, fs.read(path))
  if not is_read or type(content) ~= "table" or type(content.traceEvents) ~= "table" then
    fail("'%s' is not a trace: it must hold JSON with traceEvents, as run:finish() and ztoolkit plan --trace write it", path)
  end
  return content.traceEvents
end

-- Returns the events of each rank in the order of their begin: {rank =, name =, events =}, the ranks ascending.
local function by_rank(events)
  local ranks, list = {}, {}
  for _, event in ipairs(events) do
    local rank = ranks[event.pid]
    if not rank and event.pid then
      rank = {rank = event.pid, name = "rank " .. event.pid, events = {}}
      ranks[event.pid], list[#list + 1] = rank, rank
    end
    if event.ph == "M" and event.name == "process_name" then rank.name = event.args.name end
    if event.ph == "X" then table.insert(rank.events, event) end
  end
  table.sort(list, function(a, b) return a.rank < b.rank end)
  for _, rank in ipairs(list) do
    table.sort(rank.events, function(a, b) return a.ts < b.ts end)
  end
  return list
end

-- Cuts the events of a rank into programs, of which each begins with COUNT, and returns those that update parameters. A planned
-- step has no event for COUNT, because it takes no time there.
local function training_steps(events)
  local all, training = {}, {}
  for _, event in ipairs(events) do
    if #all == 0 or event.name:match "^COUNT" and event.tid == 0 then all[#all + 1] = {events = {}} end
    local latest = all[#all]
    table.insert(latest.events, event)
    latest.is_training = latest.is_training or event.name:match "^STEP" ~= nil
  end
  for _, step in ipairs(all) do
    if step.is_training then training[#training + 1] = step.events end
  end
  return training
end

-- NORM computes less than it waits for other ranks.
local function is_transfer(event)
  return event.tid ~= 0 or event.name:match "^NORM" ~= nil or trace.part_of(event) == "communication"
end

-- Returns {exchange =, other =}: the seconds in which a rank's thread did not compute, but took part in layers' exchanges or
-- waited for them, and those of all other communication.
local function communication_of(events)
  local seconds = {exchange = 0, other = 0}
  for _, event in ipairs(events) do
    if event.tid == 0 and is_transfer(event) then
      local is_exchange = trace.is_exchange(event) or event.name:match "^wait [FBIWR] " ~= nil
      local kind = is_exchange and "exchange" or "other"
      seconds[kind] = seconds[kind] + event.dur / 1e6
    end
  end
  return seconds
end

-- Returns {seconds =, ranks = {{name =, actions =}}} of one step. `of_ranks`: its events by rank.
local function step_of(ranks, of_ranks)
  local begin, stop = math.huge, 0
  for _, events in ipairs(of_ranks) do
    for _, event in ipairs(events) do begin, stop = math.min(begin, event.ts), math.max(stop, event.ts + event.dur) end
  end
  local step = {seconds = (stop - begin) / 1e6, ranks = {}, communication = {}}
  for index, events in ipairs(of_ranks) do
    local actions = {}
    for place, event in ipairs(events) do
      local first = (event.ts - begin) / 1e6
      local text = trace.is_exchange(event) and "exchange " .. event.name or event.name
      actions[place] = {text = text, begin = first, stop = first + event.dur / 1e6, is_transfer = is_transfer(event),
                        micro_batch = tonumber(event.name:match "^[FBIWR] %d+ (%d+)")}
    end
    step.ranks[index] = {name = ranks[index].name, actions = actions}
    step.communication[index] = communication_of(events)
  end
  return step
end

--- Returns the training steps of the trace, in order: {seconds =, ranks = {{name =, actions = {{text =, begin =, stop =,
-- is_transfer =, micro_batch =}}}}, communication = {{exchange =, other =}}}. zt.simulation takes `ranks`. An exchange of a layer
-- with other ranks is a transfer with the text "exchange F 3 0". `communication` has by rank the seconds in which its thread did
-- not compute, but took part in layers' exchanges, or in other communication; waiting is included. Times of different ranks fit
-- together if the ranks share one machine. Fails if the file is not a trace, or holds no whole step.
function steps.read(path)
  local ranks = by_rank(decoded(path))
  local by_step, least = {}, math.huge
  for index, rank in ipairs(ranks) do
    by_step[index] = training_steps(rank.events)
    least = math.min(least, #by_step[index])
  end
  if #ranks == 0 or least == 0 then fail("the trace '%s' holds no training step of every rank", path) end
  local list = {}
  for number = 1, least do
    local of_ranks = {}
    for index = 1, #ranks do of_ranks[index] = by_step[index][number] end
    list[number] = step_of(ranks, of_ranks)
  end
  return list
end

--- Returns the number, from 0, of the step whose time is the median. The first step, which also warms up, counts only if it is
--- the only one.
function steps.median(list)
  local order = {}
  for number = math.min(1, #list - 1), #list - 1 do order[#order + 1] = number end
  table.sort(order, function(a, b) return list[a + 1].seconds < list[b + 1].seconds end)
  return order[math.ceil(#order / 2)]
end

return steps
