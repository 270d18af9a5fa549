--- Makes a failing case smaller: halves the model and the layout, and leaves out what is not needed, while the case still fails
--- in the same way.
local zt = require "zt"
local check_options = require "zt.check"
local draw_layout = require "draw.layout"

local shrink = {}

local function copy(value)
  if type(value) ~= "table" then return value end
  local other = {}
  for key, each in pairs(value) do other[key] = copy(each) end
  return other
end

-- Removes items [first, last], and all that need one of them. Returns nil if none goes.
local function without_items(case, first, last)
  local small, kept, gone = copy(case), {}, {}
  for i, item in ipairs(small.items) do
    local is_needed_gone = false
    for _, name in ipairs(item.needs or {}) do is_needed_gone = is_needed_gone or gone[name] end
    if ((i >= first and i <= last) or is_needed_gone) and item.kind ~= "fault" then gone[item.param or item.name or ""] = true
    else kept[#kept + 1] = item end
  end
  small.items = kept
  if #kept < #case.items then return small end
end

local function add_models(case, candidates)
  local count = #case.items
  local size = math.ceil(count / 2)
  while size >= 1 and count > 0 do
    for first = 1, count, size do
      candidates[#candidates + 1] = without_items(case, first, math.min(count, first + size - 1))
    end
    if size == 1 then return end
    size = math.ceil(size / 2)
  end
end

local function changed(case, fn)
  local small = copy(case)
  if fn(small) ~= false then return small end
end

-- Takes a pattern out of the code of all layers. Returns false if it is nowhere.
local function take(small, pattern)
  local taken = 0
  for _, item in ipairs(small.items) do
    local count = 0
    if item.code then item.code, count = item.code:gsub(pattern, "") end
    taken = taken + count
  end
  return taken > 0
end

local function take_choices(small) return take(small, ", select = layers%.choice%(%d%)") end

local function take_policy(small)
  local had = small.policy ~= nil
  small.policy = nil
  return had
end

local function take_tiles(small)
  local is_head_tiled = small.head_tile ~= nil
  small.head_tile = nil
  return take(small, ", [mlp_]*tile = %d") or is_head_tiled
end

local function take_sequence(small)
  if not (small.cut and small.cut.sequence) then return false end
  small.cut.sequence = false
end

-- Options of attention that a failure may not need.
local OF_ATTENTION = {", window = %d+", ", rope_scaling = %b{}", ", qk_norm = true", ", qkv_bias = %a+"}

-- Keeps the numbers of empty pieces in range.
local function fit(small)
  local pieces, empty = #small.rows * draw_layout.data_ranks(small.layout), {}
  for _, p in ipairs(small.empty) do
    if p < pieces then empty[#empty + 1] = p end
  end
  small.empty, small.layout.micro_batches = empty, #small.rows
  small.layout.eval_micro_batches = 1
end

-- Axes by which the code of layers names them.
local stays = {ep = true, tp = true, cp = true}

-- Sets the size of an axis; `pp` of size 1 goes with its schedule.
local function set_axis(small, name, size)
  for i, axis in ipairs(small.layout.axes) do
    if axis[1] == name then
      axis[2] = size
      if size == 1 and not stays[name] and (name ~= "dp" or not small.layout.shard) then table.remove(small.layout.axes, i) end
      break
    end
  end
  if name == "pp" and size == 1 then small.layout.split = nil end
  if #small.layout.axes == 0 then small.layout.axes = nil end
  fit(small)
end

local function add_layouts(case, candidates)
  local function try(fn) candidates[#candidates + 1] = changed(case, fn) end
  try(take_choices)
  try(take_policy)
  try(take_tiles)
  try(take_sequence)
  for _, pattern in ipairs(OF_ATTENTION) do try(function(small) return take(small, pattern) end) end
  for _, axis in ipairs(case.layout.axes or {}) do
    local name, size = axis[1], axis[2]
    if not case.second then
      if size > 1 then try(function(small) set_axis(small, name, 1) end) end
      if size > 2 then try(function(small) set_axis(small, name, math.ceil(size / 2)) end) end
    end
  end
  if #case.rows > 1 and not case.second then
    try(function(small)
      for _ = 1, math.floor(#case.rows / 2) do table.remove(small.rows) end
      fit(small)
    end)
  end
  for _, key in ipairs{"recompute", "split_backward", "pairs", "joined", "backend", "selective", "overlap", "move"} do
    try(function(small)
      if small.layout[key] == nil then return false end
      small.layout[key] = nil
    end)
  end
  for _, key in ipairs(check_options.sorted_keys(case.layout.move or {})) do
    try(function(small) small.layout.move[key] = nil end)
  end
  for _, key in ipairs(check_options.sorted_keys(case.layout.shard or {})) do
    local is_fixed = key == "stage" or key == "reduce_every" -- it decides about the order of sums
    if not is_fixed then try(function(small) small.layout.shard[key] = nil end) end
  end
  for stage = 0, case.layout.shard and case.layout.shard.stage - 1 or -1 do
    try(function(small) small.layout.shard.stage = stage end)
  end
  if case.layout.split and case.layout.split.schedule.name ~= "gpipe" then
    try(function(small) small.layout.split.schedule = {name = "gpipe"} end)
  end
end

local function add_events(case, candidates)
  local function try(fn) candidates[#candidates + 1] = changed(case, fn) end
  if case.second then
    try(function(small)
      small.second = nil
      for _, list in ipairs(small.events) do
        for i = #list, 1, -1 do
          if list[i] == "checkpoint" then table.remove(list, i) end
        end
      end
    end)
  end
  if case.steps > 1 and not case.second then
    try(function(small)
      small.events[small.steps] = nil
      small.steps = small.steps - 1
    end)
  end
  for step, list in ipairs(case.events) do
    for i, name in ipairs(list) do
      if name ~= "checkpoint" then try(function(small) table.remove(small.events[step], i) end) end
    end
  end
end

local simpler = {
  precision = "fp64", clip = 0, by_hand = false, frozen = {}, is_tied = false, norm = "none", empty = {},
  optimizer = {"sgd", {lr = 0.05}}, packed = false, dropout = 0,
}

-- The least that ranks can share in any layout.
local function fewest_tokens(case)
  local function needed(layout) return 2 * draw_layout.size(layout, "cp") end
  return case.cut and math.max(needed(case.layout), case.second and needed(case.second) or 0) or 1
end

local function add_options(case, candidates)
  for _, key in ipairs(check_options.sorted_keys(simpler)) do
    local value = simpler[key]
    local is_simple = case[key] == nil or case[key] == value or (type(value) == "table" and #case[key] == 0)
    if key == "optimizer" then is_simple = case.optimizer[1] == "sgd" end
    if not is_simple then candidates[#candidates + 1] = changed(case, function(small) small[key] = copy(value) end) end
  end
  if #case.seq > 1 or case.seq[1] > fewest_tokens(case) then
    local fewer = math.max(fewest_tokens(case), math.ceil(case.seq[1] / 2))
    candidates[#candidates + 1] = changed(case, function(small) small.seq = {fewer} end)
  end
  local most = 0
  for _, rows in ipairs(case.rows) do most = math.max(most, rows) end
  if most > 1 then
    candidates[#candidates + 1] = changed(case, function(small)
      for i in ipairs(small.rows) do small.rows[i] = 1 end
      small.layout.eval_micro_batches = 1
      if small.second then small.second.eval_micro_batches = 1 end
    end)
  end
end

-- What a failure is, without the numbers and names of one case.
local function kind_of(failure)
  if failure.check ~= "error" then return (failure.check:gsub("ranks %d+ and %d+", "ranks")) end
  return (failure.text:gsub("^rank %d+ of %d+: ", ""):gsub("^case:%d+: ", ""):gsub("%d+", "N"):sub(1, 40))
end

--- Returns the smallest case that was found within `limit` runs or three minutes, its failure, and the number of runs.
--- `check(case)` returns a failure or nil.
function shrink.run(case, failure, check, limit)
  local wanted, runs, begin = kind_of(failure), 0, zt.now()
  local progressed = true
  while progressed do
    progressed = false
    local candidates = {}
    add_models(case, candidates)
    add_layouts(case, candidates)
    add_events(case, candidates)
    add_options(case, candidates)
    for _, small in ipairs(candidates) do
      if runs == limit or zt.now() - begin > 180 then return case, failure, runs end
      runs = runs + 1
      local found = check(small)
      if found and kind_of(found) == wanted then
        case, failure, progressed = small, found, true
        break
      end
    end
  end
  return case, failure, runs
end

return shrink
