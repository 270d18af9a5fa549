-- ztoolkit trace: draws a step that a run has recorded, beside the planned one.
--
--   ztoolkit trace runs/pipeline --picture step.svg
--   ztoolkit trace runs/pipeline --picture step.svg --plan plan.json    with the step of ztoolkit plan --trace plan.json above it
--
-- A run that has a trainer writes RUN/trace.json at its end.
local zt      = require "zt"
local command = require "zt.command"
local picture = require "zt.run.picture"
local steps   = require "zt.run.steps"
require "zt.pipe"  -- registers the kinds of messages between stages, whose role decides their color

local options = zt.cli {
  name = "trace", usage = "ztoolkit trace",
  about = "Draws a step of a run: what each rank computed and when it waited. 'exchange' is the time in which a rank sent tokens "
    .. "to experts and back, or waited for that.",
  positional = {{"run", "the run's folder, or a trace file"}},
  options = {
    {"picture", nil, "write the picture to this SVG file", type = "string"},
    {"step", nil, "the training step to draw, from 0; by default that whose time is the median", type = "integer",
     at_least = 0},
    {"plan", nil, "a file of ztoolkit plan --trace, to be drawn above on the same axis", type = "string"},
  },
}

local function refuse(...)
  io.stderr:write("trace: ", string.format(...), "\nRun it with --help to see the options.\n")
  os.exit(2)
end

local function draw()
  if options.picture then picture.check(options.picture) end
  local path = options.run:match "%.json$" and options.run or options.run .. "/trace.json"
  local measured = steps.read(path)
  local number = options.step or steps.median(measured)
  if number >= #measured then refuse("the trace has %d steps: option '--step' must be below that, got %d", #measured, number) end
  local step = measured[number + 1]
  local parts = {}
  if options.plan then
    local planned = steps.read(options.plan)[1]
    parts[1] = {"plan", planned}
    print(("planned   %.3f ms"):format(1e3 * planned.seconds))
  end
  parts[#parts + 1] = {"run", step}
  print(("measured  %.3f ms, step %d of %d"):format(1e3 * step.seconds, number, #measured))
  local simulation, communication = picture.of_steps(("%s, step %d"):format(path, number), parts)
  for index, rank in ipairs(simulation.ranks) do
    local seconds = communication[index]
    print(("%-16s busy %10.3f ms, exchange %10.3f ms, other communication %10.3f ms, span bubble %10.3f ms"):format(
      rank.ranks, 1e3 * rank.busy, 1e3 * seconds.exchange, 1e3 * seconds.other, 1e3 * rank.span_bubble))
  end
  if options.picture then picture.write(simulation, options.picture) end
end

command("trace", draw)
