--- Sets the parameters of an engine's trainer, one at a time: memory is that of the trainer and of one parameter.

local core = require "zt.core"

local parameters = {}

local EMBEDDING, HEAD = "embedding.weight", "head.weight"

-- Returns the set of the names of a model's parameters.
local function names_of(model)
  local names = {}
  for _, parameter in ipairs(model:parameters()) do names[parameter.name] = true end
  return names
end

--- Returns whether the head of a model is the weight of its embedding.
function parameters.is_tied(model)
  local names = names_of(model)
  return names[EMBEDDING] and not names[HEAD]
end

--- Sets the parameters `names` of `to` to read(place, name); those for which is_wanted(name) is false stay. A head of `to` that
-- is not among the names gets the weight of the embedding: the model is that of a tied one with a copy of the weight, in another
-- format. Collective over the mesh of `to`.
function parameters.set(to, names, read, is_wanted)
  local is_given = {}
  for place, name in ipairs(names) do
    is_given[name] = true
    if not is_wanted or is_wanted(name) then
      core.scope(function() to:set_parameter(name, read(place, name)) end)
    end
  end
  if is_given[EMBEDDING] and not is_given[HEAD] and names_of(to.model)[HEAD] then
    core.scope(function() to:set_parameter(HEAD, to:parameter(EMBEDDING)) end)
  end
end

--- Copies all parameters of `from`, a trainer of the same model in any layout. Collective over both meshes.
function parameters.copy(from, to)
  local names = {}
  for place, parameter in ipairs(from.model:parameters()) do names[place] = parameter.name end
  parameters.set(to, names, function(_, name) return from:parameter(name) end)
end

return parameters
