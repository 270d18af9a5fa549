--- The table `zt`: tensors and operators of zt.core (written in C++), and what is written in Lua.

local core = require "zt.core"
local check = require "zt.check"

local zt = {
  check_options = check.options,
  class = require "zt.class",
  cli = require "zt.cli",
  fs = require "zt.fs",
  generate = require "zt.generate",
  log = require "zt.log",
  memory_text = require "zt.memory",
  plot = require "zt.plot",
  run = require "zt.run",
  text = require "zt.text",
}

-- Operators by name (zt.cat, zt.randn), programs and trainers. An unknown name is core's error, with the nearest one.
return setmetatable(zt, {__index = core})
