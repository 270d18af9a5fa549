--- Collects the mistakes of a configuration, so that one error lists them all.

local core = require "zt.core"
local fail = require "zt.fail"

local Mistakes = {}
Mistakes.__index = Mistakes

--- Calls fn(...) and returns its first result; if it fails, its message is kept and the result is nil.
function Mistakes:try(fn, ...)
  local is_done, result = pcall(fn, ...)
  if is_done then return result end
  local text, position = tostring(result), core.script_position()
  if text:sub(1, #position) == position then text = text:sub(#position + 1) end
  self.texts[#self.texts + 1] = text
  return nil
end

--- Fails with what was kept; does nothing when that is nothing.
function Mistakes:raise()
  local texts = self.texts
  if #texts == 0 then return end
  if #texts == 1 then fail("%s", texts[1]) end
  fail("the configuration has %d mistakes:\n  %s", #texts, table.concat(texts, "\n  "))
end

return {new = function() return setmetatable({texts = {}}, Mistakes) end}
