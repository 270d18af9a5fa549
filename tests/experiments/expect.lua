-- Runs an experiment. Fails unless the last loss that it prints is at most LIMIT:
--   ztoolkit run tests/experiments/expect.lua LIMIT script.lua [args...]
local limit, script = tonumber(arg[1]), arg[2]
arg[0] = script -- luacheck: ignore 122
for index = 1, #arg do arg[index] = arg[index + 2] end -- luacheck: ignore 122

local last
local real_print = print
print = function(...) -- luacheck: ignore 121
  real_print(...)
  for loss in table.concat({...}, " "):gmatch("loss (%-?[%w.]+)") do last = tonumber(loss) or 0 / 0 end
end
dofile(script)

if require("zt").world.rank == 0 and not (last and last <= limit) then
  error(("%s ended with loss %s, expected at most %g"):format(script, tostring(last), limit), 0)
end
