--- Reads the steps of a trace file: that of a run (RUN/trace.json), or that of a planned step (ztoolkit plan --trace FILE). Steps
-- have the numbers of metrics.jsonl: a trace has an event for each run:log, which comes after the step that it logs.

local core = require "zt.core"
local fail = require "zt.fail"
local fs = require "zt.fs"
local trace = require "zt.run.trace"

local steps = {}

local function decoded(path)
  if not core.exists(path) then
    fail("there is no trace '%s': give the folder of a run that has a trainer, or a file of ztoolkit plan --trace", path)
  end
  local is_read, content = pcall(core.json.decode, fs.read(path))
  if not is_read or type(content) ~= "table" or type(content.traceEvents) ~= "table" then
    fail("'%s' is not a trace: it must hold JSON with traceEvents, as zt.run and ztoolkit plan --trace write it", path)
  end
  return content.traceEvents
end

-- Returns the events of each rank in the order of their begin: {rank =, name =, events =, marks =}, the ranks ascending. `marks`
-- are the calls of run:log: {ts =, step =}.
local function by_rank(events)
  local ranks, list = {}, {}
  for _, event in ipairs(events) do
    local rank = ranks[event.pid]
    if not rank and event.pid then
      rank = {rank = event.pid, name = "rank " .. event.pid, events = {}, marks = {}}
      ranks[event.pid], list[#list + 1] = rank, rank
    end
    if event.ph == "M" and event.name == "process_name" then rank.name = event.args.name end
    if event.ph == "X" then table.insert(rank.events, event) end
    if event.ph == "i" and event.cat == "run" then table.insert(rank.marks, {ts = event.ts, step = event.args.step}) end
  end
  table.sort(list, function(a, b) return a.rank < b.rank end)
  for _, rank in ipairs(list) do
    for _, list_of_rank in ipairs{rank.events, rank.marks} do
      table.sort(list_of_rank, function(a, b) return a.ts < b.ts end)
    end
  end
  return list
end

-- Cuts the events of a rank into programs, and returns those that update parameters. A program begins with COUNT; one of a step
-- by hand with the first F after an update, or with what follows the run:log after it. A planned step has no event for COUNT,
-- because it takes no time there.
local function training_steps(events, marks)
  local all, training, mark = {}, {}, 1
  for _, event in ipairs(events) do
    local latest = all[#all]
    while marks[mark] and marks[mark].ts <= event.ts do
      mark = mark + 1
      if latest then latest.is_logged = latest.is_training end
    end
    local is_over = latest and latest.is_training and (latest.is_logged or event.name:match "^F ")
    if not latest or event.tid == 0 and (is_over or event.name:match "^COUNT") then
      latest = {events = {}}
      all[#all + 1] = latest
    end
    table.insert(latest.events, event)
    latest.is_training = latest.is_training or event.name:match "^STEP" ~= nil
  end
  for _, step in ipairs(all) do
    if step.is_training then training[#training + 1] = step.events end
  end
  return training
end

-- Returns the numbers of a rank's training steps, each a list of events: the last one before a run:log is the step that was
-- logged, earlier ones count back from it, and those after the last run:log count on. Without any they count from 0.
local function numbers_of(training, marks)
  local numbers, logged = {}, -1
  for _, mark in ipairs(marks) do
    local first, last = #numbers + 1, #numbers
    while training[last + 1] and training[last + 1][1].ts <= mark.ts do last = last + 1 end
    -- Several steps may have been logged as one. After run:rewind the numbers begin again at an earlier one.
    local least = mark.step > logged and logged + 1 or 0
    for place = first, last do numbers[place] = math.max(least, mark.step - (last - place)) end
    logged = mark.step
  end
  for place = #numbers + 1, #training do numbers[place] = (numbers[place - 1] or logged) + 1 end
  return numbers
end

-- Returns the training steps of each rank by number, and the numbers that all ranks have. A rank whose script does not call
-- run:log has the numbers of the first rank that does.
local function numbered(ranks)
  local numbers, first, counts = {}, nil, {}
  local training, by_number, common = {}, {}, {}
  for index, rank in ipairs(ranks) do
    training[index] = training_steps(rank.events, rank.marks)
    numbers[index] = numbers_of(training[index], rank.marks)
    if #rank.marks > 0 then first = first or numbers[index] end
  end
  for index, rank in ipairs(ranks) do
    by_number[index] = {}
    local own = #rank.marks > 0 and numbers[index] or first or numbers[index]
    for place, number in ipairs(own) do by_number[index][number] = training[index][place] end
    for number in pairs(by_number[index]) do counts[number] = (counts[number] or 0) + 1 end
  end
  for number, count in pairs(counts) do
    if count == #ranks then common[#common + 1] = number end
  end
  table.sort(common)
  return by_number, common
end

-- NORM computes less than it waits for other ranks.
local function is_transfer(event)
  local part = trace.part_of(event)
  return event.tid ~= 0 or event.name:match "^NORM" ~= nil or part == "communication" or part == "movement"
end

-- Returns what an event of a transfer is of, as communication_of says.
local function kind_of(event)
  if trace.is_exchange(event) or event.name:match "^wait [FBIWR] " then return "exchange" end
  return trace.part_of(event) == "movement" and "moves" or "other"
end

-- Returns {exchange =, moves =, other =}: the seconds in which a rank's thread did not compute, but took part in layers'
-- exchanges or waited for them; those in which it waited for data that move between memory and their homes; and those of all
-- other communication.
local function communication_of(events)
  local seconds = {exchange = 0, moves = 0, other = 0}
  for _, event in ipairs(events) do
    if event.tid == 0 and is_transfer(event) then
      local kind = kind_of(event)
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

--- Returns the training steps of the trace, in order: {number =, seconds =, ranks = {{name =, actions = {{text =, begin =,
-- stop =, is_transfer =, micro_batch =}}}}, communication = {{exchange =, moves =, other =}}}. `number` is that of the step
-- in metrics.jsonl. zt.simulation takes `ranks`. An exchange of a layer with other ranks is a transfer with the text
-- "exchange F 3 0". `communication` has by rank the seconds in which its thread did not compute, but took part in layers'
-- exchanges, waited for data that move, or took part in other communication; waiting is included. Times of different ranks
-- fit together if the ranks share one machine. Fails if the file is not a trace, or holds no whole step.
function steps.read(path)
  local ranks = by_rank(decoded(path))
  local by_number, numbers = numbered(ranks)
  if #numbers == 0 then
    fail("the trace '%s' holds no training step of every rank: a run records a step when it logs it by run:log", path)
  end
  local list = {}
  for place, number in ipairs(numbers) do
    local of_ranks = {}
    for index = 1, #ranks do of_ranks[index] = by_number[index][number] end
    list[place] = step_of(ranks, of_ranks)
    list[place].number = number
  end
  return list
end

--- Returns the step whose time is the median. The first step, which also warms up, counts only if it is the only one.
function steps.median(list)
  local order = {}
  for place = math.min(2, #list), #list do order[#order + 1] = list[place] end
  table.sort(order, function(a, b) return a.seconds < b.seconds end)
  return order[math.ceil(#order / 2)]
end

--- Returns the step with the number, or nil.
function steps.find(list, number)
  for _, step in ipairs(list) do
    if step.number == number then return step end
  end
  return nil
end

--- Returns the numbers of the steps as text: "0 to 2, 7".
function steps.numbers_text(list)
  local words, first = {}, nil
  for place, step in ipairs(list) do
    first = first or step.number
    local following = list[place + 1]
    if not following or following.number > step.number + 1 then
      words[#words + 1] = first == step.number and ("%d"):format(first) or ("%d to %d"):format(first, step.number)
      first = nil
    end
  end
  return table.concat(words, ", ")
end

return steps
