--- Errors of records: what is wrong with one line of a file. They are told from other errors, which end the work in any case.

local Bad = {}
Bad.__index = Bad
Bad.__tostring = function(self) return self.message end

local bad = {}

--- Raises an error of a record. Further arguments fill the message by string.format.
function bad.raise(message, ...)
  error(setmetatable({message = select("#", ...) > 0 and message:format(...) or message}, Bad), 0)
end

--- Returns whether an error is one of a record.
function bad.is(failure) return getmetatable(failure) == Bad end

--- Calls a function of the library, whose errors are mistakes of the record. `what` says what is wrong then, `advice` what to do.
-- Returns its result.
function bad.guard(what, advice, fn, ...)
  local is_right, result = pcall(fn, ...)
  if not is_right then bad.raise("%s: %s. %s", what, (tostring(result):gsub("^%S+:%d+: ", "")), advice) end
  return result
end

return bad
