--- The script that this process runs, as it was when it started: {text = ...}; empty where there is none.

local core = require "zt.core"
local fs = require "zt.fs"

local path = arg and arg[0]
if not path or not core.exists(path) then return {} end
return {text = fs.read(path)}
