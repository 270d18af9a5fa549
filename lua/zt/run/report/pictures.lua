--- The pictures of a run in a report, as SVG text: the step that its trace holds, and the load of its experts.

local core = require "zt.core"
local fs = require "zt.fs"
local html = require "zt.run.report.html"
local picture = require "zt.run.picture"
local steps = require "zt.run.steps"
local text = require "zt.text"
local trace = require "zt.run.trace"
require "zt.pipe" -- registers the kinds of messages between stages, whose role decides their color

local MOST_BYTES = 256 * 2 ^ 20 -- of a trace

local pictures = {}

local function inlined(svg, label)
  return html.format('<figure class="paper" role="img" aria-label="%s">', label) .. svg:gsub("^<%?xml.-%?>%s*", "") .. "</figure>"
end

local function drawn(path)
  local list = steps.read(path)
  local step = steps.median(list)
  local simulation = picture.of_steps(("step %d of the run"):format(step.number), {{"run", step}})
  local name = os.tmpname()
  simulation:write_picture(name)
  local svg = fs.read(name)
  fs.remove(name)
  local note = html.format("<p>Step %d, whose time is the median of the steps %s: %s ms.</p>", step.number,
                           steps.numbers_text(list), ("%.3f"):format(1e3 * step.seconds))
  return note .. inlined(svg, ("the actions of each rank in step %d"):format(step.number))
end

--- Returns the picture of the median step of the run's trace, or a sentence that says why there is none.
function pictures.step(run)
  local path = run.path .. "/trace.json"
  trace.join_left(run.path, run.record) -- fails in a folder that cannot be written: then trace.json is a bit older
  local facts = core.file_facts(path)
  if not facts then
    return "<p>There is no trace.json: run:log writes it, if the run has a trainer and its trace is on.</p>"
  end
  if facts.bytes > MOST_BYTES then
    return html.format("<p>The trace has %s, too much for this page. This command draws it: <code>ztoolkit trace %s --picture "
      .. "step.svg</code></p>", text.bytes(facts.bytes), run.path)
  end
  local is_done, result = pcall(drawn, path)
  return is_done and result or html.format("<p>The step cannot be drawn: %s.</p>", result)
end

--- Returns the picture of the load of the experts; nil if the run has none.
function pictures.experts(run)
  local svg = run.loads:svg("load of the experts of " .. run.name)
  return svg and inlined(svg, "the load of each expert over the steps")
end

return pictures
