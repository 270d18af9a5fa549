--- Lets all ranks learn of a mistake that only some of them make, before they wait for each other.

local core = require "zt.core"
local fail = require "zt.fail"

local mesh -- of all ranks: made once, and not with the options, which may be wrong on a rank

--- Calls fn() on all ranks. If it fails on one of them, all fail: where it succeeded, the error names the first rank on which it
-- failed. Returns the first result of fn. The second one is a text that must be the same on all ranks, or nil; `what` says of
-- what. Collective over all ranks.
return function(what, fn)
  local is_right, result, alike = pcall(fn)
  if core.world.size > 1 and not core.world.dry then
    mesh = mesh or require("zt.comm").mesh{dp = -1}
    local reason = require("zt.infer").agreed(mesh, is_right and "" or (tostring(result):gsub("^%S+:%d+: ", "")))
    if is_right and reason ~= "" then fail("%s", reason) end
  end
  if not is_right then error(tostring(result), 0) end
  local texts = alike and mesh and mesh:world():gather_values(alike) or {}
  for place, text in ipairs(texts) do
    if text ~= texts[1] then
      fail("ranks 0 and %d give different %s, %s and %s: give all ranks the same", place - 1, what, texts[1], text)
    end
  end
  return result
end
