-- ztoolkit ckpt gc: removes the remains of unfinished saves.

local cli = require "zt.cli"
local core = require "zt.core"
local fail = require "zt.fail"
local native = require "zt.ckpt"
local needed_folder = require "zt.ckpt.cmd.needed_folder"

-- Returns whether a folder is one of zt.run or of ckpt.save.
local function is_run(path)
  return core.exists(path .. "/metrics.jsonl") or #native.list(path) > 0 or #native.partial(path) > 0
end

local function check_run(folder)
  if is_run(folder) then return end
  for _, name in ipairs(native.folders(folder)) do
    if is_run(folder .. "/" .. name) then
      fail("'%s' is no run, but holds runs: give the folder of one of them, such as '%s/%s'", folder, folder, name)
    end
  end
  fail("'%s' is no run: it has neither checkpoints nor metrics.jsonl. Give the folder of a run", folder)
end

return function()
  local o = cli{
    name = "ckpt gc", usage = "ztoolkit ckpt gc",
    about = "Removes the remains of unfinished saves of a run that is not running. A run that resumes does so itself.",
    options = {}, positional = {{"run", "the run's folder"}},
  }
  local folder = needed_folder("ckpt gc", o.run)
  check_run(folder)
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
