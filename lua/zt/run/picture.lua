--- The picture of steps that a command writes for its option --picture, and that ztoolkit report shows.

local core = require "zt.core"
local fail = require "zt.fail"

local picture = {}

--- Fails unless `path` names an SVG file. Called before the work whose result is drawn.
function picture.check(path)
  if path:find "%.svg$" then return end
  fail("option '--picture' needs the name of an SVG file, NAME.svg, got '%s': convert the SVG to get another format", path)
end

--- Writes the picture, and says so.
function picture.write(simulation, path)
  simulation:write_picture(path)
  print("wrote " .. path)
end

--- Returns the simulation that draws `parts` below each other, a list of {origin, step}: `step` is one of zt.run.steps, and
--- `origin` begins the names of its rows. Also returns the seconds of communication by row, as zt.run.steps has them.
function picture.of_steps(title, parts)
  local drawing, communication = {title = title, ranks = {}}, {}
  for _, part in ipairs(parts) do
    local origin, step = part[1], part[2]
    for index, rank in ipairs(step.ranks) do
      table.insert(drawing.ranks, {name = origin .. " " .. rank.name, seconds = step.seconds, actions = rank.actions})
      table.insert(communication, step.communication[index])
    end
  end
  return core.simulation(drawing), communication
end

return picture
