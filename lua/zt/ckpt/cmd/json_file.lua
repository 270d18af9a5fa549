--- The table that a JSON file holds; an error that names the file when it holds something else, or is not a regular file.

local core = require "zt.core"
local fail = require "zt.fail"
local fs = require "zt.fs"
local native = require "zt.ckpt"

local INSTEAD = {folder = "a folder", other = "a FIFO, a socket or a device"}

return function(path)
  local instead = INSTEAD[native.kind(path)]
  if instead then fail("cannot read '%s': it is %s, not a regular file. Give the path of a file on disk", path, instead) end
  local is_json, value = pcall(core.json.decode, fs.read(path))
  if not is_json then fail("'%s' is no JSON: %s", path, value) end
  if type(value) ~= "table" then fail("'%s' has to hold a JSON object {...}", path) end
  return value
end
