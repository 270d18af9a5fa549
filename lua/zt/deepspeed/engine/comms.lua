--- The statistics of DeepSpeed's comms_logger: calls and times of everything that rank 0 exchanges with other ranks, by kind of
-- action, and the bytes that it sends per step.

local check = require "zt.check"
local class = require "zt.class"
local core = require "zt.core"
local text = require "zt.text"
local trace = require "zt.run.trace"

local LAYERS = "layers" -- exchanges within layers, such as the dispatch of tokens to experts

local Comms = class.new "Comms"

function Comms:init() self.steps, self.kinds = 0, {} end

function Comms:sums_of(name)
  self.kinds[name] = self.kinds[name] or {calls = 0, thread = 0, transfer = 0}
  return self.kinds[name]
end

--- Adds the events of a step's trace. Returns the sums of this step alone: {[kind] = {calls =, thread =, transfer =}} in ms.
-- `thread` is the time of the rank's thread, with its waits. `transfer` is the time beside it.
function Comms:add(events)
  local step = Comms()
  self.steps = self.steps + 1
  for _, event in ipairs(core.json.decode("[" .. events .. "]")) do
    if event.cat == "communication" and event.dur then
      local action, waits = event.name:gsub("^wait ", "")
      local kind = trace.is_exchange(event) and LAYERS or action:match "^%S+"
      for _, sums in ipairs{self:sums_of(kind), step:sums_of(kind)} do
        local place = event.tid == 0 and "thread" or "transfer"
        sums[place] = sums[place] + event.dur / 1000
        if event.tid == 0 and waits == 0 then sums.calls = sums.calls + 1 end
      end
    end
  end
  return step.kinds
end

--- Returns a step's sums as text in one line.
function Comms.line(kinds)
  local words = {}
  for _, kind in ipairs(check.sorted_keys(kinds)) do
    local sums = kinds[kind]
    words[#words + 1] = ("%s %d x, thread %.2f ms, transfer %.2f ms"):format(kind, sums.calls, sums.thread, sums.transfer)
  end
  return #words > 0 and table.concat(words, "; ") or "nothing was sent"
end

--- Returns the sums of all steps as a table of text. `sent` has the bytes of a step by kind of action or of layer.
function Comms:text(sent)
  local bytes = {}
  for name, count in pairs(sent) do
    local kind = self.kinds[name] and name or LAYERS
    self:sums_of(kind)
    bytes[kind] = (bytes[kind] or 0) + count
  end
  local rows = {{"action", "calls", "thread ms", "transfer ms", "ms per call", "sent per step"}}
  for _, kind in ipairs(check.sorted_keys(self.kinds)) do
    local sums = self.kinds[kind]
    local mean = sums.calls > 0 and ("%.3f"):format(math.max(sums.thread, sums.transfer) / sums.calls) or "-"
    rows[#rows + 1] = {kind, sums.calls, ("%.2f"):format(sums.thread), ("%.2f"):format(sums.transfer), mean,
                       text.bytes(bytes[kind] or 0)}
  end
  return ("communication of rank 0 in %d steps\n%s"):format(self.steps, text.columns(rows))
end

return Comms
