--- Runs `action` on rank 0 and returns its result, a plain value, on every rank. An error of `action` is raised on every rank, so
-- that no rank continues or waits alone. Collective over `ranks`, a communicator; nil means that there is one rank.

local core = require "zt.core"

return function(ranks, action)
  local outcome = {}
  if core.world.rank == 0 then
    local is_done, result = pcall(action)
    if is_done then outcome.result = result else outcome.error = tostring(result) end
  end
  if ranks then outcome = ranks:gather_values(outcome)[1] end
  if outcome.error then error(outcome.error, 0) end
  return outcome.result
end
