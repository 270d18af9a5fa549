--- Converts DeepSpeed's limits, which count elements of parameters, to zero.shard's options, which count units.

local units = {}

local ALIGN = 32 -- elements: in its unit, a parameter starts at a multiple of this

local function aligned(numel) return math.ceil(numel / ALIGN) * ALIGN end

--- Returns the number of elements per unit of `model` that a rank holds, in the order of the model: {numel, ...}.
function units.sizes(model)
  local names, size_of = {}, {}
  for _, param in ipairs(model:parameters()) do
    local so_far = size_of[param.unit]
    if not so_far then names[#names + 1] = param.unit end
    size_of[param.unit] = aligned(so_far or 0) + param.room
  end
  local sizes = {}
  for index, name in ipairs(names) do sizes[index] = size_of[name] end
  return sizes
end

local function sorted(sizes, is_before)
  local out = {unpack(sizes)}
  table.sort(out, is_before)
  return out
end

--- Returns `persist_below` of zero.shard: units of up to `limit` elements stay gathered, the smallest first, while their sum is
-- at most `total` elements (nil means no limit).
function units.persist_below(sizes, limit, total)
  if limit == 0 then return 0 end
  local held = 0
  for _, numel in ipairs(sorted(sizes)) do
    if numel > limit then break end
    held = held + numel
    if total and held > total then return numel end
  end
  return limit + 1
end

--- Returns `prefetch` of zero.shard: the least number n such that the n largest units hold at least `elements` elements. Units
-- gathered ahead then hold less than `elements` plus one unit. Units below `persist_below` are always gathered and do not count.
function units.prefetch(sizes, elements, persist_below)
  local count, held = 0, 0
  for _, numel in ipairs(sorted(sizes, function(a, b) return a > b end)) do
    if held >= elements or numel < persist_below then break end
    count, held = count + 1, held + numel
  end
  return count
end

return units
