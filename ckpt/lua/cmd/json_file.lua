--- Returns the table that a JSON file holds, and the file's text. An error that names the file if it holds something else or is
-- not a regular file.

local core = require "zt.core"
local fail = require "zt.fail"
local fs = require "zt.fs"
local native = require "zt.ckpt"

return function(path)
  local kind, phrase = native.kind(path)
  if kind == "folder" or kind == "other" then
    fail("cannot read '%s': it is %s, not a regular file. Give the path of a file on disk", path, phrase)
  end
  local content = fs.read(path)
  local is_json, value = pcall(core.json.decode, content)
  if not is_json then fail("'%s' is no JSON: %s", path, value) end
  if type(value) ~= "table" then fail("'%s' has to hold a JSON object {...}", path) end
  return value, content
end
