-- Tests the curves of ztoolkit report: long ones are thinned, and keep what matters.
local lu = require "luaunit"
local zt = require "zt"
local new_series = require "zt.run.report.series"

local TestSeries = {}

-- Returns a series with the values of a function at `count` steps.
local function filled(count, value_at)
  local series = new_series()
  for step = 0, count - 1 do series:add(step, value_at(step)) end
  return series
end

local function curve_of(series, most) return zt.json.decode(series:json(most)) end

function TestSeries:test_a_short_curve_has_all_values()
  local curve = curve_of(filled(2048, function(step) return step * step end), 4000)
  lu.assertEquals(#curve.x, 2048)
  lu.assertEquals({curve.x[1], curve.x[2048], curve.y[3], curve.m}, {0, 2047, 4})
end

function TestSeries:test_gaps()
  local series = filled(6, function(step) return ({[2] = 0 / 0, [3] = 1 / 0})[step] or step ~= 4 and step or nil end)
  lu.assertEquals(series:json(10), '{"x":[0,1,2,3,4,5],"y":[0,1,null,null,null,5]}')
  lu.assertEquals({series.count, series.gaps, series.last, series.least}, {3, 3, 5, 0})
  lu.assertEquals(filled(4, function() return nil end):json(1), '{"x":[0,0],"y":[null,null],"m":[null]}')
end

-- A peak of one step among 100,000 is seen, and so are the ends of the curve. Means are those of the buckets' values.
function TestSeries:test_a_long_curve()
  local series = filled(100000, function(step) return step == 61234 and 1000 or step == 71234 and -1000 or step end)
  local curve = curve_of(series, 700)
  lu.assertTrue(#curve.m <= 701 and #curve.m > 300, #curve.m)
  lu.assertEquals(#curve.x, 2 * #curve.m)
  local found, ascends = {}, true
  for place, step in ipairs(curve.x) do
    found[step] = curve.y[place]
    ascends = ascends and (place == 1 or step >= curve.x[place - 1])
  end
  lu.assertTrue(ascends)
  lu.assertEquals({found[61234], found[71234], found[0], found[99999]}, {1000, -1000, 0, 99999})
  local sum, per_bucket = 0, series.per_bucket
  for step = 0, per_bucket - 1 do sum = sum + step end
  lu.assertAlmostEquals(curve.m[1], sum / per_bucket, 1e-4)
  lu.assertEquals({series.least, series.least_step, series.last, series.count}, {-1000, 71234, 99999, 100000})
end

-- Gaps among the values of a bucket change neither its ends nor its mean; a bucket of gaps only is a gap.
function TestSeries:test_gaps_of_a_long_curve()
  local series = filled(100000, function(step) return step % 2 == 0 and (step < 40000 or step >= 60000) and 5 or nil end)
  local curve = curve_of(series, 1000)
  for place, step in ipairs(curve.x) do
    local is_gap = step > 40000 + series.per_bucket and step < 60000 - series.per_bucket
    if is_gap then lu.assertNil(curve.y[place]) elseif step < 40000 then lu.assertEquals(curve.y[place], 5) end
  end
  lu.assertEquals(curve.m[1], 5)
  lu.assertEquals(series.count, 40000)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestSeries", TestSeries}})
