-- ztoolkit ckpt gc: removes the remains of unfinished saves.

local cli = require "zt.cli"
local native = require "zt.ckpt"
local needed_folder = require "zt.ckpt.cmd.needed_folder"

return function()
  local o = cli{
    name = "ckpt gc", usage = "ztoolkit ckpt gc",
    about = "Removes the remains of unfinished saves of a run that is not running. A run that resumes does so itself.",
    options = {}, positional = {{"run", "the run's folder"}},
  }
  local folder = needed_folder("ckpt gc", o.run)
  local is_held, lock = pcall(native.lock_run, folder) -- a folder that a running run writes is no garbage
  if not is_held then
    io.stderr:write(("ckpt gc: %s\n"):format(tostring(lock):gsub("\nstack traceback:.*", "")))
    os.exit(1)
  end
  local removed = native.gc(folder)
  lock:release()
  for _, name in ipairs(removed) do print(("removed %s/%s"):format(folder, name)) end
  if #removed == 0 then print "nothing to remove" end
end
