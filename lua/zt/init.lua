--- The table `zt`: tensors, operators, programs and trainers from zt.core (C++), and the Lua files listed below. Everything is in
-- one table, so that the error about an unknown name can suggest any of them.

local core = require "zt.core"
local check = require "zt.check"
require "zt.gemm" -- registers zt.gemm{provider}

local parts = {
  check_options = check.options,
  class = require "zt.class",
  cli = require "zt.cli",
  fs = require "zt.fs",
  generate = require "zt.generate",
  init_inference = require "zt.deepspeed.inference",
  initialize = require "zt.deepspeed.engine",
  log = require "zt.log",
  loss = require "zt.layers.loss",
  memory_text = require "zt.memory",
  metric = require "zt.layers.metric",
  plot = require "zt.run.plot",
  run = require "zt.run", -- reads the script file now, before an edit can change it
  text = require "zt.text",
  transfer = require "zt.transfer",
}

-- Hooks of the binding (zt.set_hook), for what it cannot do alone. These two files register some, too.
core.set_hook("module_names", function() return require("zt.host").modules() end)
core.set_hook("moving_pass", function(options) return require("zt.offload").places(options) end)
require "zt.plan"
require "zt.state"

for name, part in pairs(parts) do core[name] = part end
return core
