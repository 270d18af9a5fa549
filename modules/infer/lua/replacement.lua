--- Writes the files of a packed model into a folder, in place of those of the model that was there.
--
-- New files are written into a folder within it, and get their places when all of them are complete. The description, without
-- which a folder is no model, leaves before the other files of the old model and comes after those of the new one. So wherever a
-- process ends, the folder has the old model, the new one, or none; and the next run takes its remains for its own.

local core = require "zt.core"
local fail = require "zt.fail"
local fs = require "zt.fs"
local json_file = require "zt.ckpt.cmd.json_file"
local packed = require "zt.ckpt.pretrained.packed"
local tokenizer_files = require "zt.ckpt.tokenizer_files"

local replacement = {}

local DESCRIPTION = packed.DESCRIPTION -- its field `files` lists the files of tensors
local WORK = "quantise.partial"  -- the folder of new files
local REPLACED = "replaced.json" -- in it: the description of the old model, while its files are removed

-- Adds the names of the files of the model that a description, if it is there, describes. One that is not complete describes
-- none.
local function add_described(own, path)
  if not core.exists(path) then return end
  local is_complete, content = pcall(json_file, path)
  if not is_complete then return end
  own[DESCRIPTION], own["generation_config.json"] = true, true
  for _, name in ipairs(tokenizer_files.NAMES) do own[name] = true end
  for _, name in ipairs(type(content.files) == "table" and content.files or {}) do own[name] = true end
end

-- Returns the names in the folder that are those of a packed model or remains of a run, and the others.
local function divided(path)
  local known, own, others = {[DESCRIPTION] = true, [WORK] = true}, {}, {}
  for _, name in ipairs{DESCRIPTION, WORK .. "/" .. DESCRIPTION, WORK .. "/" .. REPLACED} do
    add_described(known, path .. "/" .. name)
  end
  for _, name in ipairs(fs.list(path)) do
    local is_own = known[name] or name:find "^model.*%.safetensors%.partial$" -- by a version without WORK
    table.insert(is_own and own or others, name)
  end
  return own, others
end

--- Fails unless a packed model can be written to a folder: one that is new or empty, has remains of a run that was ended or, with
-- overwrite, a packed model.
function replacement.check(path, overwrite)
  if path:find "%.safetensors$" then fail("'%s' is the name of a file: give a folder, in which to write the files", path) end
  if not core.exists(path) then return end
  local own, others = divided(path)
  local is_model = core.exists(path .. "/" .. DESCRIPTION)
  if #others > 0 and #own == 0 then
    fail("'%s' holds other files than those of a packed model, which could be lost: give a new folder", path)
  end
  if is_model and not overwrite then fail("'%s' holds a packed model already: give another folder, or --overwrite", path) end
  if #others > 0 then
    fail("'%s' holds '%s' besides %s, and it could be lost: give a new folder", path, others[1],
         is_model and "a packed model" or "the remains of a run of quantise")
  end
end

-- Removes the files of a folder that has no folders.
local function clear(folder)
  if not core.exists(folder) then return end
  for _, name in ipairs(fs.list(folder)) do fs.remove(folder .. "/" .. name) end
  fs.remove(folder)
end

local function move(from, to)
  local is_moved, reason = os.rename(from, to)
  if not is_moved then fail("cannot move '%s' to '%s': %s", from, to, tostring(reason)) end
end

-- Removes the files of a packed model, and remains, but not the folder WORK.
local function remove_own(path)
  for _, name in ipairs((divided(path))) do
    if name ~= WORK then fs.remove(path .. "/" .. name) end
  end
end

-- Gives the files in WORK the places of the old model's.
local function replace(path)
  local work = path .. "/" .. WORK
  local names = fs.list(work)
  if core.exists(path .. "/" .. DESCRIPTION) then move(path .. "/" .. DESCRIPTION, work .. "/" .. REPLACED) end
  remove_own(path)
  for _, name in ipairs(names) do
    if name ~= DESCRIPTION then move(work .. "/" .. name, path .. "/" .. name) end
  end
  move(work .. "/" .. DESCRIPTION, path .. "/" .. DESCRIPTION)
  clear(work)
end

--- Calls fill(folder), which writes all files of a packed model into this folder, and makes them the files of the folder `path`,
-- which `check` has let pass. If `fill` fails, the folder is as before.
function replacement.write(path, fill)
  local is_new, work = not core.exists(path), path .. "/" .. WORK
  if not is_new and not core.exists(path .. "/" .. DESCRIPTION) then remove_own(path) end
  clear(work)
  core.mkdir_p(work)
  local is_filled, reason = pcall(fill, work)
  if not is_filled then
    clear(work)
    if is_new then os.remove(path) end
    error(reason, 0)
  end
  replace(path)
end

return replacement
