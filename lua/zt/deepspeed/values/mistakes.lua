--- Collects the mistakes of a configuration, so that one error lists them all.

local core = require "zt.core"
local fail = require "zt.fail"

local Mistakes = {}
Mistakes.__index = Mistakes

--- Calls fn(...) and returns its first result. If fn fails, stores its message as a mistake of the key `path` ("" is the top
-- level of the configuration) and returns nil.
function Mistakes:try(path, fn, ...)
  local is_done, result = pcall(fn, ...)
  if is_done then return result end
  self.paths[#self.paths + 1] = path
  local text, position = tostring(result), core.script_position()
  if text:sub(1, #position) == position then text = text:sub(#position + 1) end
  self.texts[#self.texts + 1] = text
  return nil
end

--- Like `try`, for a function that needs all keys at and below `paths`. If one of these keys already has a mistake, returns nil
-- without calling fn, because its complaint would only be a consequence.
function Mistakes:try_with(paths, fn, ...)
  for _, path in ipairs(paths) do
    if self:concerns(path) then return nil end
  end
  return self:try(paths[1], fn, ...)
end

--- Returns whether a key at or below `path` has a mistake. The path "" means only mistakes in the names of top-level keys.
function Mistakes:concerns(path)
  for _, mistaken in ipairs(self.paths) do
    if mistaken == path or path ~= "" and mistaken:sub(1, #path + 1) == path .. "." then return true end
  end
  return false
end

--- Fails with the messages of all mistakes, if there are any.
function Mistakes:raise()
  local texts = self.texts
  if #texts == 0 then return end
  if #texts == 1 then fail("%s", texts[1]) end
  fail("the configuration has %d mistakes:\n  %s", #texts, table.concat(texts, "\n  "))
end

return {new = function() return setmetatable({texts = {}, paths = {}}, Mistakes) end}
