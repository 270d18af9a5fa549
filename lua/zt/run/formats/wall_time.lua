--- Returns the seconds since 1970, with a fraction.

local ffi = require "ffi"

ffi.cdef [[
struct zt_timespec { long seconds, nanoseconds; };
int clock_gettime(int clock, struct zt_timespec *time);
]]

local CLOCK_REALTIME = 0

return function()
  local time = ffi.new "struct zt_timespec"
  ffi.C.clock_gettime(CLOCK_REALTIME, time)
  return tonumber(time.seconds) + tonumber(time.nanoseconds) / 1e9
end
