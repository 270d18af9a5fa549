--- Random choices as a pure function of a seed.
local Dice = {}
Dice.__index = Dice

function Dice.new(seed)
  local dice = setmetatable({state = seed % 2147483646 + 1}, Dice)
  for _ = 1, 10 do dice:below(2) end
  return dice
end

--- An integer in [0, n).
function Dice:below(n)
  self.state = (self.state * 48271) % 2147483647
  return math.floor(self.state / 2147483647 * n)
end

--- An integer in [low, high].
function Dice:between(low, high) return low + self:below(high - low + 1) end

function Dice:one_in(n) return self:below(n) == 0 end

--- An element of the list.
function Dice:pick(list) return list[1 + self:below(#list)] end

--- Puts the list in a random order and returns it.
function Dice:shuffle(list)
  for i = #list, 2, -1 do
    local j = self:between(1, i)
    list[i], list[j] = list[j], list[i]
  end
  return list
end

return Dice
