--- zt.log: writes messages, each with a level, to standard error.
--
--   zt.log.info("read %d tokens", n)
--
-- ZT_LOG = debug | info | warn | error | off is the lowest level that is shown; the default is info. Every rank shows warnings
-- and errors. Only rank 0 shows info messages, unless the level is debug.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"

local log = {}

--- Shows messages of level `name` and above, on all ranks of this process. Returns the previous level.
log.set_level = core.set_log_level

for _, name in ipairs {"debug", "info", "warn", "error"} do
  log[name] = function(message, ...)
    check.argument("zt.log." .. name, "the message", "string", message)
    if select("#", ...) > 0 then
      local is_done, text = pcall(string.format, message, ...)
      if not is_done then
        local number, why = text:match "bad argument #(%d+).-%((.*)%)"
        fail("zt.log.%s: the format '%s' does not fit %s", name, message,
             number and ("value %d: %s"):format(number - 1, why) or "its values: " .. text)
      end
      message = text
    end
    core.log_message(name, message)
  end
end

-- `log` is also an operator on tensors: zt.log(x).
local logarithm = core.op "log"
return setmetatable(log, {__call = function(_, ...) return logarithm(...) end})
