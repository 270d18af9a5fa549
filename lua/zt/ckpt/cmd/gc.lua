-- ztoolkit ckpt gc: what saves that died have left.

local cli = require "zt.cli"
local native = require "zt.ckpt"

return function()
  local o = cli{
    name = "ckpt gc", usage = "ztoolkit ckpt gc",
    about = "Removes incomplete checkpoints of a run that is not being saved just now.",
    options = {}, positional = {{"run", "the run's folder"}},
  }
  local removed = native.gc(o.run)
  for _, name in ipairs(removed) do print(("removed %s/%s"):format(o.run, name)) end
  if #removed == 0 then print "nothing to remove" end
end
