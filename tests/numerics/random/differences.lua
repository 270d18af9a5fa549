--- Compares gradients with finite differences of the loss, on one rank in fp64: finds errors that all layouts share.
local random = require "case"
local Dice = require "draw.dice"

local differences = {}

-- Where a router changes its choice between the points, the loss has no slope: nearer points then decide.
local STEPS = {1e-4, 1e-6, 1e-8}

-- The slope of the loss along one element by central differences of steps h and 2h. Returns it and a bound of its error: the
-- truncation error of the first is h^2 f'''/6, a third of the difference of the two; and each loss is rounded.
local function slope(case, values, name, index, h, fault)
  local flat = values[name]:reshape{-1}
  local start = flat[index]:item()
  local function loss_at(offset)
    flat[index]:fill_(start + offset)
    local loss = random.loss_at(case, values, fault)
    flat[index]:fill_(start)
    return loss
  end
  local up, down, far_up, far_down = loss_at(h), loss_at(-h), loss_at(2 * h), loss_at(-2 * h)
  local near, far = (up - down) / (2 * h), (far_up - far_down) / (4 * h)
  local rounding = 64 * 2.2e-16 * math.max(math.abs(up), 1) / h
  return near, math.abs(near - far) + rounding
end

--- Checks a random element of each trainable parameter. Returns {text = nil or what differs, checked = number}.
function differences.check(case, variant)
  local dice = Dice.new(case.seed)
  local start = random.start_values(case, variant.fault)
  local result = {checked = 0}
  for _, parameter in ipairs(start.trainable) do
    local numel = start.values[parameter]:numel()
    local index = dice:below(numel)
    local gradient = start.gradients[parameter]:reshape{-1}[index]:item()
    local is_near, found, bound
    for _, h in ipairs(STEPS) do
      found, bound = slope(case, start.values, parameter, index, h, variant.fault)
      is_near = math.abs(found - gradient) <= bound
      if is_near then break end
    end
    result.checked = result.checked + 1
    if not is_near then
      result.text = ("the gradient of %s[%d] is %.12g, finite differences give %.12g within %.3g")
        :format(parameter, index, gradient, found, bound)
      return result
    end
  end
  return result
end

return differences
