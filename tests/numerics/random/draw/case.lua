--- Draws a whole case, plain data that depends on the seed alone. render.lua makes a script of it.
local Dice = require "draw.dice"
local draw_adapters, draw_cut = require "draw.adapters", require "draw.cut"
local draw_layout, draw_model = require "draw.layout", require "draw.model"

local draw_case = {}

local optimizers = {
  {"adamw", {lr = 0.01, weight_decay = 0.1}}, {"adam", {lr = 0.01, weight_decay = 0.1}}, {"sgd", {lr = 0.05}},
  {"sgd", {lr = 0.02, momentum = 0.9}}, {"sgd", {lr = 0.02, momentum = 0.9, nesterov = true}}, {"lion", {lr = 0.003}},
  {"lua_momentum", {lr = 0.02, weight_decay = 0.1}},
}

-- Those that update whole tensors.
local of_tensors = {muon = true, lamb = true, adafactor = true, lua_rows = true}

-- With their defaults, Muon, Adafactor and Adagrad move at full length where a gradient is 0 but for rounding.
local later_optimizers = {
  {"muon", {lr = 0.02, weight_decay = 0.1, eps = 1, adamw = {lr = 0.01}}}, {"lamb", {lr = 0.01, weight_decay = 0.1}},
  {"adafactor", {lr = 0.02, eps1 = 1e-3}}, {"adagrad", {lr = 0.05, initial_accumulator_value = 0.1}},
  {"lua_rows", {lr = 0.01, weight_decay = 0.1}},
}

-- Draws layouts until one fits.
local function draw_fitting(dice, ranks, pieces, options)
  for _ = 1, 200 do
    local layout = draw_layout.draw(dice, ranks, pieces, options)
    if layout then return layout end
  end
end

local function draw_batches(dice, case, micro_batches, data)
  local pieces = micro_batches * data
  local rows = dice:pick{1, 1, 2, 3}
  case.rows, case.seq, case.empty = {}, {dice:between(3, 6)}, {}
  local is_ragged = dice:one_in(4)
  for m = 1, micro_batches do case.rows[m] = is_ragged and dice:between(1, 3) or rows end
  if is_ragged then
    for i = 2, dice:between(2, 4) do case.seq[i] = dice:between(1, case.seq[1]) end
  end
  if pieces > 2 and dice:one_in(3) then
    for _ = 1, dice:between(1, pieces - 2) do case.empty[#case.empty + 1] = dice:between(1, pieces - 1) end
  end
  case.reference_in_one = not is_ragged and dice:one_in(2)
  case.is_ragged = is_ragged
end

-- After a mistake, ranks that exchange padded rows of experts cannot learn of it: the run ends with a Fault.
local function may_err(case)
  for _, item in ipairs(case.items) do
    if item.code and item.code:find("pad = true", 1, true) then return false end
  end
  return true
end

-- A mistake in a call of the trainer, on all ranks or on those with the first part of the batch.
local function draw_mistake(dice, case)
  local kinds = {"labels", "tokens", "samples"}
  for _, item in ipairs(case.items) do
    if item.kind == "fuse" then kinds[#kinds + 1] = "fuse" end
  end
  local mistake = {what = dice:pick(kinds), of_all = dice:one_in(3), piece = dice:below(12)}
  mistake.call = dice:pick{"step", "step", "evaluate", "infer"}
  if mistake.call == "infer" and mistake.what == "labels" then mistake.what = "tokens" end
  return mistake
end

local function draw_events(dice, case)
  case.events = {}
  for step = 1, case.steps do
    local list = {}
    if dice:one_in(4) then list[#list + 1] = "evaluate" end
    if dice:one_in(5) then list[#list + 1] = "infer" end
    if dice:one_in(6) then list[#list + 1] = "generate" end
    if dice:one_in(8) and may_err(case) then list[#list + 1] = "mistake" end
    if case.by_hand and dice:one_in(3) and may_err(case) then list[#list + 1] = "mistake_by_hand" end
    if case.second and step == case.second_from then list[#list + 1] = "checkpoint" end
    case.events[step] = list
  end
  case.mistake = draw_mistake(dice, case)
  -- Dice of their own, so that the other draws of a seed stay.
  local beside = Dice.new(case.seed * 7 + 2)
  if beside:one_in(4) then table.insert(case.events[beside:between(1, case.steps)], "beside") end
  local away = Dice.new(case.seed * 7 + 11)
  if away:one_in(3) then table.insert(case.events[away:between(1, case.steps)], "away") end
end

-- A second layout, for the steps after a checkpoint.
local function draw_second(dice, case, ranks, pieces, options, data)
  if case.steps < 2 or not dice:one_in(3) then return end
  if case.is_ragged then options.data_ranks = data end
  options.like = case.layout.shard
  local second = draw_fitting(dice, ranks, pieces, options)
  if not second then return end
  case.second, case.second_from = second, dice:between(2, case.steps)
end

--- Returns the case of a seed.
function draw_case.draw(seed)
  local dice = Dice.new(seed * 7 + 1)
  local case = {seed = seed, finds_differences = seed % 10 == 0, vocab = 11, steps = dice:pick{1, 2, 2, 3}}
  local ranks = dice:pick{1, 2, 2, 2, 3, 4, 4, 4, 4, dice:pick{5, 6, 7}, 6, 8}
  local experts = dice:one_in(3) and dice:pick{2, 3, 4} or nil
  case.by_hand = dice:one_in(5)
  local options = {experts = experts, is_by_hand = case.by_hand, samples = 1}
  local micro_batches
  repeat
    micro_batches = dice:between(1, 4)
    case.layout = draw_layout.draw(dice, ranks, ranks * 12 * micro_batches, options)
  until case.layout
  local data = ranks / draw_layout.size(case.layout, "pp")
  case.layout.micro_batches = micro_batches
  draw_batches(dice, case, micro_batches, data)
  draw_model.draw(dice, case, experts)
  options.samples = case.rows[1]
  draw_second(dice, case, ranks, micro_batches * data, options, data)
  case.layout.eval_micro_batches = dice:one_in(2) and not case.is_ragged and micro_batches or 1
  if case.second and case.is_ragged then case.second.eval_micro_batches = 1 end
  case.precision = dice:pick{"fp64", "fp32", "fp32", "bf16", "bf16", "fp16"}
  case.optimizer, case.clip = dice:pick(optimizers), dice:pick{0, 0, 0.01, 0.5}
  local later = Dice.new(case.seed * 7 + 3) -- dice of their own, so that the other draws of a seed stay
  if later:one_in(3) then case.optimizer = later:pick(later_optimizers) end
  for _, layout in ipairs{case.layout, case.second} do
    local may = layout.shard and not layout.shard.reduce_dtype
    if may and later:one_in(4) then layout.lua_reduce = true end
  end
  local moves, values = Dice.new(case.seed * 7 + 5), Dice.new(case.seed * 7 + 9)
  for _, layout in ipairs{case.layout, case.second} do
    if not of_tensors[case.optimizer[1]] and moves:one_in(3) then layout.move = draw_layout.move(moves, layout) end
    if values:one_in(3) then draw_layout.move_activations(values, layout) end
    local updates = layout.move and (layout.move.optimizer or "device") ~= "device"
    if updates and (case.seed + #(layout.axes or {})) % 3 == 0 then layout.move.step_on = "device" end
  end
  case.frozen = dice:one_in(2) and draw_model.frozen(dice, case.items) or {}
  draw_events(dice, case)
  draw_cut.draw(case, ranks)
  draw_adapters.draw(case)
  draw_model.draw_policy(Dice.new(case.seed * 17 + 9), case)
  local scaled = Dice.new(case.seed * 7 + 11)
  -- A model that is cut over ranks has other units than the whole one.
  if not case.finds_differences and scaled:one_in(4) then case.scaled = case.cut and 1 or scaled:pick{1, 2, 3} end
  for _, layout in ipairs{case.layout, case.second} do
    if case.scaled and layout.move and layout.shard then -- gradients leave one after the other
      layout.move.gradients, layout.shard.bucket_bytes = "nvme", scaled:pick{0, 100}
    end
  end
  return case
end

return draw_case
