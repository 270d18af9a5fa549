--- The plots of one run: loss.svg and, for a model with experts, expert_load.svg.

local core = require "zt.core"
local expert_load = require "zt.run.expert_load"
local line = require "zt.run.line"
local methods = require "zt.methods"
local plot = require "zt.run.plot"

local LOSSES = {{"loss", "train"}, {"validation_loss", "validation"}}

local Curves = {__name = "Curves"}

--- Adds the values of a step, as run:log gets them.
function Curves:add(step, values)
  for key, points in pairs(self.points) do
    local value = line.value(values, key)
    if type(value) == "number" then points[#points + 1] = {step, value} end
  end
  if type(values.stats) == "table" then self.loads:add(step, values.stats) end
end

--- Adds the values of the lines that the iterator `records` returns.
function Curves:read(records)
  for values in records do self:add(values.step, values) end
end

--- Returns the keys among `names` of which no step had a number.
function Curves:missing(names)
  local missing = {}
  for _, name in ipairs(names) do
    if #self.points[name] == 0 then missing[#missing + 1] = name end
  end
  return missing
end

--- Writes the files into the folder `path` of the run `name`. Returns the list of their paths.
function Curves:write(path, name)
  local series, panels, written = {}, {}, {path .. "/loss.svg"}
  for _, curve in ipairs(LOSSES) do
    local points = self.points[curve[1]]
    if #points > 0 then series[#series + 1] = {name = curve[2], points = points} end
  end
  for index, key in ipairs(self.extra) do panels[index] = {y = key, series = {{name = key, points = self.points[key]}}} end
  core.write_file(written[1], plot.lines{title = "loss of " .. name, x = "step", y = "nats per token", series = series,
                                         panels = panels})
  local loads = self.loads:svg("load of the experts of " .. name)
  if not loads then return written end
  written[2] = path .. "/expert_load.svg"
  core.write_file(written[2], loads)
  return written
end

methods(Curves, "curves", {})

--- Returns the curves of a run. `shown` is its option `show`: each key that is no loss gets a panel below the losses.
return function(shown)
  local self = setmetatable({points = {}, extra = {}, loads = expert_load()}, Curves)
  for _, curve in ipairs(LOSSES) do self.points[curve[1]] = {} end
  for _, key in ipairs(shown) do
    if not self.points[key] then self.points[key], self.extra[#self.extra + 1] = {}, key end
  end
  return self
end
