--- The picture of a simulation that a command writes for its option --picture.

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

return picture
