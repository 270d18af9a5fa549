--- Lets all ranks learn of a mistake that only some of them make, before they wait for each other.

local core = require "zt.core"
local fail = require "zt.fail"

local ranks -- the communicator of all ranks: made once, and not with the options, which may be wrong on a rank

-- Returns the first outcome with a mistake, and its rank.
local function first_mistake(outcomes)
  for place, outcome in ipairs(outcomes) do
    if outcome.mistake then return outcome, place - 1 end
  end
end

--- Calls fn() on all ranks. If it fails on one of them, all fail: where it succeeded, the error names the first rank on which it
-- failed. Returns the first result of fn. The second one is a text that must be the same on all ranks, or nil; `what` says of
-- what. Collective over all ranks.
return function(what, fn)
  local is_right, result, alike = pcall(fn)
  local own = {mistake = not is_right and tostring(result) or nil, alike = is_right and alike or nil}
  if core.world.size == 1 or core.world.dry then
    if not is_right then error(own.mistake, 0) end
    return result
  end
  ranks = ranks or require("zt.comm").mesh{dp = -1}:world()
  local outcomes = ranks:gather_values(own)
  if own.mistake then error(own.mistake, 0) end
  local wrong, rank = first_mistake(outcomes)
  if wrong then fail("rank %d: %s", rank, (wrong.mistake:gsub("^%S+:%d+: ", ""))) end
  for place, outcome in ipairs(outcomes) do
    if outcome.alike ~= outcomes[1].alike then
      fail("ranks 0 and %d give different %s, %s and %s: give all ranks the same", place - 1, what, outcomes[1].alike,
           outcome.alike)
    end
  end
  return result
end
