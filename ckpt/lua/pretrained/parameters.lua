--- Sets the parameters of an engine's trainer: from files one at a time, so memory is that of the trainer and of one parameter.

local core = require "zt.core"
local transfer = require "zt.transfer"

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

--- Gives `to` the values of `from`, a trainer of the same model in any layout. A head of `to` that `from` lacks gets the weight
-- of the embedding. Collective over the world, if one of the two has a mesh.
function parameters.take(from, to)
  local there, here = names_of(from.model), names_of(to.model)
  local is_copy = here[HEAD] and not there[HEAD] and there[EMBEDDING]
  return transfer(from, to, {sources = is_copy and {[HEAD] = EMBEDDING} or nil})
end

return parameters
