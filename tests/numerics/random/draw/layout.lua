--- Draws meshes and passes. A layout here is plain data; render.lua makes Lua code of it:
-- {axes = {{name, size}, ...}, micro_batches =, eval_micro_batches =, shard = {...}, joined =, recompute = every,
--  split = {schedule =, partition =, cuts = {...}}, split_backward = true, pairs = true}.
local draw_schedule = require "draw.schedule"

local draw_layout = {}

--- Returns all {pp =, dp =, ep =, replica =} with the product `ranks`, where ep divides the number of experts.
local function factorings(ranks, experts)
  local found = {}
  for pp = 1, math.min(ranks, 4) do
    for dp = 1, ranks do
      for ep = 1, experts or 1 do
        local replica = ranks / (pp * dp * ep)
        if replica % 1 == 0 and replica <= 2 and (experts or 1) % ep == 0 then
          found[#found + 1] = {pp = pp, dp = dp, ep = ep, replica = replica}
        end
      end
    end
  end
  return found
end

local function data_ranks(sizes) return sizes.dp * sizes.ep * sizes.replica end

-- Axes of size 1 stand in the mesh or not; ep does wherever there are experts.
local function axes_of(dice, sizes, experts)
  local axes = {}
  for _, name in ipairs{"pp", "dp", "ep", "replica"} do
    local is_needed = sizes[name] > 1 or (name == "ep" and experts)
    if is_needed or (name == "dp" and dice:one_in(2)) then axes[#axes + 1] = {name, sizes[name]} end
  end
  local has_shards = sizes.dp > 1 or sizes.ep > 1 or experts
  if sizes.replica > 1 and not has_shards then
    for _, axis in ipairs(axes) do
      if axis[1] == "dp" then return dice:shuffle(axes) end
    end
    axes[#axes + 1] = {"dp", 1}
  end
  return dice:shuffle(axes)
end

local function has_axis(axes, wanted)
  for _, axis in ipairs(axes) do
    if axis[1] == wanted then return true end
  end
  return false
end

-- Options of stage 3 that decide when parameters are whole.
local function choose_movement(dice, shard)
  if dice:one_in(2) then shard.prefetch = dice:pick{0, 1, 2, 3, 20} end
  if dice:one_in(3) then shard.persist_below = dice:below(200) end
  if dice:one_in(2) then shard.live = dice:below(11) / 10 end
  if dice:one_in(3) then shard.max_reuse_distance = dice:below(600) end
  if dice:one_in(3) then shard.keep = shard.live and dice:one_in(2) and "max_live" or "forward" end
end

local function shard_of(dice, sizes, is_fixed)
  local shard = {stage = dice:pick{0, 1, 2, 3, 3}}
  if sizes.replica > 1 then shard.stage = math.max(1, shard.stage) end
  if dice:one_in(2) then shard.bucket_bytes = dice:pick{0, 100, 1000, 3000, 2 ^ 30} end
  if dice:one_in(3) and shard.stage > 0 then shard.gather_bucket_bytes = dice:pick{0, 500, 5000} end
  if dice:one_in(3) then shard.sub_group_size = dice:pick{7, 4096, 8192} end
  if dice:one_in(3) then shard.overlap = dice:one_in(2) end
  if shard.stage == 3 and dice:one_in(2) then choose_movement(dice, shard)
  elseif dice:one_in(2) then shard.node_shared = shard.stage > 0 and dice:one_in(2) end
  if is_fixed then
    for _, key in ipairs{"reduce_every", "grad_dtype", "reduce_dtype"} do shard[key] = is_fixed[key] end
    return shard
  end
  shard.reduce_every = dice:pick{"step", "step", "micro_batch"}
  if dice:one_in(6) then shard.reduce_dtype = "bf16" end
  if dice:one_in(10) then shard.grad_dtype = "bf16" end
  return shard
end

local function divisors(n)
  local list = {}
  for i = 1, n do
    if n % i == 0 then list[#list + 1] = i end
  end
  return list
end

--- Returns a layout over `ranks` ranks of `pieces` micro-batches, or nil if the dice fall badly. `options`: {experts =,
--- is_by_hand =, samples = of a piece, data_ranks = to keep, like = options of zero.shard of which those that decide about sums
--- are kept}.
function draw_layout.draw(dice, ranks, pieces, options)
  local sizes = dice:pick(factorings(ranks, options.experts))
  local of = data_ranks(sizes)
  if pieces % of > 0 or (options.data_ranks and of ~= options.data_ranks) then return nil end
  if sizes.pp > 1 and options.is_by_hand then return nil end
  local layout = {axes = axes_of(dice, sizes, options.experts), micro_batches = pieces / of}
  layout.eval_micro_batches = dice:pick(divisors(options.samples * layout.micro_batches))
  if #layout.axes == 0 then layout.axes = nil end
  local is_data = layout.axes and (has_axis(layout.axes, "dp") or has_axis(layout.axes, "ep"))
  if is_data then
    layout.shard = shard_of(dice, sizes, options.like)
    if has_axis(layout.axes, "dp") and has_axis(layout.axes, "ep") and dice:one_in(2) then
      layout.joined = dice:shuffle{"dp", "ep"}
    end
  end
  if sizes.pp > 1 then
    layout.split = {schedule = draw_schedule.draw(dice), cuts = {}}
    for i = 1, 31 do layout.split.cuts[i] = dice:below(1000) / 1000 end
    layout.split.partition = dice:pick{"list", "list", "list", "parameters", "uniform"}
  end
  if dice:one_in(3) then layout.recompute = dice:pick{1, 1, 2} end
  if dice:one_in(4) then layout.split_backward = true end
  if sizes.pp == 1 and not options.is_by_hand and dice:one_in(options.experts and 2 or 5) then layout.pairs = true end
  return layout
end

--- Returns options of offload.move for the layout, without its folder.
function draw_layout.move(dice, layout)
  local shard = layout.shard or {}
  local move = {optimizer = dice:pick{"nvme", "nvme", "device"}}
  if shard.stage == 3 and not shard.node_shared and not shard.persist_below then
    move.parameters = move.optimizer == "device" and "nvme" or dice:pick{"nvme", "device"}
  else move.optimizer = "nvme" end
  if move.parameters == "nvme" then shard.node_shared = false end
  if dice:one_in(2) then move.gradients = "nvme" end
  if dice:one_in(2) then move.ratio = dice:pick{0, 0.3, 0.7}
  elseif dice:one_in(2) then move.memory = dice:below(20000) end
  if dice:one_in(3) then move.staging = dice:pick{1000000, 2000000} end
  if not shard.sub_group_size and dice:one_in(3) then move.slice = dice:pick{4096, 8192} end
  if dice:one_in(3) then move.block, move.depth = 4096, dice:between(1, 3) end
  if dice:one_in(3) then move.checksum = true end
  if dice:one_in(6) then move.direct = false end
  return move
end

--- Moves activations, too.
function draw_layout.move_activations(dice, layout)
  local move = layout.move or {}
  layout.move = move
  move.activations, move.activations_stay = "nvme", dice:pick{0, 0, 0, 1, 2}
  move.activation_bytes = dice:pick{1, 1, 1, 500}
end

--- Returns the size of an axis of the layout, 1 if it has none.
function draw_layout.size(layout, name)
  for _, axis in ipairs(layout.axes or {}) do
    if axis[1] == name then return axis[2] end
  end
  return 1
end

--- Returns the number of ranks of the layout.
function draw_layout.ranks(layout)
  local ranks = 1
  for _, axis in ipairs(layout.axes or {}) do ranks = ranks * axis[2] end
  return ranks
end

--- Returns the number of ranks of the layout that have other samples.
function draw_layout.data_ranks(layout)
  local size = draw_layout.size
  return draw_layout.ranks(layout) / (size(layout, "pp") * size(layout, "cp") * size(layout, "tp"))
end

return draw_layout
