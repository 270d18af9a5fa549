--- Progress lines of `ztoolkit tokenize`.

local core = require "zt.core"

--- Returns a callback that prints a progress line at most every 3 s, and one at the end. started: the time of the beginning.
return function(started)
  local shown = started
  return function(done, total)
    local now = core.now()
    if now - shown < 3 and done < total then return end
    shown = now
    print(string.format("encoded %3.0f %% (%.1f of %.1f MB, %.1f MB/s)", 100 * done / total, done / 1e6, total / 1e6,
                        done / 1e6 / (now - started)))
  end
end
