--- Errors for a checkpoint with missing or damaged files: they say which file it is, and how to go on without the checkpoint.

local core = require "zt.core"
local fail = require "zt.fail"
local native = require "zt.ckpt"
local on_rank_zero = require "zt.on_rank_zero"

local MASTER = "checkpoint.h5"

local incomplete = {}

-- Returns what happens after the checkpoint's folder is removed.
local function without(folder)
  local run, own = folder:match "^(.*)/([^/]+)$"
  local newest
  for _, entry in ipairs(run and native.list(run) or {}) do
    if entry.name ~= own and core.exists(("%s/%s/%s"):format(run, entry.name, MASTER)) then newest = entry.name end
  end
  if newest then return ("then the newest one in '%s' is %s, and that run resumes from it"):format(run, newest) end
  return ("then '%s' has no checkpoint, and that run begins anew"):format(run or ".")
end

local function refuse(folder, file)
  fail("the checkpoint '%s' is incomplete: it lacks the file '%s'. Put the file back, or remove the folder '%s': %s", folder,
       file, folder, without(folder))
end

--- Returns the folder of the checkpoint that `path` means, or nil if there is none. Fails if it has no master file. Collective
-- over `mesh`; nil means this process alone.
function incomplete.find(path, mesh)
  local folder = native.find(path, mesh)
  on_rank_zero(mesh and mesh:world(), function()
    local at = (folder or path):gsub("(.)/+$", "%1")
    local is_checkpoint = folder or native.kind(at .. "/shards") == "folder"
    if is_checkpoint and native.kind(at .. "/" .. MASTER) == "missing" then refuse(at, MASTER) end
  end)
  return folder
end

--- Calls `load`, which reads the checkpoint in `folder`, and returns its result. An error about one of the checkpoint's files
-- also says how to go on.
function incomplete.guard(folder, load)
  local is_done, result = pcall(load)
  if is_done then return result end
  local message = tostring(result)
  local begin = message:find("'" .. folder .. "/", 1, true)
  local file = begin and message:match("^[^']+", begin + #folder + 2)
  if not file then error(result, 0) end
  if not core.exists(folder .. "/" .. file) then refuse(folder, file) end
  error(("%s\nIf the checkpoint stays unreadable, remove the folder '%s': %s"):format(message, folder, without(folder)), 0)
end

return incomplete
