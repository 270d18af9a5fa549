--- One metric of a run over its steps, in bounded memory. Of a long run, neighbouring steps share a bucket, which keeps the least
--- and the largest value with their steps, and the mean. The last value and the least one stay exact.

local MOST_BUCKETS = 2048

local Series = {}
Series.__index = Series

local function new()
  return setmetatable({
    per_bucket = 1, size = 0, held = 0, count = 0, gaps = 0, sum = 0,
    low_step = {}, low = {}, high_step = {}, high = {}, total = {}, values = {},
  }, Series)
end

-- Adds the bucket `from` of a series to the bucket `to` before it.
local function merge(series, to, from)
  local low, high = series.low, series.high
  if series.values[from] == 0 then return end
  if series.values[to] == 0 or low[from] < low[to] then low[to], series.low_step[to] = low[from], series.low_step[from] end
  if series.values[to] == 0 or high[from] > high[to] then high[to], series.high_step[to] = high[from], series.high_step[from] end
  series.total[to] = series.total[to] + series.total[from]
  series.values[to] = series.values[to] + series.values[from]
end

local function put(series, index, step, value)
  local is_number = value ~= nil
  series.low_step[index], series.high_step[index] = step, step
  series.low[index], series.high[index] = value or 0, value or 0
  series.total[index], series.values[index] = value or 0, is_number and 1 or 0
end

local KEPT = {"low_step", "low", "high_step", "high", "total", "values"}

-- Merges neighbouring buckets. All buckets are full while values are added, because MOST_BUCKETS is even.
local function halve(series)
  local half = math.ceil(series.size / 2)
  for index = 1, half do
    local from = 2 * index - 1
    if from < series.size then merge(series, from, from + 1) end
    for _, key in ipairs(KEPT) do series[key][index] = series[key][from] end
  end
  series.size, series.per_bucket = half, 2 * series.per_bucket
end

--- Adds the value of a step. nil, nan and infinities are gaps of the curve.
function Series:add(step, value)
  if value and (value ~= value or math.abs(value) == math.huge) then value = nil end
  if value then
    self.count, self.sum, self.last, self.last_step = self.count + 1, self.sum + value, value, step
    if not self.least or value < self.least then self.least, self.least_step = value, step end
  else
    self.gaps = self.gaps + 1
  end
  if self.size > 0 and self.held < self.per_bucket then
    put(self, self.size + 1, step, value)
    merge(self, self.size, self.size + 1)
    self.held = self.held + 1
    return
  end
  if self.size == MOST_BUCKETS then halve(self) end
  self.size, self.held = self.size + 1, 1
  put(self, self.size, step, value)
end

local function number(value) return ("%.6g"):format(value) end

-- Appends a point to the lists of texts.
local function append(x, y, step, value)
  x[#x + 1], y[#y + 1] = ("%.0f"):format(step), value and number(value) or "null"
end

--- Returns the curve as JSON, {"x": steps, "y": values, "m": means}, with at most `most` buckets and the last value. Without "m",
--- these are all the values. With it, a bucket has two points, and a mean. A null is a gap. Merges buckets for good.
function Series:json(most)
  while self.size > most do halve(self) end
  local x, y, means = {}, {}, {}
  for index = 1, self.size do
    local is_value = self.values[index] > 0
    local first, last = {self.low_step[index], self.low[index]}, {self.high_step[index], self.high[index]}
    if first[1] > last[1] then first, last = last, first end
    append(x, y, first[1], is_value and first[2])
    if self.per_bucket > 1 then
      append(x, y, last[1], is_value and last[2])
      means[#means + 1] = is_value and number(self.total[index] / self.values[index]) or "null"
    end
  end
  if self.per_bucket > 1 and self.last then
    for _ = 1, 2 do append(x, y, self.last_step, self.last) end
    means[#means + 1] = number(self.last)
  end
  local text = ('{"x":[%s],"y":[%s]'):format(table.concat(x, ","), table.concat(y, ","))
  return text .. (#means > 0 and (',"m":[%s]}'):format(table.concat(means, ",")) or "}")
end

return new
