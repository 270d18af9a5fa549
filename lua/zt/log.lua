--- zt.log: messages by level on the standard error output.
--
--   zt.log.info("read %d tokens", n)
--
-- ZT_LOG = debug | info | warn | error | off chooses what is shown; without it, info. Information comes from rank 0 only unless
-- the level is debug; warnings and errors come from every rank.

local core = require "zt.core"
local fail = require "zt.fail"

local LEVELS = {debug = 1, info = 2, warn = 3, error = 4, off = 5}
local NAMES = {"debug", "info", "warn", "error", "off"}

local log = {}

local function level_from_environment()
  local name = os.getenv("ZT_LOG") or "info"
  return LEVELS[name] or fail("ZT_LOG: unknown level '%s'%s", name, core.suggest(name, NAMES))
end

local level = level_from_environment()

--- Shows messages of level `name` and above; returns the level so far.
function log.set_level(name)
  local before = NAMES[level]
  level = LEVELS[name] or fail("zt.log: unknown level '%s'%s", tostring(name), core.suggest(tostring(name), NAMES))
  return before
end

local function write(name, message, ...)
  if LEVELS[name] < level then return end
  local rank = core.world.rank
  if LEVELS[name] < LEVELS.warn and level > LEVELS.debug and rank ~= 0 then return end
  if select("#", ...) > 0 then message = message:format(...) end
  local place = core.world.size > 1 and (" rank %d"):format(rank) or ""
  io.stderr:write(("[%s%s] %s\n"):format(name, place, message))
end

for _, name in ipairs {"debug", "info", "warn", "error"} do
  log[name] = function(message, ...) write(name, message, ...) end
end

-- `log` is also an operator on tensors: zt.log(x).
local logarithm = core.op "log"
return setmetatable(log, {__call = function(_, ...) return logarithm(...) end})
