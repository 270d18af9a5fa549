--- DeepSpeed counts elements of parameters, zero.shard counts units: turns the one into the other.

local units = {}

local ALIGN = 32 -- a parameter starts at a multiple of that many elements in its unit

local function aligned(numel) return math.ceil(numel / ALIGN) * ALIGN end

--- How many elements the units of `model` hold, in the order of the model: {numel, ...}.
function units.sizes(model)
  local names, size_of = {}, {}
  for _, param in ipairs(model:parameters()) do
    local so_far = size_of[param.unit]
    if not so_far then names[#names + 1] = param.unit end
    size_of[param.unit] = aligned(so_far or 0) + param.numel
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

--- `persist_below` of zero.shard: units of up to `limit` elements stay whole, the smallest first, as long as they hold at most
-- `total` elements altogether (nil: no limit).
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

--- `prefetch` of zero.shard: so many units that even the largest ones hold `elements`, and one less would not. What is gathered
-- ahead is then less than `elements` and one unit more. Units below `persist_below` are always there and do not count.
function units.prefetch(sizes, elements, persist_below)
  local count, held = 0, 0
  for _, numel in ipairs(sorted(sizes, function(a, b) return a > b end)) do
    if held >= elements or numel < persist_below then break end
    count, held = count + 1, held + numel
  end
  return count
end

return units
