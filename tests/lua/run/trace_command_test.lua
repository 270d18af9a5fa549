-- Tests `ztoolkit trace`: steps of a recorded run, beside a planned one.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local steps = require "zt.run.steps"
local command = require "support.command" "trace"
local new_name = require "support.temporary"

local function event(rank, name, ts, dur, lane)
  return {name = name, ph = "X", pid = rank, tid = lane or 0, ts = ts, dur = dur}
end

local function temporary()
  local folder = new_name()
  zt.mkdir_p(folder)
  return folder
end

-- Writes a trace of two ranks with three training steps and an evaluation, and returns its path. Rank 1 begins 1 ms later and
-- waits for rank 0. The steps take 10, 8 and 6 ms.
local function recorded(folder)
  local events = {}
  for rank = 0, 1 do
    local at = 1e6 + 1e3 * rank
    for step = 0, 2 do
      local stop = 1e6 + 1e5 * step + 10e3 - 2e3 * step
      table.insert(events, event(rank, "COUNT", at, 100))
      table.insert(events, event(rank, "F 0 0", at + 100, 1000))
      table.insert(events, event(rank, "RECV 0 0", at + 1100, 500))
      table.insert(events, event(rank, "B 0 0", at + 1600, 2000))
      table.insert(events, event(rank, "REDUCE_GRAD 0", at + 3600, 400, 1))
      table.insert(events, event(rank, "STEP 0", stop - 100, 100))
      at = 1e6 + 1e5 * (step + 1) + 1e3 * rank
    end
    table.insert(events, event(rank, "COUNT", at, 100))
    table.insert(events, event(rank, "F 0 0", at + 100, 900e3))
  end
  zt.write_file(folder .. "/trace.json", zt.json.encode{traceEvents = events})
  return folder .. "/trace.json"
end

local TestTrace = {}

function TestTrace:test_steps()
  local list = steps.read(recorded(temporary()))
  lu.assertEquals(#list, 3)
  for index, milliseconds in ipairs{10, 8, 6} do lu.assertAlmostEquals(list[index].seconds, 1e-3 * milliseconds, 1e-9) end
  lu.assertEquals(steps.median(list).number, 2)  -- of 8 and 6 ms: the first step warms up
  local actions = list[1].ranks[2].actions
  lu.assertEquals({list[1].ranks[2].name, actions[2].text, actions[2].micro_batch}, {"rank 1", "F 0 0", 0})
  lu.assertAlmostEquals(actions[2].begin, 1.1e-3, 1e-9)
  local waits = {}
  for index, action in ipairs(actions) do waits[index] = action.is_transfer end
  lu.assertEquals(waits, {true, false, true, false, true, false})
end

-- Writes a trace of two ranks with a training step at each of `times`, in milliseconds, and a run:log of each {time, step} of
-- `logs`. Returns its steps.
local function logged(times, logs, ranks_that_log)
  local folder, events = temporary(), {}
  for rank = 0, 1 do
    for _, time in ipairs(times) do
      table.insert(events, event(rank, "COUNT", 1e3 * time, 10))
      table.insert(events, event(rank, "STEP 0", 1e3 * time + 10, 100 + time))
      table.insert(events, event(rank, "COUNT", 1e3 * time + 200, 10)) -- an evaluation
      table.insert(events, event(rank, "F 0 0", 1e3 * time + 210, 10))
    end
    for _, log in ipairs(rank < (ranks_that_log or 2) and logs or {}) do
      table.insert(events, {name = "step " .. log[2], cat = "run", ph = "i", pid = rank, tid = 0, ts = 1e3 * log[1],
                            args = {step = log[2]}})
    end
  end
  zt.write_file(folder .. "/trace.json", zt.json.encode{traceEvents = events})
  return steps.read(folder .. "/trace.json"), folder
end

local function numbers(list)
  local all = {}
  for place, step in ipairs(list) do all[place] = step.number end
  return all
end

-- Steps have the numbers with which the run logs them.
function TestTrace:test_the_numbers_of_steps()
  local resumed = {{1.5, 400}, {1.7, 400}, {2.5, 401}, {3.5, 402}}
  local list, folder = logged({1, 2, 3}, resumed)
  lu.assertEquals(numbers(list), {400, 401, 402})
  lu.assertAlmostEquals(steps.find(list, 401).seconds, 112e-6, 1e-9)
  lu.assertNil(steps.find(list, 0))
  lu.assertEquals(numbers(logged({1, 2, 3}, resumed, 1)), {400, 401, 402}) -- only rank 0 calls run:log
  lu.assertEquals(numbers(logged({1, 2, 3, 4}, {{2.5, 9}})), {8, 9, 10, 11}) -- logs every second step, and was killed
  lu.assertEquals(numbers(logged({1, 4}, {{1.5, 0}, {2.5, 1}, {3.5, 2}, {4.5, 3}})), {0, 3}) -- lacks steps
  lu.assertEquals(numbers(logged({1, 2, 3}, {{1.5, 5}, {3.5, 6}})), {5, 6}) -- two steps are logged as one
  lu.assertEquals(numbers(logged({1, 2, 3}, {{1.5, 5}, {2.5, 6}, {3.5, 6}})), {5, 6})
  lu.assertEquals(numbers(logged({1, 2, 3}, {{1.5, 5}, {2.5, 6}, {3.5, 2}})), {2, 5, 6}) -- run:rewind

  local text, status = command(folder, "--step", "401")
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, "measured  0.112 ms, step 401; the trace has the steps 400 to 402\n")
  text, status = command(folder, "--step", "1")
  lu.assertEquals(status, 2)
  lu.assertStrContains(text, "the trace has the steps 400 to 402: option '--step' must be one of them, got 1")
end

-- Steps by hand have no COUNT. They are cut where the run logs, and where a forward follows an update.
function TestTrace:test_steps_by_hand()
  local folder, events = temporary(), {}
  for step = 0, 3 do
    local begin = 1000 * step
    for place, name in ipairs{"UNSHARD 0", "F 0 0", "B 0 0", "NORM", "STEP 0"} do
      table.insert(events, event(0, name, begin + 10 * place, 10))
    end
    if step ~= 2 then -- logs steps 0, 1 and 3
      table.insert(events, {name = "step " .. step, cat = "run", ph = "i", pid = 0, tid = 0, ts = begin + 500,
                            args = {step = step}})
    end
  end
  zt.write_file(folder .. "/trace.json", zt.json.encode{traceEvents = events})
  local list = steps.read(folder .. "/trace.json")
  lu.assertEquals(numbers(list), {0, 1, 2, 3})
  for _, place in ipairs{1, 2, 4} do lu.assertAlmostEquals(list[place].seconds, place == 4 and 40e-6 or 50e-6, 1e-9) end
end

function TestTrace:test_the_text_of_numbers()
  local function text(...)
    local list = {}
    for place, number in ipairs{...} do list[place] = {number = number} end
    return steps.numbers_text(list)
  end
  lu.assertEquals({text(3), text(0, 1, 2), text(0, 2, 3, 7)}, {"3", "0 to 2", "0, 2 to 3, 7"})
end

-- The command joins what the ranks of a run that was killed have recorded.
function TestTrace:test_a_run_that_was_killed()
  local _, folder = logged({1, 2}, {{1.5, 0}, {2.5, 1}})
  local all = zt.json.decode(zt.fs.read(folder .. "/trace.json")).traceEvents
  os.remove(folder .. "/trace.json")
  zt.write_file(folder .. "/options.json", zt.json.encode{started = "2026-01-02T03:04:05Z", ranks = 3})
  for rank = 0, 1 do
    local lines = {}
    for _, one in ipairs(all) do
      if one.pid == rank then lines[#lines + 1] = zt.json.encode(one) .. ",\n" end
    end
    zt.write_file(("%s/trace.20260102T030405Z.%d.part"):format(folder, rank), table.concat(lines) .. '{"pid":')
  end
  local text, status = command(folder)
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, "joined the events of 2 ranks into " .. folder .. "/trace.json\n"
    .. "there are no events of the ranks 2 yet: a rank writes them when it calls run:log\n")
  lu.assertStrContains(text, "step 1; the trace has the steps 0 to 1")
  lu.assertEquals(#zt.json.decode(zt.fs.read(folder .. "/trace.json")).traceEvents, #all)
end

-- What a layer does to exchange tokens with other ranks is not compute: neither its start, nor the wait for its end.
function TestTrace:test_exchanges_are_no_compute()
  local folder = temporary()
  local events = {}
  local function add(name, ts, dur, cat, lane)
    local one = event(0, name, ts, dur, lane)
    one.cat = cat
    events[#events + 1] = one
  end
  add("COUNT", 0, 100, "communication")
  add("F 0 0", 100, 1000, "compute")
  add("F 1 0", 1100, 300, "communication")
  add("F 1 0", 1100, 1000, "communication", 1)
  add("wait F 1 0", 1400, 700, "communication")
  add("B 0 0", 2100, 2000, "compute")
  add("wait REDUCE_GRAD 0", 4100, 400, "communication")
  add("STEP 0", 4500, 500, "compute")
  add("wait EVICT 0 home=file slot=0 what=state", 5000, 250, "communication")
  zt.write_file(folder .. "/trace.json", zt.json.encode{traceEvents = events})
  local step = steps.read(folder .. "/trace.json")[1]
  lu.assertAlmostEquals(step.communication[1].exchange, 1e-3, 1e-9)
  lu.assertAlmostEquals(step.communication[1].other, 0.5e-3, 1e-9)
  lu.assertAlmostEquals(step.communication[1].moves, 0.25e-3, 1e-9)
  local texts = {}
  for _, action in ipairs(step.ranks[1].actions) do texts[action.text] = action.is_transfer end
  lu.assertEquals({texts["F 0 0"], texts["exchange F 1 0"], texts["wait F 1 0"]}, {false, true, true})
  local text, status = command(folder, "--picture", folder .. "/step.svg")
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, "busy      3.500 ms, exchange      1.000 ms, moves      0.250 ms, other communication      0.500 ms")
  lu.assertStrContains(zt.fs.read(folder .. "/step.svg"), "<title>exchange F 1 0 under way: ")
end

function TestTrace:test_a_step_as_a_simulation()
  local step = steps.read(recorded(temporary()))[1]
  for _, rank in ipairs(step.ranks) do rank.seconds = step.seconds end
  local simulation = zt.simulation{title = "a run", ranks = step.ranks}
  lu.assertAlmostEquals(simulation.seconds, 10e-3, 1e-9)
  local rank = simulation.ranks[1]
  lu.assertAlmostEquals(rank.busy, 3.1e-3, 1e-9)
  lu.assertAlmostEquals(rank.span_bubble, 0.5e-3, 1e-9)
  lu.assertAlmostEquals(rank.barrier_bubble, 6.9e-3, 1e-9)
  lu.assertErrorMsgContains("the action F ends before it begins", zt.simulation,
                            {title = "", ranks = {{name = "", seconds = 1, actions = {{text = "F", begin = 1, stop = 0}}}}})
  lu.assertErrorMsgContains("did you mean 'title'?", zt.simulation, {titel = "", ranks = {}})
end

function TestTrace:test_the_command()
  local folder = temporary()
  recorded(folder)
  local text, status = command(folder, "--picture", folder .. "/step.svg")
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, "measured  6.000 ms, step 2; the trace has the steps 0 to 2\n")
  lu.assertStrContains(text, "span bubble      0.500 ms")
  lu.assertStrContains(text, "wrote " .. folder .. "/step.svg\n")
  local picture = zt.fs.read(folder .. "/step.svg")
  lu.assertStrContains(picture, "run rank 1")
  lu.assertStrContains(picture, "<title>B 0 0: ")
  lu.assertNotStrContains(picture, "memory")

  text, status = command(folder, "--step", "0", "--plan", folder .. "/trace.json")
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, "planned   10.000 ms")
  lu.assertStrContains(text, "plan rank 0")
end

function TestTrace:test_mistakes()
  local folder = temporary()
  recorded(folder)
  local function refused(message, ...)
    local text, status = command(...)
    lu.assertStrContains(text, message)
    lu.assertStrMatches(text, "trace: .*")
    lu.assertNotStrContains(text, "traceback")
    lu.assertTrue(status ~= 0)
  end
  refused("the trace has the steps 0 to 2: option '--step' must be one of them, got 3", folder, "--step", "3")
  refused("option '--picture' needs the name of an SVG file, NAME.svg, got 'x.png'", folder, "--picture", "x.png")
  refused("'" .. folder .. "/nothing' is no run, it has no options.json: give the folder of a run", folder .. "/nothing")
  refused("there is no trace '" .. folder .. "/nothing.json': give the folder of a run that has a trainer, or a file",
          folder .. "/nothing.json")
  local run = zt.run{name = "r", folder = folder}
  run:log(0, {loss = 1})
  run:finish()
  refused("the run '" .. run.path .. "' has no trace: a run records one from its first run:log on, if it has zt.run{trainer",
          run.path)
  zt.write_file(folder .. "/cut.json", '{"traceEvents": [{"name"')
  refused("is not a trace", folder .. "/cut.json")
  zt.write_file(folder .. "/empty.json", '{"traceEvents": []}')
  refused("holds no training step", folder .. "/empty.json")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestTrace", TestTrace}})
