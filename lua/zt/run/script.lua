--- The text of the script that this process runs, read at the start: {text = ...}. An empty table if there is no script.

local core = require "zt.core"
local fs = require "zt.fs"

local path = arg and arg[0]
if not path or not core.exists(path) then return {} end
return {text = fs.read(path)}
