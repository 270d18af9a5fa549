--- Saves and restores the generator of a script's own random numbers (zt.randn and the like). Layers and data need no generator:
-- their random numbers are functions of seed and step.

local core = require "zt.core"

local rng = {}

--- Returns the list of all ranks' states, or of one state if all are equal. Collective.
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

--- Restores this rank's state. A rank that was not in the save gets rank 0's state.
function rng.restore(list)
  if type(list) == "table" and #list > 0 then core.set_random_state(list[core.world.rank + 1] or list[1]) end
end

return rng
