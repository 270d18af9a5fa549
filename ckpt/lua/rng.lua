--- The generator of a script's own random numbers (zt.randn and the like). Layers and data have none: theirs are functions of
-- seed and step.

local core = require "zt.core"

local rng = {}

--- What a checkpoint keeps: the states of all ranks, or the one that is the same on all. Collective.
function rng.state(mesh)
  local own = core.random_state()
  local all = mesh and mesh:world():gather_values{own} or {{own}}
  local list = {}
  for rank, state in ipairs(all) do list[rank] = state[1] end
  for _, state in ipairs(list) do
    if state ~= list[1] then return list end
  end
  return {own}
end

--- A rank that had no part in the save goes on with rank 0's state.
function rng.restore(list)
  if type(list) == "table" and #list > 0 then core.set_random_state(list[core.world.rank + 1] or list[1]) end
end

return rng
