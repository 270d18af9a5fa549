--- Keeps the load of experts over the steps of a run, in bounded memory, and draws it: a map of steps x experts per router, and
-- the line of the largest load divided by the mean.

local check = require "zt.check"
local new_canvas = require "zt.run.canvas"
local ticks = require("zt.run.plot").ticks

local WIDTH, LEFT, RIGHT = 800, 70, 30
local HEAD, TITLE, GAP, STRIP, FOOT = 84, 24, 10, 54, 38 -- pixels: page head; of a panel its title, gap, line plot and foot
local MOST_HEIGHT = 1200 -- pixels of a page
local MOST_COLUMNS = 160
local MOST_ROWS, LEAST_ROW = 64, 3 -- of a map, and the pixels of a row
local MOST_LAYERS = 6
local LEVELS = 8 -- colors on each side of the mean: 4 per factor of 2
local LESS, MORE = {0x1c, 0x4e, 0x8a}, {0xb2, 0x1f, 0x1f}
local IDLE = "#202020"

local ExpertLoad = {}
ExpertLoad.__index = ExpertLoad

local function new() return setmetatable({layers = {}}, ExpertLoad) end

local function merged(a, b)
  for expert, share in ipairs(b.shares) do a.shares[expert] = a.shares[expert] + share end
  a.imbalance, a.count = a.imbalance + b.imbalance, a.count + b.count
  return a
end

-- Adds a column of one step. Merges neighbouring columns if there are too many.
local function add_column(layer, column)
  local columns = layer.columns
  local latest = columns[#columns]
  if latest and latest.count < layer.steps_per_column then
    merged(latest, column)
    return
  end
  if #columns == MOST_COLUMNS then
    local halved = {}
    for index = 1, #columns, 2 do halved[#halved + 1] = merged(columns[index], columns[index + 1]) end
    layer.columns, layer.steps_per_column, columns = halved, 2 * layer.steps_per_column, halved
  end
  columns[#columns + 1] = column
end

--- Adds the loads of a step. `stats` is the field of a step's result; entries other than lists "LAYER.load" are left out.
function ExpertLoad:add(step, stats)
  for name, load in pairs(stats) do
    local layer_name = name:match "^(.*)%.load$"
    if layer_name and type(load) == "table" and #load > 0 then
      local sum, most, column = 0, 0, {first = step, shares = {}, count = 1}
      for _, tokens in ipairs(load) do sum, most = sum + tokens, math.max(most, tokens) end
      if sum > 0 then
        for expert, tokens in ipairs(load) do column.shares[expert] = tokens * #load / sum end
        column.imbalance = most * #load / sum
        self.layers[layer_name] = self.layers[layer_name] or {columns = {}, steps_per_column = 1}
        add_column(self.layers[layer_name], column)
      end
    end
  end
end

-- Returns the names of the routers in natural order ("blocks.2" before "blocks.10"): at most MOST_LAYERS, evenly spread.
local function layer_names(layers)
  local keys, names = {}, {}
  for name in pairs(layers) do keys[#keys + 1] = {name:gsub("%d+", function(n) return ("%09d"):format(n) end), name} end
  table.sort(keys, function(a, b) return a[1] < b[1] end)
  local shown = math.min(#keys, MOST_LAYERS)
  for index = 1, shown do
    local place = shown == 1 and 1 or math.floor((index - 1) * (#keys - 1) / (shown - 1) + 1.5)
    names[index] = keys[place][2]
  end
  return names, #keys
end

-- Returns the level of a load relative to the mean: 0 is the mean, LEVELS four times the mean or more; nil: no token at all.
local function level_of(share)
  if share == 0 then return nil end
  local level = math.floor(LEVELS / 2 * math.log(share) / math.log(2) + 0.5)
  return math.max(-LEVELS, math.min(LEVELS, level))
end

local function color_of(level)
  if level == nil then return IDLE end
  local goal, part, parts = level < 0 and LESS or MORE, math.abs(level) / LEVELS, {}
  for index, value in ipairs(goal) do parts[index] = math.floor(0xf7 + (value - 0xf7) * part + 0.5) end
  return ("#%02x%02x%02x"):format(unpack(parts))
end

-- Returns the pixels of a map's height if there are so many panels.
local function map_height(panels)
  return math.min(192, math.floor((MOST_HEIGHT - HEAD) / panels) - TITLE - GAP - STRIP - FOOT)
end

-- Returns the rows of a map of that height: lists of levels by column. Neighbouring experts share a row if there are too many.
local function rows_of(layer, height)
  local experts = #layer.columns[1].shares
  local per_row = math.ceil(experts / math.min(MOST_ROWS, math.floor(height / LEAST_ROW)))
  local rows = {}
  for first = 1, experts, per_row do
    local row = {}
    for index, column in ipairs(layer.columns) do
      local most = 0
      for expert = first, math.min(first + per_row - 1, experts) do most = math.max(most, column.shares[expert]) end
      row[index] = level_of(most / column.count) or false
    end
    rows[#rows + 1] = row
  end
  return rows, per_row
end

local function row_height(rows, height)
  return math.max(LEAST_ROW, math.min(16, math.floor(math.min(128, height) / #rows)))
end

-- Draws the map with its corner at `top`. Cells of one color are one path.
local function draw_map(canvas, rows, top, width, height)
  local paths = {}
  for number, row in ipairs(rows) do
    local begin = 1
    for index = 1, #row do
      if row[index + 1] ~= row[index] then
        local color, long = color_of(row[index] or nil), (index - begin + 1) * width
        paths[color] = paths[color] or {}
        table.insert(paths[color], ("M%.1f %dh%.1fv%dh-%.1fz"):format(
          LEFT + (begin - 1) * width, top + (number - 1) * height, long, height, long))
        begin = index + 1
      end
    end
  end
  for _, color in ipairs(check.sorted_keys(paths)) do
    local path = paths[color]
    canvas:add('<path d="%s" fill="%s" shape-rendering="crispEdges"/>', table.concat(path), color)
  end
  local bottom = top + #rows * height
  canvas:add('<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#444"/>', LEFT, top, WIDTH - LEFT - RIGHT,
             bottom - top)
  return bottom
end

-- Draws the line of the largest load divided by the mean, on an axis that begins at 1.
local function draw_line(canvas, columns, top, width)
  local bottom, most, points = top + STRIP, 1, {}
  for _, column in ipairs(columns) do most = math.max(most, column.imbalance / column.count) end
  local marks, format = ticks(1, math.max(most, 1.1), 3)
  local low, high = math.min(marks[1], 1), marks[#marks]
  local function place(value) return bottom - (value - low) / (high - low) * STRIP end
  for _, mark in ipairs(marks) do
    canvas:add('<path d="M%d %.1fH%d" stroke="#e4e4e4"/>', LEFT, place(mark), WIDTH - RIGHT)
    canvas:text(LEFT - 8, place(mark) + 4, "end", format:format(mark))
  end
  for index, column in ipairs(columns) do
    points[index] = ("%.1f,%.1f"):format(LEFT + (index - 0.5) * width, place(column.imbalance / column.count))
  end
  canvas:add('<path d="M%d %dV%dH%d" fill="none" stroke="#444"/>', LEFT, top, bottom, WIDTH - RIGHT)
  canvas:add('<polyline points="%s" fill="none" stroke="#b21f1f" stroke-width="1.6"/>', table.concat(points, " "))
  local middle = (top + bottom) / 2
  canvas:text(18, middle, "middle", "max/mean", ('transform="rotate(-90 18 %.1f)"'):format(middle))
  if #points > 30 then return bottom end
  for _, point in ipairs(points) do
    canvas:add('<circle cx="%s" cy="%s" r="2.5" fill="#b21f1f"/>', point:match "(.*),(.*)")
  end
  return bottom
end

-- Writes round numbers of steps where the columns have them.
local function draw_steps(canvas, columns, bottom, width)
  local index = 1
  for _, step in ipairs((ticks(columns[1].first, columns[#columns].first, 8))) do
    while columns[index + 1] and columns[index + 1].first <= step do index = index + 1 end
    local here, following = columns[index].first, columns[index + 1]
    local part = following and (step - here) / (following.first - here) or 0
    if step % 1 == 0 and step >= here and (following or step == here) then
      canvas:text(LEFT + (index - 1 + part) * width, bottom + 16, "middle", ("%d"):format(step))
    end
  end
  canvas:text(WIDTH - RIGHT, bottom + 32, "end", "step")
end

local function draw_panel(canvas, name, layer, top, height)
  local rows, per_row = rows_of(layer, height)
  local width = (WIDTH - LEFT - RIGHT) / #layer.columns
  canvas:text(LEFT, top + TITLE - 8, "start", name, 'font-weight="bold"')
  local map_top = top + TITLE
  local bottom, last = draw_map(canvas, rows, map_top, width, row_height(rows, height)), #layer.columns[1].shares - 1
  canvas:text(LEFT - 8, map_top + 10, "end", 0)
  if last > 0 then canvas:text(LEFT - 8, bottom - 2, "end", last) end
  local middle, label = (map_top + bottom) / 2, per_row > 1 and ("expert, max of %d"):format(per_row) or "expert"
  canvas:text(18, middle, "middle", label, ('transform="rotate(-90 18 %.1f)"'):format(middle))
  bottom = draw_line(canvas, layer.columns, bottom + GAP, width)
  draw_steps(canvas, layer.columns, bottom, width)
end

local function draw_head(canvas, title, shown, all)
  canvas:text(WIDTH / 2, 28, "middle", shown < all and ("%s (%d of %d layers)"):format(title, shown, all) or title,
              'font-size="16"')
  local cell, left, top = 14, LEFT + 150, 44
  canvas:text(left - 10, top + 12, "end", "load / mean load")
  for level = -LEVELS, LEVELS do
    canvas:add('<rect x="%d" y="%d" width="%d" height="16" fill="%s"/>', left + (level + LEVELS) * cell, top, cell,
               color_of(level))
  end
  for index, label in ipairs{"1/4", "1/2", "1", "2", "4"} do
    local power = index - 3
    canvas:text(left + (power * LEVELS / 2 + LEVELS + 0.5) * cell, top + 30, "middle", label)
  end
  local idle = left + (2 * LEVELS + 1) * cell + 30
  canvas:add('<rect x="%d" y="%d" width="%d" height="16" fill="%s"/>', idle, top, cell, IDLE)
  canvas:text(idle + cell + 8, top + 12, "start", "no token")
end

--- Returns the picture as SVG text; nil if no step had the load of experts.
function ExpertLoad:svg(title)
  local names, all = layer_names(self.layers)
  if #names == 0 then return nil end
  local tops, bottom, height = {}, HEAD, map_height(#names)
  for index, name in ipairs(names) do
    local rows = rows_of(self.layers[name], height)
    tops[index], bottom = bottom, bottom + TITLE + #rows * row_height(rows, height) + GAP + STRIP + FOOT
  end
  local canvas = new_canvas(WIDTH, bottom)
  draw_head(canvas, title, #names, all)
  for index, name in ipairs(names) do draw_panel(canvas, name, self.layers[name], tops[index], height) end
  return canvas:svg()
end

return new
