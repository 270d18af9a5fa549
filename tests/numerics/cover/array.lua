--- Covering arrays: few combinations of values such that each pair of values of two dimensions that can occur together does.
--
-- A dimension is {name, {value, ...}}, a combination {name = value, ...}. `is_allowed(combination)` also gets partial ones; it
-- refuses those that no further values can make possible. All functions are pure: the same input gives the same combinations.
local check = require "zt.check"
local Dice = require "draw.dice"

local array = {}

-- Calls fn(one, value, other, other_value) for each pair of values of two dimensions.
local function each_pair(dimensions, fn)
  for i, one in ipairs(dimensions) do
    for j = i + 1, #dimensions do
      local other = dimensions[j]
      for _, a in ipairs(one[2]) do
        for _, b in ipairs(other[2]) do fn(one[1], a, other[1], b) end
      end
    end
  end
end

local function key_of(one, a, other, b) return ("%s=%s %s=%s"):format(one, tostring(a), other, tostring(b)) end

-- Calls fn(key) for each pair of two dimensions of which a combination has values; if `name` is given, for those with that
-- dimension.
local function each_key(dimensions, combination, fn, name)
  for i, one in ipairs(dimensions) do
    for j = i + 1, #dimensions do
      local other = dimensions[j]
      local a, b = combination[one[1]], combination[other[1]]
      local is_wanted = not name or one[1] == name or other[1] == name
      if a ~= nil and b ~= nil and is_wanted then fn(key_of(one[1], a, other[1], b)) end
    end
  end
end

local function is_open(dimensions, left, combination, name)
  local count = 0
  each_key(dimensions, combination, function(key) count = count + (left[key] and 1 or 0) end, name)
  return count
end

-- Sets the remaining dimensions one after the other, each to the allowed value with the most open pairs. Returns false if none is
-- allowed.
local function complete(dimensions, left, is_allowed, dice, combination)
  local order = {}
  for _, dimension in ipairs(dimensions) do
    if combination[dimension[1]] == nil then order[#order + 1] = dimension end
  end
  for _, dimension in ipairs(dice:shuffle(order)) do
    local name, best, most = dimension[1], nil, -1
    local values = {}
    for i, value in ipairs(dimension[2]) do values[i] = value end
    for _, value in ipairs(dice:shuffle(values)) do
      combination[name] = value
      local count = is_allowed(combination) and is_open(dimensions, left, combination, name) or -1
      if count > most then best, most = value, count end
    end
    combination[name] = best
    if best == nil then return false end
  end
  return true
end

-- Returns a combination with the values of `start`. Throws if there is none: `is_allowed` then allows too much.
local function completed(dimensions, left, is_allowed, dice, start)
  for _ = 1, 100 do
    local combination = {}
    for name, value in pairs(start) do combination[name] = value end
    if complete(dimensions, left, is_allowed, dice, combination) then return combination end
  end
  local parts = {}
  for _, name in ipairs(check.sorted_keys(start)) do parts[#parts + 1] = name .. "=" .. tostring(start[name]) end
  error("no combination has " .. table.concat(parts, " "), 0)
end

-- Returns the pairs that some combination has: {key = {name = value, name = value}}.
local function possible_pairs(dimensions, is_allowed)
  local pairs_of = {}
  each_pair(dimensions, function(one, a, other, b)
    local start = {[one] = a, [other] = b}
    if is_allowed(start) then pairs_of[key_of(one, a, other, b)] = start end
  end)
  return pairs_of
end

--- Returns the number of pairs of values that can occur together.
function array.pairs(dimensions, is_allowed) return #check.sorted_keys(possible_pairs(dimensions, is_allowed)) end

--- Returns combinations that have each possible pair.
function array.pairwise(dimensions, is_allowed, seed)
  local dice, left, found = Dice.new(seed), possible_pairs(dimensions, is_allowed), {}
  for _, key in ipairs(check.sorted_keys(left)) do
    if left[key] then
      local best, most
      for _ = 1, 8 do
        local combination = completed(dimensions, left, is_allowed, dice, left[key])
        local count = is_open(dimensions, left, combination)
        if not most or count > most then best, most = combination, count end
      end
      each_key(dimensions, best, function(done) left[done] = nil end)
      found[#found + 1] = best
    end
  end
  return found
end

--- Returns the combinations of all values of the dimensions `names`, each completed by values of the others.
function array.product(dimensions, names, is_allowed, seed)
  local dice, found, starts = Dice.new(seed), {}, {{}}
  for _, dimension in ipairs(dimensions) do
    for _, name in ipairs(names) do
      if dimension[1] == name then
        local longer = {}
        for _, start in ipairs(starts) do
          for _, value in ipairs(dimension[2]) do
            local more = {[name] = value}
            for key, given in pairs(start) do more[key] = given end
            if is_allowed(more) then longer[#longer + 1] = more end
          end
        end
        starts = longer
      end
    end
  end
  for _, start in ipairs(starts) do found[#found + 1] = completed(dimensions, {}, is_allowed, dice, start) end
  return found
end

--- Returns `count` random combinations.
function array.random(dimensions, is_allowed, seed, count)
  local dice, found = Dice.new(seed), {}
  for i = 1, count do found[i] = completed(dimensions, {}, is_allowed, dice, {}) end
  return found
end

return array
