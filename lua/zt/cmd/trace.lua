-- ztoolkit trace: draws a step that a run has recorded, beside the planned one.
--
--   ztoolkit trace runs/pipeline --picture step.svg
--   ztoolkit trace runs/pipeline --picture step.svg --plan plan.json    with the step of ztoolkit plan --trace plan.json above it
--
-- A run that has a trainer records RUN/trace.json. If the run goes on or was killed, this command first joins what its ranks have
-- recorded so far.
local zt      = require "zt"
local command = require "zt.command"
local fail    = require "zt.fail"
local folder  = require "zt.run.folder"
local picture = require "zt.run.picture"
local steps   = require "zt.run.steps"
local trace   = require "zt.run.trace"
require "zt.pipe"  -- registers the kinds of messages between stages, whose role decides their color

local options = zt.cli {
  name = "trace", usage = "ztoolkit trace",
  about = "Draws a step of a run: what each rank computed and when it waited. 'exchange' is the time in which a rank sent tokens "
    .. "to experts and back, or waited for that; 'moves' that in which it waited for data in files or host memory. The run may "
    .. "have ended in any way, also by kill -9, or go on.",
  positional = {{"run", "the run's folder, or a trace file"}},
  options = {
    {"picture", nil, "write the picture to this SVG file", type = "string"},
    {"step", nil, "the training step to draw, as metrics.jsonl counts; by default that whose time is the median",
     type = "integer", at_least = 0},
    {"plan", nil, "a file of ztoolkit plan --trace, to be drawn above on the same axis", type = "string"},
  },
}

local function refuse(...)
  io.stderr:write("trace: ", string.format(...), "\nRun it with --help to see the options.\n")
  os.exit(2)
end

-- Returns the path of the run's trace, with all that its ranks have recorded.
local function trace_of(run)
  local path, start = run .. "/trace.json", folder.start(run)
  if not start and run:find "%.json$" then return run end
  local missing, why = trace.join_left(run, start or {})
  if why then
    print(("the last events of the ranks are left out: %s"):format(why))
    return path
  end
  if missing then
    print(("joined the events of %d ranks into %s"):format(start.ranks - #missing, path))
    if #missing > 0 then
      print(("there are no events of the ranks %s yet: a rank writes them when it calls run:log"):format(
        table.concat(missing, ", ")))
    end
  end
  if zt.exists(path) then return path end
  if not start then fail("'%s' is no run, it has no options.json: give the folder of a run, such as runs/gpt", run) end
  fail("the run '%s' has no trace: a run records one from its first run:log on, if it has zt.run{trainer = trainer} and not "
    .. "trace = false", run)
end

local function draw()
  if options.picture then picture.check(options.picture) end
  local path = trace_of(options.run)
  local measured = steps.read(path)
  local numbers = steps.numbers_text(measured)
  local step = options.step and steps.find(measured, options.step) or not options.step and steps.median(measured)
  if not step then refuse("the trace has the steps %s: option '--step' must be one of them, got %d", numbers, options.step) end
  local parts = {}
  if options.plan then
    local planned = steps.read(options.plan)[1]
    parts[1] = {"plan", planned}
    print(("planned   %.3f ms"):format(1e3 * planned.seconds))
  end
  parts[#parts + 1] = {"run", step}
  print(("measured  %.3f ms, step %d; the trace has the steps %s"):format(1e3 * step.seconds, step.number, numbers))
  local simulation, communication = picture.of_steps(("%s, step %d"):format(path, step.number), parts)
  for index, rank in ipairs(simulation.ranks) do
    local seconds = communication[index]
    if options.plan and index <= #parts[1][2].ranks then -- waiting is no event of a plan
      print(("%-16s busy %10.3f ms, span bubble %10.3f ms"):format(rank.ranks, 1e3 * rank.busy, 1e3 * rank.span_bubble))
    else
      local moves = seconds.moves > 0 and (", moves %10.3f ms"):format(1e3 * seconds.moves) or ""
      print(("%-16s busy %10.3f ms, exchange %10.3f ms%s, other communication %10.3f ms, span bubble %10.3f ms"):format(
        rank.ranks, 1e3 * rank.busy, 1e3 * seconds.exchange, moves, 1e3 * seconds.other, 1e3 * rank.span_bubble))
    end
  end
  if options.picture then picture.write(simulation, options.picture) end
end

command("trace", draw)
