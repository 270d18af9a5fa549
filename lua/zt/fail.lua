--- Errors that point to the script: `fail` raises with the file and line of the nearest caller outside this folder, so that a
-- wrong option is reported where it was written and not in the library function that found it.

local here = debug.getinfo(1, "S").source:match("^(.*/)") or "@"

--- Raises an error. `message` says what is wrong, why, and what to do; further arguments are for string.format.
local function fail(message, ...)
  if select("#", ...) > 0 then message = message:format(...) end
  local level = 2
  local info = debug.getinfo(level, "S")
  while info and (info.what == "C" or info.source:sub(1, #here) == here) do
    level = level + 1
    info = debug.getinfo(level, "S")
  end
  error(message, info and level or 0)
end

return fail
