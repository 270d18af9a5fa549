--- Faults that are planted to show that the cases would find them: wrong actions around those of the program, and a wrong layer.
--- The product has no part in this.
local zt = require "zt"
local nn = require "zt.nn"
local check = require "zt.check"
local draw_layout = require "draw.layout"
local placements = require "placements"

local size, data_ranks = draw_layout.size, draw_layout.data_ranks

local faults = {active = nil}

-- Actions. They do not declare what they write, because the verifier would refuse most of them. What one action saves, another
-- finds by the index of its unit. Each rank has a Lua state of its own.
local saved = {}

local function copy_grad(ctx) saved[ctx.unit.index] = ctx.unit.grad:clone() end
local function restore_grad(ctx) ctx.unit.grad:copy_(saved[ctx.unit.index]) end

local save = zt.action{name = "FAULT_SAVE", start = copy_grad}
local save_sum = zt.action{name = "FAULT_SAVE_SUM", reads = {"grad"}, start = copy_grad}
local restore = zt.action{name = "FAULT_RESTORE", start = restore_grad}
local restore_sum = zt.action{name = "FAULT_RESTORE_SUM", reads = {"grad"}, start = restore_grad}

local function change(name, fn)
  return zt.action{name = name, reads = {"grad"}, start = function(ctx)
    if ctx.unit.grad_shard then fn(ctx.unit.grad_shard) end
  end}
end

-- Returns a pass that calls edit(list, action, info) for each action of a training program; it adds the action to the new list.
local function edited(edit, actions)
  return zt.pass{name = "fault", phase = "overlap", actions = actions, apply = function(program, info)
    if program.mode ~= "train" then return program end
    local list = {}
    for index, action in ipairs(program.actions) do edit(list, action, info, index == #program.actions) end
    program.actions = list
    return program
  end}
end

-- Returns a pass that puts `first` before NORM for each trained unit, or for the first one only, and `last` after it.
local function around_norm(first, last, is_one)
  local held = {}
  local function add(list, kind, info)
    if not kind then return end
    for _, unit in ipairs(info.units) do
      if unit.trainable and held[unit.index] then
        list[#list + 1] = kind(unit.index)
        if is_one then return end
      end
    end
  end
  return edited(function(list, action, info)
    if action.kind == "COUNT" then held = {} end
    if action.kind == "B" or action.kind == "W" then
      for _, unit in ipairs(info.positions[action.target + 1].units) do held[unit] = true end
    end
    if action.kind == "NORM" then add(list, first, info) end
    list[#list + 1] = action
    if action.kind == "NORM" then add(list, last, info) end
  end, {first, last})
end

local function has_whole_sums(case)
  local shard = case.layout.shard
  return shard and shard.stage <= 1 and shard.reduce_every == "step" and not case.second
end

-- By name: fits(case), whether a case can show it; plant(layout), which returns a pass, or layer(h, ctx or mask), the wrong form
-- of the layer.
faults.list = {}

local function leave_out_a_sum()
  local at
  return edited(function(list, action)
    if action.kind == "COUNT" then at = nil end
    local is_first = action.kind == "REDUCE_GRAD" and not at
    if is_first then at = action.target list[#list + 1] = save_sum(at) end
    list[#list + 1] = action
    if is_first then list[#list + 1] = restore_sum(at) end
  end, {save_sum, restore_sum})
end

faults.list.sum_left_out = {
  fits = function(case) return has_whole_sums(case) and data_ranks(case.layout) > 1 end,
  plant = leave_out_a_sum,
}

faults.list.sum_over_tokens_left_out = {
  fits = function(case) return has_whole_sums(case) and size(case.layout, "cp") > 1 end,
  plant = leave_out_a_sum,
}

faults.list.factor_of_dp = {
  fits = function(case) return case.layout.shard and data_ranks(case.layout) > 1 end,
  plant = function(layout)
    local ranks = data_ranks(layout)
    return around_norm(change("FAULT_DIVIDE", function(grad) grad:div_(ranks) end))
  end,
}

faults.list.norm_counts_twice = {
  fits = function(case) return case.layout.shard ~= nil end,
  plant = function()
    return around_norm(change("FAULT_GROW", function(grad) grad:mul_(math.sqrt(2)) end),
      change("FAULT_SHRINK", function(grad) grad:div_(math.sqrt(2)) end), true)
  end,
}

faults.list.rounded_sum = {
  fits = function(case) return case.layout.shard ~= nil end,
  plant = function()
    return around_norm(change("FAULT_ROUND", function(grad) grad:copy_(grad:to "float32") end), nil, true)
  end,
}

-- Adds and subtracts a number: as rounding in another order would, this changes last bits only.
faults.list.order_of_sums = {
  fits = function(case) return case.layout.shard and case.precision ~= "fp64" end,
  plant = function()
    return around_norm(change("FAULT_ORDER", function(grad)
      if grad:dtype() ~= "float64" then grad:add_(1):sub_(1) end
    end))
  end,
}

faults.list.dropped_micro_batch = {
  fits = function(case) return has_whole_sums(case) and #case.rows > 1 and not case.is_tied end,
  plant = function(layout)
    local last = layout.micro_batches - 1
    return edited(function(list, action, info)
      local place = #info.positions
      while #info.positions[place].units == 0 do place = place - 1 end
      local head = info.positions[place]
      local is_sum = action.kind == "B" or action.kind == "W"
      local is_last = is_sum and action.target == place - 1 and action.micro_batch == last
      if is_last then list[#list + 1] = save(head.units[1]) end
      list[#list + 1] = action
      if is_last then list[#list + 1] = restore(head.units[1]) end
    end, {save, restore})
  end,
}

faults.list.stale_parameter = {
  fits = function(case)
    local shard = case.layout.shard
    return shard and shard.stage == 0 and case.steps > 1 and not case.second
  end,
  plant = function()
    local touched = {"param", "master"}
    local function copy(ctx) saved[ctx.unit.index] = ctx.unit.full:clone() end
    local function put_back(ctx) ctx.unit.full:copy_(saved[ctx.unit.index]) end
    local keep = zt.action{name = "FAULT_KEEP", reads = touched, start = copy}
    local back = zt.action{name = "FAULT_STALE", reads = touched, start = put_back}
    local target
    return edited(function(list, action)
      if action.kind == "COUNT" then target = nil end
      local is_first = action.kind == "STEP" and (not target or target == action.target)
      if is_first then
        if not target then list[#list + 1] = keep(action.target) end
        target = action.target
      end
      list[#list + 1] = action
      if is_first then list[#list + 1] = back(action.target) end
    end, {keep, back})
  end,
}

local function repeats_several_parameters(case)
  for _, item in ipairs(case.items) do
    if item.again and (item.kind == "mlp" or item.kind == "layernorm" or item.kind == "block") then return true end
  end
end

-- REDUCE_TIE of the first parameter only: the others keep this rank's sum.
faults.list.tie_of_the_first_parameter = {
  fits = function(case)
    return size(case.layout, "pp") > 1 and repeats_several_parameters(case)
      and (not case.layout.shard or case.layout.shard.stage <= 1) and not case.second
  end,
  plant = function()
    local first
    local rest = zt.action{name = "FAULT_REST", reads = {"grad"}, start = function(ctx)
      local unit = ctx.unit
      local begin = first[unit.index]
      local count = unit.grad:numel() - begin
      unit.grad:narrow(0, begin, count):copy_(saved[unit.index]:narrow(0, begin, count))
    end}
    return edited(function(list, action, info)
      local unit = action.kind == "REDUCE_TIE" and info.units[action.target + 1]
      if not unit or #unit.params < 2 then list[#list + 1] = action return end
      first = first or {}
      local numel = 1
      for _, n in ipairs(info.params[unit.params[1] + 1].shape) do numel = numel * n end
      first[unit.index] = math.ceil(numel / 32) * 32
      for _, each in ipairs{save(unit.index), action, rest(unit.index)} do list[#list + 1] = each end
    end, {save, rest})
  end,
}

-- The values of a micro-batch reach the next layer in the place of those of the following one.
local slot = {}
faults.list.wrong_slot = {
  fits = function(case)
    return #case.rows > 1 and case.rows[1] == case.rows[2] and #case.seq == 1 and not case.layout.recompute
  end,
  layer = function(h, ctx)
    local before = slot[1]
    slot[1] = h:detach()
    if ctx.micro_batch ~= 1 or ctx.mode ~= "train" or not before then return h end
    return before + (h - h:detach())
  end,
}

-- Dropout with the masks of other samples and tokens, on all ranks but the first.
local function masks_of_others(fits)
  local function layer(h, mask) return h * (zt.world.rank > 0 and mask:roll({1}, {1}) or mask) end
  return {fits = fits, has_dropout = true, layer = layer}
end

faults.list.wrong_first_sample = masks_of_others(function(case) return data_ranks(case.layout) > 1 end)
faults.list.wrong_first_token = masks_of_others(function(case) return size(case.layout, "cp") > 1 end)

local function chooses_experts(case)
  for _, item in ipairs(case.items) do
    if item.code and item.code:find "select =" then return true end
  end
end

-- A choice of experts that depends on the rank.
faults.list.wrong_choice = {
  fits = function(case) return data_ranks(case.layout) > 1 and chooses_experts(case) end,
  choice = function(experts, count) return zt.world.rank > 0 and (experts + 1):remainder(count) or experts end,
}

-- A wrong gradient in all runs, also on one rank: finite differences find it.
faults.list.gradient_of_all = {
  fits = function(case) return case.finds_differences and case.precision ~= "fp16" end,
  is_of_all = true,
  layer = function(h) return h + (h - h:detach()):mul(0.01) end,
}

faults.list.state_lost_on_load = {
  fits = function(case) return case.second and case.optimizer[1] ~= "sgd" end,
  loaded = function(trainer)
    local name = trainer:parameters()[1]
    for key, values in pairs(trainer:optimizer_state(name)) do trainer:set_optimizer_state(name, key, values:mul(0.5)) end
  end,
}

for name, fault in pairs(placements.list) do faults.list[name] = fault end

--- Returns zt.nn, with layers that forget placements where such a fault is active.
function faults.nn()
  return placements.falsified(nn, function() return faults.list[faults.active] end)
end

--- Returns the names in order.
function faults.names() return check.sorted_keys(faults.list) end

--- Returns the program with the fault.
function faults.plant(name, program, layout)
  local plant = faults.list[name].plant
  return plant and program:apply(plant(layout)) or program
end

--- Called with a trainer that has loaded a checkpoint.
function faults.loaded(name, trainer)
  local loaded = faults.list[name].loaded
  if loaded then loaded(trainer) end
end

--- Returns the experts that layers.choice has chosen among `count`, or others if that is the fault.
function faults.choice(experts, count)
  local fault = faults.list[faults.active]
  return fault and fault.choice and fault.choice(experts, count) or experts
end

--- The layer that a case with a planted fault has before its head. It is wrong where `faults.active` is set.
function faults.layer(name)
  local fault = faults.list[name]
  local is_active = faults.active == name and fault.layer
  return nn.layer{kind = "fault", forward = function(_, h, ctx)
    if fault.has_dropout then
      local mask = ctx:dropout(h:detach() * 0 + 1, 0.3)
      return is_active and fault.layer(h, mask) or h * mask
    end
    return is_active and fault.layer(h, ctx) or h
  end}
end

return faults
