--- The folder of a checkpoint that a person names: its own, or that of a run, whose latest one is meant.

local core = require "zt.core"
local native = require "zt.ckpt"

return function(path)
  path = path:gsub("/+$", "")
  if core.exists(path .. "/checkpoint.h5") then return path end
  local name = core.exists(path) and native.latest(path)
  if name then return path .. "/" .. name end
  io.stderr:write(("ckpt: there is no checkpoint in '%s': give the folder of a checkpoint, or of a run that has one\n"):format(path))
  os.exit(2)
end
