-- Tests the plots and traces that zt.run writes while a run goes on.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local command = require "support.command"
local small_run = require "support.small_run"
local trace = require "zt.run.trace"
local zt = require "zt"

local folder, open, fake_trainer = small_run.folder, small_run.open, small_run.fake_trainer
local event, traced = small_run.event, small_run.traced

local TestRun = {}

function TestRun:setUp() zt.log.set_level "error" end

-- Moves the run's clock, so that its next log brings the plots and the trace up to date.
local function make_due(run) run.next_refresh = -math.huge end

-- A run that goes on or was killed leaves a plot and a trace.
function TestRun:test_the_plot_and_the_trace_of_a_run_that_goes_on()
  local trainer = fake_trainer()
  local run = open("live", {trainer = trainer})
  lu.assertFalse(zt.exists(run.path .. "/trace.json"))
  for step = 0, 1 do
    trainer:add(event(step))
    make_due(run)
    run:log(step, {loss = 3 - step})
  end
  local _, points = zt.fs.read(run.path .. "/loss.svg"):gsub("<circle", "")
  lu.assertEquals(points, 2)
  lu.assertEquals(traced(run.path), {"process_name", "F 0 0@0", "step 0", "F 0 0@1", "step 1"})
  trainer:add(event(2))
  run:log(2, {loss = 1})
  lu.assertEquals(#traced(run.path), 5) -- less than a second later
  run:finish()
  lu.assertEquals(#traced(run.path), 7)
  lu.assertEquals(zt.fs.read(run.path .. "/options.json"):match '"ranks":(%d+)', "1")
  lu.assertEquals(io.popen("ls " .. run.path .. "/*.part " .. run.path .. "/*.new 2>/dev/null"):read "*a", "")
end

-- A script that fails writes what the last second lacks, on the rank that fails last, too.
function TestRun:test_a_script_that_fails()
  local file = os.tmpname()
  zt.write_file(file, ([[
    local zt = require "zt"
    local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"
    local mesh = comm.mesh{dp = -1}
    local program = zt.program(nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = 11, seq = 4}):apply(zero.shard{axis = mesh.dp})
    local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
    local run = zt.run{name = "fails", folder = "%s", trainer = trainer, steps = 9, mesh = mesh}
    local tokens = zt.zeros({2, 4}, {dtype = "int64"})
    for step = 0, 4 do run:log(step, trainer:step{tokens = tokens, labels = tokens}) end
    local begin = zt.now()
    while zt.world.rank == 1 and zt.now() - begin < 0.2 do end
    error "this script fails"]]):format(folder))
  local output, status = command "run" ("--threads", "2", file)
  lu.assertEquals(status, 1, output)
  local path = folder .. "/fails"
  local _, points = zt.fs.read(path .. "/loss.svg"):gsub("<circle", "")
  lu.assertEquals(points, 5)
  local steps = {}
  for _, word in ipairs(traced(path)) do
    if word:match "^step" then steps[word] = (steps[word] or 0) + 1 end
  end
  lu.assertEquals(steps, {["step 0"] = 2, ["step 1"] = 2, ["step 2"] = 2, ["step 3"] = 2, ["step 4"] = 2}) -- of each rank
  os.remove(file)
end

-- The time that the refreshes take is a hundredth of the run's.
function TestRun:test_refreshes_are_rare_if_they_take_long()
  local trainer = fake_trainer()
  local run = open("slow", {trainer = trainer})
  local events = trainer.trace_events
  function trainer.trace_events(...)
    zt.sleep(0.05)
    return events(...)
  end
  run:log(0, {loss = 1})
  lu.assertTrue(run.next_refresh - zt.now() > 4)
  trainer.trace_events = events
  run:finish()
end

function TestRun:test_a_part_has_a_limit()
  local trainer = fake_trainer()
  local run = open("long", {trainer = trainer, steps = 9})
  for step = 0, 3 do
    trainer:add(('{"name":"%s","ph":"X","pid":0,"tid":0,"ts":1,"dur":2}'):format(("x"):rep(9 * 2 ^ 20)))
    make_due(run)
    run:log(step, {loss = 1})
  end
  run:finish()
  lu.assertEquals(#traced(run.path), 7) -- three steps are more than the limit
end

local TestTrace = {}

function TestTrace:test_parts_are_joined()
  zt.mkdir_p(folder)
  local start = {started = "2026-01-02T03:04:05Z", ranks = 4}
  local function part(rank) return ("%s/trace.20260102T030405Z.%d.part"):format(folder, rank) end
  lu.assertFalse(trace.has_parts(folder, start))
  zt.write_file(part(0), '{"pid":0},\n{"pid":0},\n')
  zt.write_file(part(1), "")
  zt.write_file(part(3), '{"pid":3},\n{"pid":3},\n{"pi') -- killed while it wrote
  zt.write_file(part(4), '{"pid":4},\n') -- of no rank of this start
  lu.assertTrue(trace.has_parts(folder, start))
  lu.assertEquals(trace.join(folder, start, "run"), {2})
  local events = zt.json.decode(zt.fs.read(folder .. "/trace.json")).traceEvents
  lu.assertEquals({#events, events[3].pid}, {4, 3})
  trace.remove_parts(folder, start)
  lu.assertFalse(trace.has_parts(folder, start))
  lu.assertErrorMsgContains("cannot write " .. folder .. "/none/trace.json", trace.join, folder .. "/none", start, "run")
end

-- The parts of an earlier start are removed with the first file of a new one, and never joined.
function TestTrace:test_parts_of_an_earlier_start()
  local path = folder .. "/parts"
  local first = zt.run{name = "parts", folder = folder}
  first:log(0, {loss = 1})
  first:finish()
  for _, options in ipairs{{resume = true}, {overwrite = true}} do
    local start = zt.json.decode(zt.fs.read(path .. "/options.json"))
    start.started, start.ranks = "2026-01-02T03:04:05Z", 3
    zt.write_file(path .. "/options.json", zt.json.encode(start))
    local part = path .. "/trace.20260102T030405Z.2.part"
    zt.write_file(part, '{"pid":2},\n')
    local run = zt.run{name = "parts", folder = folder, trainer = fake_trainer(), resume = options.resume,
                       overwrite = options.overwrite}
    lu.assertEquals(zt.exists(part), options.resume == true) -- a start that resumes changes nothing yet
    run:log(1, {loss = 1})
    lu.assertFalse(zt.exists(part))
    run:finish()
    lu.assertEquals(traced(path), {"process_name", "step 1"})
  end
end

small_run.finish{{"TestRun", TestRun}, {"TestTrace", TestTrace}}
