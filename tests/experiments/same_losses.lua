-- Fails unless the metrics of two runs hold the same losses and norms, bit for bit:
--   ztoolkit run tests/experiments/same_losses.lua FOLDER NAME NAME
local zt = require "zt"

local function read(name)
  local steps = {}
  for line in io.lines(("%s/%s/metrics.jsonl"):format(arg[1], name)) do
    local step = zt.json.decode(line)
    steps[#steps + 1] = ("step %d: loss %s, norm %s, validation %s"):format(
      step.step, ("%a"):format(step.loss or 0), ("%a"):format(step.grad_norm or 0), ("%a"):format(step.validation_loss or 0))
  end
  return steps
end

local first, second = read(arg[2]), read(arg[3])
if #first == 0 or #first ~= #second then error(("%d lines against %d"):format(#first, #second), 0) end
for index, text in ipairs(first) do
  if text ~= second[index] then error(("%s: %s\n%s: %s"):format(arg[2], text, arg[3], second[index]), 0) end
end
print(("%d lines are equal"):format(#first))
