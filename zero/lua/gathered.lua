--- zero.gathered: whole parameters, gradients and optimizer state of tensors that are cut over the ranks, by name.
--
--   zero.gathered(trainer, {"head.weight"}, function(tensors)
--     tensors["head.weight"].value:mul_(0.5)
--   end, {write_rank = 0})
--
-- What the function changes counts only with `write_rank`, whose tensors all ranks take then.

local check = require "zt.check"
local fail = require "zt.fail"

local SCHEMA = {
  {"write_rank", "integer", "the rank whose changes all take; without it nothing is changed", at_least = 0},
  {"gradients", "boolean", "the last step's gradients of the objective too, as of trainer:gradient", default = false},
  {"state", "boolean", "the optimizer's state too", default = false},
}

local function gather(trainer, name, options)
  return {
    value = trainer:master(name),
    gradient = options.gradients and trainer:gradient(name) or nil,
    state = options.state and trainer:optimizer_state(name) or nil,
  }
end

local function write_back(trainer, name, tensors, options)
  trainer:set_parameter(name, tensors.value, options.write_rank)
  local keys = {}
  for key in pairs(tensors.state or {}) do keys[#keys + 1] = key end
  table.sort(keys) -- the same order on every rank
  for _, key in ipairs(keys) do trainer:set_optimizer_state(name, key, tensors.state[key], options.write_rank) end
end

--- Calls fn(tensors), tensors[name] = {value, gradient, state}, with whole tensors in the optimizer's precision, and returns what
-- it returns. `names`: a list, or a name. Collective; the tensors are copies on every rank.
local function gathered(trainer, names, fn, options)
  local wanted = check.options("zero.gathered", SCHEMA, options or {})
  if type(names) == "string" then names = {names} end
  if type(names) ~= "table" or type(fn) ~= "function" then
    fail "zero.gathered takes a trainer, parameters' names and a function"
  end
  local tensors = {}
  for _, name in ipairs(names) do tensors[name] = gather(trainer, name, wanted) end
  local results = {fn(tensors)}
  if wanted.write_rank then
    for _, name in ipairs(names) do write_back(trainer, name, tensors[name], wanted) end
  end
  return unpack(results)
end

return gathered
