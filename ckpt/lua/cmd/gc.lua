-- ztoolkit ckpt gc: what saves that died have left.

local cli = require "zt.cli"
local native = require "zt.ckpt"
local needed_folder = require "zt.ckpt.cmd.needed_folder"

return function()
  local o = cli{
    name = "ckpt gc", usage = "ztoolkit ckpt gc",
    about = "Removes what saves that died have left, of a run that does not run now. A run that goes on does it itself.",
    options = {}, positional = {{"run", "the run's folder"}},
  }
  local folder = needed_folder("ckpt gc", o.run)
  local is_held, lock = pcall(native.lock_run, folder) -- what a run that goes on is writing is no garbage
  if not is_held then
    io.stderr:write(("ckpt gc: %s\n"):format(tostring(lock):gsub("\nstack traceback:.*", "")))
    os.exit(1)
  end
  local removed = native.gc(folder)
  lock:release()
  for _, name in ipairs(removed) do print(("removed %s/%s"):format(folder, name)) end
  if #removed == 0 then print "nothing to remove" end
end
