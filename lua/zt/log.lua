--- zt.log: messages by level on the standard error output.
--
--   zt.log.info("read %d tokens", n)
--
-- ZT_LOG = debug | info | warn | error | off chooses what is shown; without it, info. Information comes from rank 0 only unless
-- the level is debug; warnings and errors come from every rank.

local core = require "zt.core"

local log = {}

--- Shows messages of level `name` and above, on all ranks of this process; returns the level so far.
log.set_level = core.set_log_level

for _, name in ipairs {"debug", "info", "warn", "error"} do
  log[name] = function(message, ...)
    if select("#", ...) > 0 then message = message:format(...) end
    core.log_message(name, message)
  end
end

-- `log` is also an operator on tensors: zt.log(x).
local logarithm = core.op "log"
return setmetatable(log, {__call = function(_, ...) return logarithm(...) end})
