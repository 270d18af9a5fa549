--- Errors that point to the script: `fail` raises with the file and line of the nearest caller outside this folder, so that a
-- wrong option is reported where it was written and not in the library function that found it. Errors of C++ do the same.

local core = require "zt.core"

core.library_folder(debug.getinfo(1, "S").source:match("^@(.*/)") or "./")

--- Raises an error. `message` says what is wrong, why, and what to do; further arguments are for string.format.
local function fail(message, ...)
  if select("#", ...) > 0 then message = message:format(...) end
  error(core.script_position() .. message, 0)
end

return fail
