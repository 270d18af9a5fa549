--- The plots of one run: loss.svg and, for a model with experts, expert_load.svg.

local core = require "zt.core"
local expert_load = require "zt.run.expert_load"
local methods = require "zt.methods"
local plot = require "zt.run.plot"

local Curves = {__name = "Curves"}

--- Adds the values of a step, as run:log gets them.
function Curves:add(step, values)
  for key, points in pairs(self.points) do
    if type(values[key]) == "number" then points[#points + 1] = {step, values[key]} end
  end
  if type(values.stats) == "table" then self.loads:add(step, values.stats) end
end

--- Writes the files into the folder `path` of the run `name`. Returns the list of their paths.
function Curves:write(path, name)
  local series, written = {}, {path .. "/loss.svg"}
  for _, curve in ipairs {{"loss", "train"}, {"validation_loss", "validation"}} do
    local points = self.points[curve[1]]
    if #points > 0 then series[#series + 1] = {name = curve[2], points = points} end
  end
  core.write_file(written[1], plot.lines{title = "loss of " .. name, x = "step", y = "nats per token", series = series})
  local loads = self.loads:svg("load of the experts of " .. name)
  if not loads then return written end
  written[2] = path .. "/expert_load.svg"
  core.write_file(written[2], loads)
  return written
end

methods(Curves, "curves", {})

return function()
  return setmetatable({points = {loss = {}, validation_loss = {}}, loads = expert_load()}, Curves)
end
