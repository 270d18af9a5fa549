--- Returns the path of a folder that a user names, without slashes at its end. Ends the command with status 2 if it is no folder.

local native = require "zt.ckpt"

return function(command, path)
  local plain = path:gsub("(.)/+$", "%1")
  local kind, phrase = native.kind(plain)
  if kind == "folder" then return plain end
  local what = kind == "missing" and "there is nothing of that name" or "it is " .. phrase
  io.stderr:write(("%s: '%s' is no folder (%s): give the folder of a run\n"):format(command, path, what))
  os.exit(2)
end
