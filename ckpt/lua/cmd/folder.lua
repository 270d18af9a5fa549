--- Returns the folder of the checkpoint that a user names by its own folder, or by a run's folder for the latest one. Ends the
-- command with status 2 if there is none.

local incomplete = require "zt.ckpt.loading.incomplete"
local needed_folder = require "zt.ckpt.cmd.needed_folder"

return function(path)
  local folder = incomplete.find(needed_folder("ckpt", path))
  if folder then return folder end
  io.stderr:write(("ckpt: there is no checkpoint in '%s': give its own folder, or that of a run that has one\n"):format(path))
  os.exit(2)
end
