--- zt.log: writes messages, each with a level, to standard error.
--
--   zt.log.info("read %d tokens", n)
--
-- ZT_LOG = debug | info | warn | error | off is the lowest level that is shown; the default is info. Every rank shows warnings
-- and errors. Only rank 0 shows info messages, unless the level is debug.

local core = require "zt.core"

local log = {}

--- Shows messages of level `name` and above, on all ranks of this process. Returns the previous level.
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
