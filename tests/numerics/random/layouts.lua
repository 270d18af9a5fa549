--- How a case is laid out over the ranks: meshes, passes, and which variants have which layout.
--
-- A layout is {axes = {{"pp", 2}, {"dp", 2}}, micro_batches =, shard = {stage =, ...}, passes = function(mesh) ... end}. Axes are
-- named pp, dp, ep, cp, tp and replica. `shard` has the options of zero.shard besides its axes. `joined` is the order in which
-- these are joined. `live`, a number from 0 to 1, stands for a max_live between the least possible and all elements. `backend`
-- and `sum_order` are those of the mesh. `selective` and `overlap` are options of cut layers, `move` those of offload.move
-- besides its folder.
local zt = require "zt"
local offload = require "zt.offload"
local zero = require "zt.zero"

local layouts = {}

-- Axes whose ranks see the same samples.
local SAME_SAMPLES = {pp = true, cp = true, tp = true}

--- Returns the number of ranks that see different samples or, with `all`, of all ranks.
function layouts.size(layout, all)
  local size = 1
  for _, axis in ipairs(layout.axes or {}) do
    if all or not SAME_SAMPLES[axis[1]] then size = size * axis[2] end
  end
  return size
end

function layouts.mesh_options(layout)
  local options = {order = {}, timeout = 30, backend = layout.backend, sum_order = layout.sum_order}
  for i, axis in ipairs(layout.axes) do
    options.order[i] = axis[1]
    options[axis[1]] = axis[2]
  end
  return options
end

local function names_of(layout, is_wanted)
  local names = {}
  for _, axis in ipairs(layout.axes or {}) do
    if is_wanted(axis[1]) then names[#names + 1] = axis[1] end
  end
  return names
end

local function joined(mesh, names) return #names == 1 and mesh:axis(names[1]) or mesh:join(names) end

-- Whether the axes are joined in the mesh's order.
local function is_in_order(layout, names)
  local in_mesh = names_of(layout, function(name)
    for _, each in ipairs(names) do
      if each == name then return true end
    end
  end)
  return table.concat(in_mesh, " ") == table.concat(names, " ")
end

-- The axes whose ranks have different samples, in their order: that of the mesh, or of axes joined in another one.
local function data_axes(layout)
  if not layout.joined or is_in_order(layout, layout.joined) then
    return names_of(layout, function(name) return not SAME_SAMPLES[name] end)
  end
  local names = layout.joins_replicas and {} or names_of(layout, function(name) return name == "replica" end)
  for _, name in ipairs(layout.joined) do names[#names + 1] = name end
  return names
end

--- Returns the number of ranks with different samples, and this rank's place among them.
function layouts.data_ranks(layout, mesh)
  local names = data_axes(layout)
  if #names == 0 then return 1, 0 end
  local axis = joined(mesh, names)
  return axis.size, axis.rank
end

-- The elements of parameters that the largest position needs, and all elements.
local function elements(model)
  local least, all = 0, 0
  local look = zt.pass{name = "look", phase = "structure", apply = function(program, info)
    for _, unit in ipairs(info.units) do all = all + unit.numel end
    for _, position in ipairs(info.positions) do
      local used = 0
      for _, unit in ipairs(position.units) do used = used + info.units[unit + 1].numel end
      least = math.max(least, used)
    end
    return program
  end}
  zt.program(model):apply(look):text()
  return least, all
end

local function shard_options(model, mesh, layout, precision)
  local options = {}
  for key, value in pairs(layout.shard) do options[key] = value end
  local names = layout.joined or names_of(layout, function(name) return name == "dp" or name == "ep" end)
  options.axis = joined(mesh, names)
  local replicas = names_of(layout, function(name) return name == "replica" end)
  if replicas[1] and not layout.joins_replicas then options.replicate = mesh.replica end
  if options.live then
    local least, all = elements(model)
    options.max_live, options.live = least + math.floor(options.live * (all - least)), nil
  end
  if precision == "fp64" then options.grad_dtype, options.reduce_dtype = nil, nil end
  return options
end

-- Returns a pass that sums gradients in Lua, as zero.shard does.
local function own_reduction(mesh, layout)
  local axes, data = {}, names_of(layout, function(name) return name ~= "pp" end)
  local function add(names) -- to join is collective, so it is done here
    if #names > 0 then axes[table.concat(names, "+")] = joined(mesh, names) end
  end
  for subset = 0, 2 ^ #data - 1 do
    local names = {}
    for i, name in ipairs(data) do
      if math.floor(subset / 2 ^ (i - 1)) % 2 == 1 then names[#names + 1] = name end
    end
    add(names)
  end
  add(layout.joined or {})
  local reduce = zt.action{replaces = "REDUCE_GRAD", start = function(ctx, action)
    local axis, grad = axes[table.concat(action.axes, "+")], ctx.unit.grad
    if ctx.out:numel() < grad:numel() then return axis:reduce_scatter(ctx.out, grad, {async = true}) end
    return axis:all_reduce(ctx.out, grad, {async = true}):then_(function() end)
  end}
  return zt.pass{name = "lua_reduce", phase = "reduction", mesh = mesh, actions = {reduce}, differs_along = {}}
end

-- Returns a pass that halves the gradients of every `every`-th unit, after they were summed over the ranks.
local function scaling(every)
  local halve = zt.action{name = "HALVE_GRADIENT", reads = {"grad"}, writes = {"grad"}, start = function(ctx)
    ctx.unit.grad_shard:mul_(0.5)
  end}
  local function apply(program, info)
    if program.mode ~= "train" then return program end
    local actions = {}
    for _, action in ipairs(program.actions) do
      for index, unit in ipairs(action.kind == "NORM" and info.units or {}) do
        local is_mine = unit.trainable and program.units[index].held
        if is_mine and index % every == 0 then actions[#actions + 1] = halve(index - 1) end
      end
      actions[#actions + 1] = action
    end
    program.actions = actions
    return program
  end
  return zt.pass{name = "scaling", phase = "reduction", actions = {halve}, apply = apply}
end

local function moved(program, layout)
  if not layout.move then return program end
  local options = {folder = {os.getenv "TMPDIR" or "/tmp"}}
  for key, value in pairs(layout.move) do options[key] = value end
  return program:apply(offload.move(options))
end

--- Returns the program with the passes of the layout.
function layouts.apply(program, model, mesh, layout, precision)
  if layout.passes then
    for _, pass in ipairs{layout.passes(mesh)} do program = program:apply(pass) end
  end
  if layout.shard then program = program:apply(zero.shard(shard_options(model, mesh, layout, precision))) end
  if layout.shard and layout.lua_reduce then program = program:apply(own_reduction(mesh, layout)) end
  if layout.scaled then program = program:apply(scaling(layout.scaled)) end
  return moved(program, layout)
end

local function is_power_of_two(n)
  while n % 2 == 0 do n = n / 2 end
  return n == 1
end

--- Returns the layout without a pipeline, recompute or sharding, whose bits must be those of `layout`: all sums have the same
--- order. Groups of replicas sum in the order of one axis if each group is contiguous and a power of two of ranks, no sum is
--- rounded to 16 bits in between, and no ranks share tokens or matrices; else the replicas stay.
function layouts.plain(layout)
  local plain = {axes = {}, micro_batches = layout.micro_batches, eval_micro_batches = layout.eval_micro_batches}
  plain.overlap = layout.overlap -- matmuls of pieces may round otherwise
  local shard, replicas_at, is_even, is_cut = layout.shard or {}, nil, true, false
  for _, axis in ipairs(layout.axes or {}) do
    if axis[1] ~= "pp" then plain.axes[#plain.axes + 1] = axis end
    is_cut = is_cut or (axis[1] ~= "pp" and SAME_SAMPLES[axis[1]])
    if axis[1] == "replica" then replicas_at = #plain.axes
    elseif axis[1] ~= "pp" then is_even = is_even and is_power_of_two(axis[2]) end
  end
  if #plain.axes == 0 then plain.axes = nil return plain end
  plain.shard = {stage = 0, reduce_every = shard.reduce_every, grad_dtype = shard.grad_dtype, reduce_dtype = shard.reduce_dtype}
  plain.joined = layout.joined
  if not replicas_at then return plain end
  local sums_in_16_bits = shard.grad_dtype or shard.reduce_dtype
  if replicas_at > 1 or not is_even or is_cut or shard.reduce_every ~= "step" or sums_in_16_bits then
    plain.shard.stage = 1
    return plain
  end
  plain.joined, plain.joins_replicas = data_axes(layout), true
  return plain
end

--- Returns the layout on one rank, in as many micro-batches as all ranks have, or in one.
local function reference(case)
  local is_whole = case.reference_in_one and not case.by_hand
  return {micro_batches = is_whole and 1 or #case.rows * case.parts, is_whole = is_whole}
end

function layouts.of_variant(case, variant, layout)
  local chosen = layout
  if variant.reference then chosen = reference(case) elseif variant.plain then chosen = layouts.plain(layout) end
  chosen.scaled = case.scaled
  return chosen
end

return layouts
