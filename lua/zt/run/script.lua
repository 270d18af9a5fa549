--- The script that this process runs: {text =, flags =}. `text` was read at the start; nil if there is no script. `flags` has the
-- options of its command line, which zt.cli enters: flags.overwrite = "--overwrite". Messages name no others.

local core = require "zt.core"
local fs = require "zt.fs"

local path = arg and arg[0]
return {text = path and core.exists(path) and fs.read(path) or nil, flags = {}}
