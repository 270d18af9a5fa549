--- Writes the folder of an adapter: PEFT's two files, and ours with the hash of the base.
--
-- A folder is an adapter if it has adapter_config.json. That file leaves before the others of an adapter that is replaced, and
-- comes after the new ones. So wherever a process ends, the folder has the old adapter, the new one, or none.

local core = require "zt.core"
local fail = require "zt.fail"
local fs = require "zt.fs"
local json_file = require "zt.ckpt.cmd.json_file"
local native = require "zt.ckpt"
local on_rank_zero = require "zt.on_rank_zero"

local adapter_folder = {}

local CONFIG, TENSORS, OWN = "/adapter_config.json", "/adapter_model.safetensors", "/ztoolkit_adapter.json"
local PARTIAL = "/adapter_model.partial.safetensors"
local FORMAT = "ztoolkit adapter 1"
local ONE_FILE = 2 ^ 52 -- bytes

-- An error unless an adapter can be written to a folder.
local function check(folder, overwrite)
  if folder:find "%.safetensors$" then fail("'%s' is the name of a file: give a folder, which gets PEFT's two files", folder) end
  local kind, phrase = native.kind(folder)
  if kind ~= "missing" and kind ~= "folder" then fail("'%s' is no folder (%s): give a folder for the adapter", folder, phrase) end
  for _, name in ipairs{CONFIG, TENSORS} do
    if core.exists(folder .. name) and not overwrite then
      fail("'%s' has an adapter already (%s): give another folder, or overwrite", folder, name:sub(2))
    end
  end
end

-- Gives the new files their names. own: the content of our file, or nil.
local function put_in_place(folder, config, own)
  fs.remove(folder .. CONFIG)
  local is_moved, reason = os.rename(folder .. PARTIAL, folder .. TENSORS)
  if not is_moved then fail("cannot rename '%s%s': %s", folder, PARTIAL, tostring(reason)) end
  if own then core.write_file(folder .. OWN, own) else fs.remove(folder .. OWN) end
  core.write_file(folder .. CONFIG, config)
end

--- Writes the folder, collectively over `mesh` (nil: this rank alone). tensors, provide: as saved.tensors returns them. config:
-- the text of adapter_config.json. base(): returns the table `base` of our file, collectively; nil: there is no such file.
function adapter_folder.write(folder, mesh, tensors, provide, config, base, overwrite)
  local world = mesh and mesh:world()
  local is_new = on_rank_zero(world, function()
    check(folder, overwrite)
    local is_new = not core.exists(folder)
    core.mkdir_p(folder)
    return is_new
  end)
  local is_done, reason = pcall(function()
    local of_base = base and base() or nil
    native.write_safetensors(folder .. PARTIAL, tensors, ONE_FILE, provide, mesh, true)
    on_rank_zero(world, function()
      put_in_place(folder, config, of_base and core.json.encode({format = FORMAT, base = of_base}, 2) .. "\n")
    end)
  end)
  if is_done then return end
  if core.world.rank == 0 then
    os.remove(folder .. PARTIAL)
    if is_new then os.remove(folder) end -- if it is empty
  end
  error(reason, 0)
end

--- Returns what our file of a folder says of the base, {hash =, dtype =}; nil without such a file.
function adapter_folder.base_of(folder)
  if not core.exists(folder .. OWN) then return nil end
  local content = json_file(folder .. OWN)
  local base = content.base
  if content.format ~= FORMAT or type(base) ~= "table" or type(base.hash) ~= "string" or type(base.dtype) ~= "string" then
    fail("'%s%s' is not of the format '%s': save the adapter again, or remove this file, without which the base is not compared",
      folder, OWN, FORMAT)
  end
  return base
end

return adapter_folder
