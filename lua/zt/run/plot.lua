--- zt.plot: line plots as SVG text.
--
--   local svg = zt.plot.lines{
--     title = "loss of gpt", x = "step", y = "loss",
--     series = {{name = "train", points = {{0, 8.3}, {1, 8.1}}}, {name = "validation", points = {}}},
--     panels = {{y = "grad_norm", series = {{name = "grad_norm", points = {{0, 40}, {1, 35}}}}}},
--   }

local check = require "zt.check"
local fail = require "zt.fail"
local new_canvas = require "zt.run.canvas"

local plot = {}

local WIDTH, HEIGHT = 800, 480
local LEFT, RIGHT, TOP, BOTTOM = 70, 30, 48, 56
local PANEL, PANEL_TOP, PANEL_BOTTOM = 150, 24, 26 -- pixels: the height of a panel, and its margins
local COLOURS = {"#1f6fb4", "#d9541e", "#2f8f46", "#8a4fa3", "#7a5a3c", "#c2307e"}
local MOST_POINTS = 1000 -- per series: about one per pixel

local SCHEMA = {
  {"title", "string", "text above the plot", default = ""},
  {"x", "string", "name of the horizontal axis", default = ""},
  {"y", "string", "name of the vertical axis", default = ""},
  {"series", "list", "a list of {name, points = {{x, y}, ...}}", required = true},
  {"panels", "list", "a list of {y, series}, which are drawn below, each with a vertical axis of its own", default = {}},
}

local PANELS = {
  {"y", "string", "name of the panel", required = true},
  {"series", "list", "a list of {name, points = {{x, y}, ...}}", required = true},
}

local SERIES = {
  {"name", "string", "its name in the legend", required = true},
  {"points", "list", "a list of {x, y}", required = true},
}

local MOST = 1e300 -- greater numbers are not drawn: their differences would not be finite

local function is_drawn(value) return value == value and math.abs(value) <= MOST end

-- Returns the distance of ticks, 1, 2 or 5 times a power of ten, so that about `count` of them cover [low, high].
local function tick_step(low, high, count)
  local raw = (high - low) / count
  local power = 10 ^ math.floor(math.log10(raw))
  for _, factor in ipairs {1, 2, 5} do
    if raw <= factor * power * 1.0000001 then return factor * power end
  end
  return 10 * power
end

-- Returns bounds that contain low and high, and are so far apart that the numbers between them differ.
local function widened(low, high)
  local least = math.max(math.max(math.abs(low), math.abs(high)) * 2 ^ -40, 1e-280)
  if high - low >= least then return low, high end
  local pad = low == high and math.max(0.5, least) or least
  return low - pad, high + pad
end

--- Returns the tick values that cover [low, high] in round steps, and a number format that makes their labels differ.
function plot.ticks(low, high, count)
  check.argument("zt.plot.ticks", "the lowest value", "number", low)
  check.argument("zt.plot.ticks", "the highest value", "number", high)
  if count ~= nil then check.argument("zt.plot.ticks", "the number of ticks", "number", count) end
  if not (is_drawn(low) and is_drawn(high)) then
    fail("zt.plot.ticks: the values must lie between -%g and %g, got %g and %g", MOST, MOST, low, high)
  end
  low, high = widened(low, high)
  local step = tick_step(low, high, count or 6)
  local ticks, first = {}, math.floor(low / step + 1e-9)
  for index = 0, math.ceil(high / step - 1e-9) - first do ticks[#ticks + 1] = (first + index) * step end
  local digits = math.max(0, -math.floor(math.log10(step) + 1e-9))
  local largest = math.max(math.abs(low), math.abs(high))
  if digits <= 9 and largest < 1e15 then return ticks, ("%%.%df"):format(digits) end
  return ticks, ("%%.%dg"):format(math.min(17, math.max(1, math.ceil(math.log10(largest / step)) + 1)))
end

-- Returns at most `most` points: means of neighbouring points, so that the curve of a long run stays readable. Drops points that
-- are not finite, or too large.
local function thinned(points, most)
  local finite = {}
  for _, point in ipairs(points) do
    if is_drawn(point[1]) and is_drawn(point[2]) then finite[#finite + 1] = point end
  end
  if #finite <= most then return finite end
  local out, size = {}, math.ceil(#finite / most)
  for first = 1, #finite, size do
    local x, y, count = 0, 0, 0
    for index = first, math.min(first + size - 1, #finite) do
      x, y, count = x + finite[index][1], y + finite[index][2], count + 1
    end
    out[#out + 1] = {x / count, y / count}
  end
  return out
end

-- Returns the least and the greatest value of all points in the dim: 1 for x, 2 for y. 0 and 1 if there are no points.
local function bounds(all, dim)
  local low, high = math.huge, -math.huge
  for _, points in ipairs(all) do
    for _, point in ipairs(points) do low, high = math.min(low, point[dim]), math.max(high, point[dim]) end
  end
  if low > high then return 0, 1 end
  return low, high
end

-- Draws the grid lines with their numbers and the axes of a frame: {top =, bottom =, all =, x_low =, x_high =, y_ticks =}.
-- Returns the function from data to pixels: place(x, y) -> x, y.
local function draw_axes(canvas, frame)
  local x_ticks, x_format = plot.ticks(frame.x_low, frame.x_high, 8)
  local low, high = bounds(frame.all, 2)
  local y_ticks, y_format = plot.ticks(low, high, frame.y_ticks)
  local x_low, x_high, y_low, y_high = x_ticks[1], x_ticks[#x_ticks], y_ticks[1], y_ticks[#y_ticks]
  local right, top, bottom = WIDTH - RIGHT, frame.top, frame.bottom
  local function place(x, y)
    return LEFT + (x - x_low) / (x_high - x_low) * (right - LEFT), bottom - (y - y_low) / (y_high - y_low) * (bottom - top)
  end
  for _, tick in ipairs(x_ticks) do
    local x = place(tick, y_low)
    canvas:add('<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#e4e4e4"/>', x, top, x, bottom)
    canvas:text(x, bottom + 18, "middle", x_format:format(tick))
  end
  for _, tick in ipairs(y_ticks) do
    local _, y = place(x_low, tick)
    canvas:add('<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#e4e4e4"/>', LEFT, y, right, y)
    canvas:text(LEFT - 8, y + 4, "end", y_format:format(tick))
  end
  canvas:add('<path d="M%d %dV%dH%d" fill="none" stroke="#444"/>', LEFT, top, bottom, right)
  return place
end

local function draw_series(canvas, place, points, colour)
  local places = {}
  for index, point in ipairs(points) do places[index] = ("%.1f,%.1f"):format(place(point[1], point[2])) end
  if #points > 1 then
    canvas:add('<polyline points="%s" fill="none" stroke="%s" stroke-width="1.6"/>', table.concat(places, " "), colour)
  end
  if #points > 30 then return end
  for _, point in ipairs(points) do
    local x, y = place(point[1], point[2])
    canvas:add('<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>', x, y, colour)
  end
end

-- Draws the curves of a frame into its axes.
local function draw_frame(canvas, frame)
  local place = draw_axes(canvas, frame)
  for index, points in ipairs(frame.all) do draw_series(canvas, place, points, COLOURS[(index - 1) % #COLOURS + 1]) end
end

local function draw_legend(canvas, series)
  for index, one in ipairs(series) do
    local y = TOP + 8 + 18 * (index - 1)
    local x = WIDTH - RIGHT - 150
    local colour = COLOURS[(index - 1) % #COLOURS + 1]
    canvas:add('<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="3"/>', x, y, x + 22, y, colour)
    canvas:text(x + 30, y + 4, "start", one.name)
  end
end

-- Fails unless the series are lists of points with names. `path` is how messages name them.
local function check_series(path, series)
  for place, one in ipairs(series) do
    local here = ("%s[%d]"):format(path, place)
    check.options(here, SERIES, one)
    check.items(here .. ".points", "list", one.points)
    for number, point in ipairs(one.points) do
      if type(point[1]) ~= "number" or type(point[2]) ~= "number" then
        fail("%s.points[%d] must be {x, y}, two numbers, got %s and %s", here, number, check.type_name(point[1]),
             check.type_name(point[2]))
      end
    end
  end
end

local function all_thinned(series)
  local all = {}
  for index, one in ipairs(series) do all[index] = thinned(one.points, MOST_POINTS) end
  return all
end

--- Returns an SVG with all series in one pair of axes, and below a smaller one per panel with the same horizontal axis. Points
-- that are not finite, or beyond 1e300, are left out. A series without points appears in the legend only.
function plot.lines(value)
  local spec = check.options("zt.plot.lines", SCHEMA, value)
  check_series("zt.plot.lines.series", spec.series)
  local frames = {{top = TOP, bottom = HEIGHT - BOTTOM, y_ticks = 6, all = all_thinned(spec.series)}}
  for index, panel in ipairs(spec.panels) do
    local path, top = ("zt.plot.lines.panels[%d]"):format(index), HEIGHT + PANEL * (index - 1)
    check.options(path, PANELS, panel)
    check_series(path .. ".series", panel.series)
    frames[index + 1] = {
      top = top + PANEL_TOP, bottom = top + PANEL - PANEL_BOTTOM, y_ticks = 3, all = all_thinned(panel.series),
    }
  end
  local curves = {}
  for _, frame in ipairs(frames) do
    for _, points in ipairs(frame.all) do curves[#curves + 1] = points end
  end
  local x_low, x_high = bounds(curves, 1)
  local canvas = new_canvas(WIDTH, HEIGHT + PANEL * #spec.panels)
  canvas:text(WIDTH / 2, 28, "middle", spec.title, 'font-size="16"')
  for index, frame in ipairs(frames) do
    frame.x_low, frame.x_high = x_low, x_high
    draw_frame(canvas, frame)
    if index > 1 then canvas:text(LEFT, frame.top - 8, "start", spec.panels[index - 1].y, 'font-weight="bold"') end
  end
  local middle = (TOP + HEIGHT - BOTTOM) / 2
  canvas:text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, "middle", spec.x)
  canvas:text(18, middle, "middle", spec.y, ('transform="rotate(-90 18 %.1f)"'):format(middle))
  draw_legend(canvas, spec.series)
  return canvas:svg()
end

return plot
