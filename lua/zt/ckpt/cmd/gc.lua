-- ztoolkit ckpt gc: what saves that died have left.

local cli = require "zt.cli"
local core = require "zt.core"
local native = require "zt.ckpt"

return function()
  local o = cli{
    name = "ckpt gc", usage = "ztoolkit ckpt gc",
    about = "Removes what saves that died have left, of a run that does not run now. A run that goes on does it itself.",
    options = {}, positional = {{"run", "the run's folder"}},
  }
  if not core.exists(o.run) then
    io.stderr:write(("ckpt gc: there is no folder '%s'\n"):format(o.run))
    os.exit(2)
  end
  local removed = native.gc(o.run)
  for _, name in ipairs(removed) do print(("removed %s/%s"):format(o.run, name)) end
  if #removed == 0 then print "nothing to remove" end
end
