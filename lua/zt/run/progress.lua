--- Shows progress: a bar on a terminal, plain lines elsewhere.

local text = require "zt.text"

local Progress = {}
Progress.__index = Progress

local REDRAW_SECONDS = 0.1
local BAR_CELLS = 24
local FIELDS = {"loss", "validation_loss", "tokens_per_second"}

--- Returns a progress display. Options: `name` begins the plain lines; `total` is the number of steps, nil if unknown;
-- `is_terminal` selects the bar; `every` is the number of seconds between two lines; `out` has `write` and `flush`; `now` returns
-- seconds.
local function new(options)
  return setmetatable({
    name = options.name, total = options.total, is_terminal = options.is_terminal, every = options.every, out = options.out,
    now = options.now, started = options.now(), shown = -math.huge, width = 0, latest = {},
  }, Progress)
end

-- Estimates the seconds to the end from the mean time per step so far. Returns nil where there is no estimate.
function Progress:left(step)
  if not self.total or step <= self.first_step or step >= self.total then return nil end
  local per_step = (self.now() - self.first_time) / (step - self.first_step)
  return per_step * (self.total - step)
end

local function field(value, format) return value and format:format(value) or nil end

function Progress:describe(step)
  local parts = {
    self.total and ("step %d/%d"):format(step, self.total) or ("step %d"):format(step),
  }
  local left, fields = self:left(step), self.latest
  local extra = {
    field(fields.loss, "loss %.4f") or false,
    field(fields.validation_loss, "validation %.4f") or false,
    fields.tokens_per_second and text.count(fields.tokens_per_second) .. " tokens/s" or false,
    left and text.duration(left) .. " left" or false,
  }
  for _, part in ipairs(extra) do
    if part then parts[#parts + 1] = part end
  end
  return table.concat(parts, "  ")
end

function Progress:bar(step)
  if not self.total then return "" end
  local full = math.floor(BAR_CELLS * math.min(step / self.total, 1))
  return ("[%s%s] "):format(("="):rep(full), (" "):rep(BAR_CELLS - full))
end

--- Shows that `step` steps are done. `fields` may hold loss, validation_loss and tokens_per_second.
function Progress:update(step, fields)
  local now = self.now()
  for _, name in ipairs(FIELDS) do self.latest[name] = fields[name] or self.latest[name] end
  if not self.first_step then self.first_step, self.first_time = step, now end
  local is_last = self.total ~= nil and step >= self.total
  local interval = self.is_terminal and REDRAW_SECONDS or self.every
  if now - self.shown < interval and not is_last then return end
  self.shown = now
  local line = self:describe(step)
  if self.is_terminal then
    line = self:bar(step) .. line
    self.out:write("\r", line, (" "):rep(self.width - #line))
    self.width = #line
  else
    self.out:write(self.name, ": ", line, "\n")
  end
  self.out:flush()
end

--- Ends the line of the bar, so that the next output begins on a new line.
function Progress:close()
  if self.is_terminal and self.width > 0 then
    self.out:write("\n")
    self.out:flush()
    self.width = 0
  end
end

return {new = new}
