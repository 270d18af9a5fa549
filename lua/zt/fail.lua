--- Errors that point to the script. `fail` names the file and line of the nearest caller outside this folder: a wrong option is
-- reported where the script gives it, not in the library function that finds it. C++ errors do the same.

local core = require "zt.core"

core.library_folder(debug.getinfo(1, "S").source:match("^@(.*/)") or "./")

--- Raises an error. `message` says what is wrong, why, and what to do. Further arguments fill it by string.format.
local function fail(message, ...)
  if select("#", ...) > 0 then message = message:format(...) end
  error(core.script_position() .. message, 0)
end

return fail
