--- Cuts a drawn case over ranks that share matrices and tokens. Its dice are its own, so that the other draws of a seed stay.
local Dice = require "draw.dice"
local stream = require "draw.stream"

local draw_cut = {}

local MOST_RANKS = 8

-- Returns how `ranks` may be divided: {tp =, cp =}.
local function factorings(ranks)
  local found = {}
  for tp = 1, math.min(ranks, 4) do
    if ranks % tp == 0 and ranks / tp <= 4 then found[#found + 1] = {tp = tp, cp = ranks / tp} end
  end
  return found
end

-- A router's room per sample needs whole samples.
local function needs_whole_samples(case)
  for _, item in ipairs(case.items) do
    if item.kind == "mixture" and item.code and item.code:find "capacity" then return true end
  end
  return false
end

-- Returns the sizes of the two axes in the case's layout and, if it has one, in its second layout.
local function draw_sizes(dice, case, ranks)
  local room, found = math.floor(MOST_RANKS / ranks), {}
  for each = 2, room do
    for _, sizes in ipairs(factorings(each)) do
      if sizes.cp == 1 or not needs_whole_samples(case) then found[#found + 1] = sizes end
    end
  end
  if #found == 0 then return end
  local first, seconds = dice:pick(found), {}
  for _, sizes in ipairs(found) do
    if sizes.tp * sizes.cp == first.tp * first.cp then seconds[#seconds + 1] = sizes end
  end
  return first, dice:pick(seconds)
end

local function has_axis(layout, wanted)
  for _, axis in ipairs(layout.axes or {}) do
    if axis[1] == wanted then return true end
  end
  return false
end

-- Adds the axes to a layout, and what sums gradients over them.
local function cut_layout(dice, layout, sizes, like)
  layout.axes = layout.axes or {}
  if not has_axis(layout, "dp") and not has_axis(layout, "ep") then layout.axes[#layout.axes + 1] = {"dp", 1} end
  for _, name in ipairs{"tp", "cp"} do
    table.insert(layout.axes, dice:between(1, #layout.axes + 1), {name, sizes[name]})
  end
  layout.shard = layout.shard or {stage = dice:pick{0, 1, 2, 3}, reduce_every = like or dice:pick{"step", "micro_batch"}}
  if dice:one_in(3) then layout.backend = "shm" end
  layout.selective = dice:one_in(3) or nil
end

local ROPE_SCALINGS = {
  '{type = "linear", factor = 2}',
  '{type = "llama3", factor = 4, low_freq_factor = 1, high_freq_factor = 4, original = 8}',
}

-- Options of attention that the ranks can share. `is_inner`: the layer sees all tokens of the stream.
local function draw_attention(dice, most, is_inner)
  local heads = dice:pick(most.tp == 4 and {4, 6} or {3, 4, 6})
  local how = {
    heads = heads, kv_heads = dice:pick(heads % 2 == 1 and {1, 3} or heads == 4 and {1, 2, 4} or {1, 2, 3, 6}),
    head_dim = dice:pick{2, 4}, norm = dice:pick{"rmsnorm", "layernorm"}, bias = dice:one_in(2), rotary = dice:one_in(2),
    qk_norm = dice:one_in(3), window = dice:pick{0, 0, 3}, dropout = dice:pick{0, 0, 0.1}, ffn = dice:between(4, 9),
    activation = dice:pick{"gelu_tanh", "gelu", "swiglu"}, is_inner = is_inner,
    tile = dice:pick{0, 0, 3},
  }
  if dice:one_in(4) then how.qkv_bias = not how.bias end
  if how.rotary and dice:one_in(3) then how.rope_scaling = dice:pick(ROPE_SCALINGS) end
  local has_heads = math.floor(heads / most.tp) >= most.cp
  how.method = dice:pick(has_heads and {"ring", "gather", "ulysses"} or {"ring", "gather"})
  if how.method ~= "ulysses" and dice:one_in(2) then how.heads_at_once = dice:between(1, 2) end
  return how
end

-- Returns the code of a mixture whose router knows of cut tokens, and whose experts are cut if each rank gets a column.
local function mixture_code(code, most)
  local ffn, own = tonumber(code:match "[ {]ffn = (%d+)"), 'context = context("ring", 1), '
  local is_plain = ffn and ffn >= most.tp and not code:find "shared" and not code:find "expert ="
  return (code:gsub("moe.layers{", "moe.layers{" .. own .. (is_plain and "tensor = tp, " or ""), 1))
end

-- Cuts the attention and the experts of the layers that are there. They see all tokens along `tp`.
local function cut_items(dice, case, most)
  for _, item in ipairs(case.items) do
    local code = item.code
    if code and (item.kind == "block" or item.kind == "attention") then
      local how = draw_attention(dice, most, true)
      local made = item.kind == "block" and stream.block("", case.hidden, how) or stream.attention("", case.hidden, how)
      item.code, item.kind = made.code, made.kind
    elseif item.kind == "mixture" then
      item.code = mixture_code(code, most)
    end
  end
end

-- Without a layer that says how tokens are cut, cp would be an axis with other samples.
local function knows_context(items)
  for _, item in ipairs(items) do
    if item.code and item.code:find('context("', 1, true) then return true end
  end
  return false
end

-- Adds layers to the residual stream whose tokens all ranks see.
local function add_layers(dice, case, most)
  local items, hidden = case.items, case.hidden
  local function add(item) table.insert(items, dice:between(1, #items + 1), item) end
  if dice:one_in(2) then add(stream.block("inner_block", hidden, draw_attention(dice, most, true))) end
  if dice:one_in(3) then add(stream.pair("cut_pair", hidden, dice:between(4, 9))) end
  local function dropout() return dice:pick{0, 0, 0.1} end
  if dice:one_in(3) then add(stream.lua_mlp("cut_mlp", hidden, dice:between(4, 7), dice:below(1000), dropout())) end
  if dice:one_in(3) or not knows_context(items) then add(stream.token_mean("cut_mean", hidden, dice:below(1000))) end
  if dice:one_in(4) then add(stream.running_mean("cut_sums", hidden, dice:below(1000), dropout())) end
end

-- Puts the layers that are there between the halves of a block, where they see all tokens, after a block that sees some of them.
local function put_within(dice, case, most)
  local items = {}
  if dice:one_in(2) then items[1] = stream.block("cut_block", case.hidden, draw_attention(dice, most)) end
  local around = stream.around("cut", case.hidden, draw_attention(dice, most), case.items)
  for _, item in ipairs(around) do items[#items + 1] = item end
  case.items = items
end

--- Cuts one case in three. `ranks`: those of its layouts.
function draw_cut.draw(case, ranks)
  local dice = Dice.new(case.seed * 13 + 9)
  if not dice:one_in(3) then return end
  local first, second = draw_sizes(dice, case, ranks)
  if not first then return end
  local most = {tp = first.tp, cp = first.cp}
  cut_layout(dice, case.layout, first)
  if case.second then
    cut_layout(dice, case.second, second, case.layout.shard.reduce_every)
    most = {tp = math.max(first.tp, second.tp), cp = math.max(first.cp, second.cp)}
  end
  if dice:one_in(4) then -- a second layout sums in the same order
    case.layout.overlap = true
    if case.second then case.second.overlap = true end
  end
  case.cut = {sequence = most.tp > 1 and dice:one_in(2), layout = dice:pick{"balanced", "contiguous"}}
  for i, tokens in ipairs(case.seq) do case.seq[i] = tokens + 2 * most.cp - 1 + dice:below(4) end
  -- After a layer has failed, a rank cannot take part in what later layers exchange: the trainer ends.
  if case.mistake.what == "fuse" then case.mistake.what = "tokens" end
  case.packed, case.vocab = dice:one_in(3), dice:pick{11, 17}
  if dice:one_in(2) then case.positions = 32 end
  if dice:one_in(4) then case.dropout = 0.1 end
  cut_items(dice, case, most)
  add_layers(dice, case, most)
  if case.cut.sequence then put_within(dice, case, most) end
end

return draw_cut
