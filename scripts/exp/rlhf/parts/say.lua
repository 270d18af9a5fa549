--- Prints a line, formatted as by string.format, on rank 0.
local zt = require "zt"

return function(...) if zt.world.rank == 0 then print(string.format(...)) end end
