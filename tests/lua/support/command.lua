-- Returns a function that runs `ztoolkit SUBCOMMAND ...` and returns its output and its exit status. The command is a separate
-- process, not a rank of this test. It reads `input`, a text; nil: nothing.
local zt = require "zt"

local function run(subcommand, input, ...)
  local words = {}
  for index, word in ipairs {...} do words[index] = "'" .. word .. "'" end
  local script, given = os.tmpname(), os.tmpname()
  zt.write_file(given, input or "")
  zt.write_file(script, 'program=$(readlink "/proc/$PPID/exe")\nunset ${!OMPI_*} ${!PMIX_*}\n"$program" '
    .. subcommand .. " " .. table.concat(words, " ") .. " 2>&1 <" .. given .. "\necho status $?\n")
  local pipe = io.popen("exec bash " .. script)
  local output = pipe:read "*a"
  pipe:close()
  os.remove(script)
  os.remove(given)
  return (output:gsub("status %d+\n$", "")), tonumber(output:match "status (%d+)\n$")
end

return function(subcommand, input) return function(...) return run(subcommand, input, ...) end end
