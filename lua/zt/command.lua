--- Runs a subcommand of ztoolkit for the people who call it: their mistakes end it with status 1 and a message, without a
-- traceback of Lua. An error in our own code keeps its traceback: its message begins with its place in the code, which `fail` and
-- C++ leave out of messages where no script has called them.

local core = require "zt.core"

--- Calls `run()`. name: what the message begins with, "ckpt export".
return function(name, run)
  local is_done, failure = xpcall(run, function(message)
    message = tostring(message)
    return message:find "^[^\n:]+:%d+: " and {text = debug.traceback(message, 2)} or {text = message, is_mistake = true}
  end)
  if is_done then return end
  if not failure.is_mistake then error(failure.text, 0) end
  if core.world.rank > 0 then core.sleep(1) end -- a mistake that all ranks share is told by the first one, which ends the others
  io.stderr:write(("%s: %s\n"):format(name, failure.text))
  os.exit(1)
end
