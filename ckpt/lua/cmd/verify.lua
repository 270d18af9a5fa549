-- ztoolkit ckpt verify: every byte against its checksum.

local cli = require "zt.cli"
local folder_of = require "zt.ckpt.cmd.folder"
local native = require "zt.ckpt"

return function()
  local o = cli{
    name = "ckpt verify", usage = "ztoolkit ckpt verify",
    about = "Reads all of a checkpoint and compares it with its checksums. Status 1 if anything is wrong.",
    options = {}, positional = {{"checkpoint", "its folder, or a run's, whose latest one is meant"}},
  }
  local folder = folder_of(o.checkpoint)
  local wrong = native.verify(folder)
  for _, line in ipairs(wrong) do print(line) end
  if #wrong > 0 then os.exit(1) end
  print(("%s is what was saved"):format(folder))
end
