--- The table `zt`: tensors, operators, programs and trainers of zt.core (written in C++), and what is written in Lua. One table,
-- so that the message about an unknown name knows them all.

local core = require "zt.core"
local check = require "zt.check"
require "zt.gemm" -- what multiplies matrices

local parts = {
  check_options = check.options,
  class = require "zt.class",
  cli = require "zt.cli",
  fs = require "zt.fs",
  generate = require "zt.generate",
  initialize = require "zt.deepspeed.engine",
  log = require "zt.log",
  loss = require "zt.loss",
  memory_text = require "zt.memory",
  plot = require "zt.run.plot",
  run = require "zt.run", -- reads the script, before anybody changes it
  text = require "zt.text",
}

-- They complete the binding by hooks.
require "zt.plan"
require "zt.state"

for name, part in pairs(parts) do core[name] = part end
return core
