--- Shows progress: a bar on a terminal, plain lines elsewhere.

local line = require "zt.run.line"
local text = require "zt.text"

local Progress = {}
Progress.__index = Progress

local REDRAW_SECONDS = 0.1
local BAR_CELLS = 24

--- Returns a progress display. Options: `name` begins the plain lines; `total` is the number of steps, nil if unknown;
-- `is_terminal` selects the bar; `every` is the number of seconds between two lines; `show` lists keys that are shown besides
-- loss, validation_loss and tokens_per_second; `out` has `write` and `flush`; `now` returns seconds.
local function new(options)
  local self = setmetatable({
    name = options.name, total = options.total, is_terminal = options.is_terminal, every = options.every, out = options.out,
    now = options.now, started = options.now(), shown = -math.huge, width = 0, latest = {}, names = {}, extra = {},
  }, Progress)
  for index, name in ipairs(line.SHOWN) do self.names[index], self.names[name] = name, true end
  for _, name in ipairs(options.show or {}) do
    if not self.names[name] then
      self.names[#self.names + 1], self.extra[#self.extra + 1] = name, name
    end
  end
  return self
end

-- Estimates the seconds to the end from the mean time per step so far. Returns nil where there is no estimate.
function Progress:left(step)
  if not self.total or step <= self.first_step or step >= self.total then return nil end
  local per_step = (self.now() - self.first_time) / (step - self.first_step)
  return per_step * (self.total - step)
end

local function field(value, format) return value and format:format(value) or nil end

function Progress:describe(step, left)
  local parts = {
    self.total and ("step %d/%d"):format(step, self.total) or ("step %d"):format(step),
  }
  local fields = self.latest
  parts[#parts + 1] = field(fields.loss, "loss %.4f")
  parts[#parts + 1] = field(fields.validation_loss, "validation %.4f")
  for _, name in ipairs(self.extra) do parts[#parts + 1] = field(fields[name], (name:gsub("%%", "%%%%")) .. " %.4g") end
  parts[#parts + 1] = fields.tokens_per_second and text.count(fields.tokens_per_second) .. " tokens/s" or nil
  parts[#parts + 1] = left and text.duration(left) .. " left" or nil
  return table.concat(parts, "  ")
end

function Progress:bar(step)
  if not self.total then return "" end
  local full = math.floor(BAR_CELLS * math.min(step / self.total, 1))
  return ("[%s%s] "):format(("="):rep(full), (" "):rep(BAR_CELLS - full))
end

function Progress:draw(left)
  self.shown, self.is_pending = self.now(), false
  local words = self:describe(self.step, left)
  if self.is_terminal then
    words = self:bar(self.step) .. words
    self.out:write("\r", words, (" "):rep(self.width - #words))
    self.width = #words
  else
    self.out:write(self.name, ": ", words, "\n")
  end
  self.out:flush()
end

--- Shows that `step` steps are done. `fields` may hold loss, validation_loss, tokens_per_second and other keys that are shown.
-- The plain line of the last step waits for `close`, because a validation may follow.
function Progress:update(step, fields)
  local now = self.now()
  for _, name in ipairs(self.names) do
    local value = line.value(fields, name)
    if value ~= nil then self.latest[name] = value end
  end
  if not self.first_step then self.first_step, self.first_time = step, now end
  self.step, self.is_pending = step, true
  local is_last = self.total ~= nil and step >= self.total
  local interval = self.is_terminal and REDRAW_SECONDS or self.every
  if is_last and self.is_terminal or not is_last and now - self.shown >= interval then self:draw(self:left(step)) end
end

--- Forgets the values that were shown, because the run has removed their steps.
function Progress:forget() self.latest, self.is_pending = {}, false end

--- Shows the last step with its newest values, if they are not shown yet, and ends the line of the bar, so that the next output
-- begins on a new line.
function Progress:close()
  if self.is_pending then self:draw() end
  if self.is_terminal and self.width > 0 then
    self.out:write("\n")
    self.out:flush()
    self.width = 0
  end
end

return {new = new}
