-- ztoolkit ckpt verify: compares every byte of a checkpoint with its checksum.

local cli = require "zt.cli"
local folder_of = require "zt.ckpt.cmd.folder"
local native = require "zt.ckpt"

return function()
  local o = cli{
    name = "ckpt verify", usage = "ztoolkit ckpt verify",
    about = "Reads all bytes of a checkpoint and compares them with their checksums. Status 1 if any differ.",
    options = {}, positional = {{"checkpoint", "a checkpoint's folder, or a run's folder for its latest one"}},
  }
  local folder = folder_of(o.checkpoint)
  local wrong = native.verify(folder)
  for _, line in ipairs(wrong) do print(line) end
  if #wrong > 0 then os.exit(1) end
  print(("%s: all bytes are as they were saved"):format(folder))
end
