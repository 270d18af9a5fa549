--- trainer:state(): the tensors of its model's state by name: the parameters, and what layers change themselves, such as the
-- bias of a router. Each one is gathered when the script reads it.
--
--   local state = trainer:state()
--   print(state["head.weight"]:norm())       collective if parameters are sharded: all ranks read the same name
--   for name, values in state:each() do ... end

local class = require "zt.class"
local core = require "zt.core"
local methods = require "zt.methods"

local State = class.new "State"

function State:init(trainer) rawset(self, "trainer", trainer) end

--- Returns the names of the tensors: those of the parameters in the model's order, then the others.
function State:names()
  local names = {}
  for index, tensor in ipairs(self.trainer:tensors()) do names[index] = tensor.name end
  return names
end

--- Iterates over pairs of name and tensor. Gathers one tensor per iteration, so it holds one at a time.
function State:each()
  local names, place = self:names(), 0
  return function()
    place = place + 1
    if names[place] then return names[place], self.trainer:parameter(names[place]) end
  end
end

methods(State, "state")

State.__index = function(self, key)
  local method = rawget(State, key)
  if method ~= nil then return method end
  return rawget(self, "trainer"):parameter(key)
end

core.set_hook("trainer_state", function(trainer) return State(trainer) end)
