--- The table that a JSON file holds; an error that names the file when it holds something else, or is not a regular file.

local core = require "zt.core"
local fail = require "zt.fail"
local fs = require "zt.fs"

return function(path)
  local is_json, value = pcall(core.json.decode, fs.read_regular(path))
  if not is_json then fail("'%s' is no JSON: %s", path, value) end
  if type(value) ~= "table" then fail("'%s' has to hold a JSON object {...}", path) end
  return value
end
