--- zero.gathered: whole parameters by name, with their gradients and optimizer state, gathered from their shards.
--
--   zero.gathered(trainer, {"head.weight"}, function(tensors)
--     tensors["head.weight"].value:mul_(0.5)
--   end, {write_rank = 0})
--
-- Changes that the function makes are dropped, unless `write_rank` is given: then all ranks take the tensors of that rank.

local check = require "zt.check"
local fail = require "zt.fail"

local SCHEMA = {
  {"write_rank", "integer", "rank whose changes all ranks take; without it, nothing is changed", at_least = 0},
  {"gradients", "boolean", "also gather the last step's gradients of the objective, as trainer:gradient does", default = false},
  {"state", "boolean", "also gather the optimizer state", default = false},
}

-- Returns what is wrong with the tensors after the script's function has had them, or nil.
local function complaint(names, tensors)
  for _, name in ipairs(names) do
    local entry = tensors[name]
    local value = type(entry) == "table" and entry.value
    if not check.is("tensor", value) then
      return ("zero.gathered: after the function, tensors['%s']%s is %s: change that tensor in place, or assign another one to "
        .. "tensors['%s'].value"):format(name, value and ".value" or "", check.type_name(value or entry), name)
    end
  end
  return nil
end

-- Fails on all ranks if the tensors of one are not such that all can take them.
local function check_changes(trainer, names, tensors)
  local own = {complaint = complaint(names, tensors)}
  local of_ranks = trainer.mesh and trainer.mesh:world():gather_values(own) or {own}
  for _, each in ipairs(of_ranks) do
    if each.complaint then fail("%s", each.complaint) end
  end
end

local function gather(trainer, name, options)
  return {
    value = trainer:master(name),
    gradient = options.gradients and trainer:gradient(name) or nil,
    state = options.state and trainer:optimizer_state(name) or nil,
  }
end

local function write_back(trainer, name, tensors, options)
  trainer:set_parameter(name, tensors.value, options.write_rank)
  -- Sorted, because the calls are collective: every rank must make them in the same order.
  for _, key in ipairs(check.sorted_keys(tensors.state or {})) do
    trainer:set_optimizer_state(name, key, tensors.state[key], options.write_rank)
  end
end

--- Calls fn(tensors) and returns its results. tensors[name] = {value, gradient, state} are copies of whole tensors, in the
-- optimizer's precision. `names` is a list of names, or one name. Collective.
local function gathered(trainer, names, fn, options)
  local wanted = check.options("zero.gathered", SCHEMA, options or {})
  if type(names) == "string" then names = {names} end
  check.argument("zero.gathered", "the first argument", "Trainer", trainer)
  check.items("zero.gathered.names", "string", names)
  check.argument("zero.gathered", "fn", "function", fn)
  local ranks = trainer.mesh and trainer.mesh:world().size or 1
  if wanted.write_rank and wanted.write_rank >= ranks then
    fail("zero.gathered.write_rank must be a rank from 0 to %d, got %d", ranks - 1, wanted.write_rank)
  end
  local tensors = {}
  for _, name in ipairs(names) do tensors[name] = gather(trainer, name, wanted) end
  local results = {fn(tensors)}
  if wanted.write_rank then
    check_changes(trainer, names, tensors)
    for _, name in ipairs(names) do write_back(trainer, name, tensors[name], wanted) end
  end
  return unpack(results)
end

return gathered
