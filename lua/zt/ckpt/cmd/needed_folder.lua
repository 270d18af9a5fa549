--- The folder that a person names, without slashes at its end. Ends the command with status 2 when it is none.

local native = require "zt.ckpt"

local WHAT = {missing = "there is nothing of that name", file = "it is a file", other = "it is a device, a socket or a FIFO"}

return function(command, path)
  local plain = path:gsub("(.)/+$", "%1")
  local what = WHAT[native.kind(plain)]
  if not what then return plain end
  io.stderr:write(("%s: '%s' is no folder (%s): give the folder of a run\n"):format(command, path, what))
  os.exit(2)
end
