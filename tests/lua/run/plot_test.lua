-- Tests zt.plot: ticks and the SVG text.
local lu = require "luaunit"
local zt = require "zt"

local function count(text, pattern)
  local _, n = text:gsub(pattern, "")
  return n
end

local TestPlot = {}

function TestPlot:test_ticks_cover_the_range_in_round_steps()
  local ticks, format = zt.plot.ticks(0, 1000, 8)
  lu.assertEquals(ticks, {0, 200, 400, 600, 800, 1000})
  lu.assertEquals(format:format(ticks[2]), "200")
  ticks, format = zt.plot.ticks(2.13, 2.57, 6)
  lu.assertTrue(ticks[1] <= 2.13 and ticks[#ticks] >= 2.57)
  lu.assertEquals(format:format(ticks[2]), "2.2")
end

function TestPlot:test_ticks_of_one_value()
  local ticks = zt.plot.ticks(3, 3, 6)
  lu.assertTrue(#ticks >= 2 and ticks[1] < 3 and ticks[#ticks] > 3)
end

function TestPlot:test_ticks_of_small_and_large_ranges()
  local ticks, format = zt.plot.ticks(0, 3e-5, 6)
  lu.assertEquals(format:format(ticks[2]), "0.000005")
  ticks = zt.plot.ticks(-5e8, 5e8, 5)
  lu.assertEquals(ticks[1], -6e8)
end

-- Ranges at the ends of what numbers can hold, and narrower than the numbers in them are exact.
function TestPlot:test_ticks_of_extreme_ranges()
  for _, range in ipairs{{5e15, 5e15}, {6.77e17, 6.77e17}, {1e16, 1e16 + 4}, {9e15, 9e15 + 2}, {0, 1e-110}, {0, 5e-324},
                         {-1e300, 1e300}, {1e-300, 1e300}, {1, 1 + 2 ^ -52}, {-3e17, -3e17}} do
    local ticks, format = zt.plot.ticks(range[1], range[2])
    lu.assertTrue(#ticks >= 2 and #ticks <= 20, #ticks)
    lu.assertTrue(ticks[1] <= range[1] and ticks[#ticks] >= range[2])
    local seen = {}
    for place, tick in ipairs(ticks) do
      lu.assertTrue(place == 1 or tick > ticks[place - 1])
      local label = format:format(tick)
      lu.assertNil(seen[label])
      seen[label] = true
    end
  end
  lu.assertErrorMsgContains("must lie between -1e+300 and 1e+300", zt.plot.ticks, 0, 1e301)
end

function TestPlot:test_an_svg_has_a_line_for_each_series()
  local svg = zt.plot.lines{
    title = "a <b> & c", x = "step", y = "loss",
    series = {{name = "train", points = {{0, 2}, {1, 1}, {2, 0.5}}}, {name = "validation", points = {{2, 0.7}}}},
  }
  lu.assertEquals(count(svg, "<polyline"), 1) -- a series with one point has no line
  lu.assertEquals(count(svg, "<circle"), 4)
  lu.assertStrContains(svg, "a &lt;b&gt; &amp; c")
  lu.assertStrContains(svg, ">validation</text>")
  lu.assertEquals(svg:sub(-7), "</svg>\n")
end

function TestPlot:test_values_that_are_not_finite_are_left_out()
  local svg = zt.plot.lines{series = {{name = "s", points = {{0, 1}, {1, 0 / 0}, {2, math.huge}, {3, 2}}}}}
  lu.assertEquals(count(svg, "<circle"), 2)
  lu.assertNil(svg:find("nan") or svg:find("inf"))
end

function TestPlot:test_no_points_at_all()
  lu.assertStrContains(zt.plot.lines{series = {}}, "</svg>")
  lu.assertStrContains(zt.plot.lines{series = {{name = "s", points = {}}}}, ">s</text>")
end

function TestPlot:test_a_long_series_is_thinned_by_means()
  local points = {}
  for step = 0, 9999 do points[#points + 1] = {step, step % 2} end -- 0, 1, 0, 1: every mean of an even number is 0.5
  local svg = zt.plot.lines{series = {{name = "s", points = points}}}
  local line = svg:match('<polyline points="([^"]*)"')
  lu.assertEquals(count(line, ","), 1000)
  local heights = {}
  for y in line:gmatch(",([%d.]+)") do heights[y] = true end
  local different = 0
  for _ in pairs(heights) do different = different + 1 end
  lu.assertEquals(different, 1)
end

-- Curves of other ranges have axes of their own below, with the same steps.
function TestPlot:test_panels()
  local losses = {{name = "train", points = {{0, 2}, {100, 1}}}}
  local svg = zt.plot.lines{
    series = losses, panels = {{y = "a<b", series = {{name = "aux", points = {{0, 1e6}, {50, 3e6}}}}}, {y = "none", series = {}}},
  }
  lu.assertEquals(svg:match 'height="(%d+)"', "780")
  lu.assertEquals(count(svg, "<polyline"), 2)
  lu.assertStrContains(svg, ">a&lt;b</text>")
  lu.assertStrContains(svg, ">none</text>")
  local first, second = svg:match '<polyline points="([^"]*)".*<polyline points="([^"]*)"'
  lu.assertEquals({first:match "^[%d.]+", first:match " ([%d.]+)"}, {"70.0", "770.0"})
  lu.assertEquals({second:match "^[%d.]+", second:match " ([%d.]+)"}, {"70.0", "420.0"})
  lu.assertTrue(tonumber(second:match ",([%d.]+)") > 480) -- below the losses
  lu.assertEquals(zt.plot.lines{series = losses}:match 'height="(%d+)"', "480")
end

function TestPlot:test_options_are_checked()
  lu.assertErrorMsgContains("zt.plot.lines.panels[1]: option 'y' is missing", zt.plot.lines,
                            {series = {}, panels = {{series = {}}}})
  lu.assertErrorMsgContains("zt.plot.lines.panels[1].series[1].points[1] must be {x, y}", zt.plot.lines,
                            {series = {}, panels = {{y = "", series = {{name = "s", points = {{1}}}}}}})
  local expected = "zt.plot.lines: unknown option 'titel': did you mean 'title'?"
  lu.assertErrorMsgContains(expected, zt.plot.lines, {titel = "x", series = {}})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestPlot", TestPlot}})
