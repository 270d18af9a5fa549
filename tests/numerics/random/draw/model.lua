--- Draws the layers of a random model.
--
-- A model is a list of items between an embedding and a head. An item is {name =, code =, positions =, [needs = {name, ...}]}:
-- Lua code that makes a layer, or the list of the layers of a block, which read and output h of `hidden` columns. {again = name}
-- uses the layer of an earlier item once more, and one that `is_local` is used in the code of later items. `needs` names items
-- without which it has no meaning. So any part of the list that is closed under needs is a model, too.

local Dice = require "draw.dice"

local draw_model = {}

local function seed(dice) return dice:below(1000) end

-- By kind: a function of (dice, hidden, name) that returns code and, if it is not 1, the number of positions; and how often.
local kinds = {
  {4, "linear", function(dice, hidden)
    return ('nn.linear{["in"] = %d, out = %d, bias = %s, std = 0.4}'):format(hidden, hidden, dice:one_in(2))
  end},
  {3, "mlp", function(dice, hidden)
    local activation = dice:pick{"gelu_tanh", "gelu", "swiglu"}
    return ('nn.mlp{hidden = %d, ffn = %d, activation = "%s", bias = %s, std = 0.4}')
      :format(hidden, dice:between(1, 12), activation, dice:one_in(2))
  end},
  {2, "block", function(dice, hidden)
    return ('nn.block{hidden = %d, heads = %d, ffn = %d, norm = "%s", dropout = %s, std = 0.3}')
      :format(hidden, hidden % 4 == 0 and 2 or 1, dice:between(1, 9), dice:pick{"rmsnorm", "layernorm"}, dice:pick{0, 0, 0.1})
  end},
  {1, "attention", function(dice, hidden)
    return ("nn.attention{hidden = %d, heads = 1, bias = %s, std = 0.4}"):format(hidden, dice:one_in(2))
  end},
  {1, "rmsnorm", function(_, hidden) return ("nn.rmsnorm{hidden = %d}"):format(hidden) end},
  {1, "layernorm", function(_, hidden) return ("nn.layernorm{hidden = %d}"):format(hidden) end},
  {1, "dropout", function(dice) return dice:one_in(2) and "nn.dropout{p = 0.2}" or "layers.dropout(0.2)" end},
  {2, "wide", function(dice, hidden)
    local wide = dice:between(1, 13)
    local up = ('{"up", nn.linear{["in"] = %d, out = %d, std = 0.4}}'):format(hidden, wide)
    local down = ('{"down", nn.linear{["in"] = %d, out = %d, std = 0.4}}'):format(wide, hidden)
    return ('{%s, {"act", layers.silu()}, %s}'):format(up, down), 3
  end},
  {4, "mix", function(dice, hidden) return ("layers.mix(%d, %d, %d)"):format(hidden, dice:between(1, 4), seed(dice)) end},
  {2, "penalty", function(dice, hidden, name)
    local per = dice:pick{"token", "sample"}
    local term = dice:pick{"early", "late", name}
    return ('layers.penalty(%d, "%s_%s", "%s", %d)'):format(hidden, term, per, per, seed(dice))
  end},
  {1, "sometimes", function(dice, hidden) return ("layers.sometimes(%d, %d)"):format(hidden, seed(dice)) end},
  {1, "unread", function(dice, hidden, name) return ('layers.unread(%d, "%s_aside", %d)'):format(hidden, name, seed(dice)) end},
  {1, "tally", function() return "layers.tally()" end},
  {2, "fuse", function() return "layers.fuse()" end},
}

local function pick_kind(dice)
  local sum = 0
  for _, kind in ipairs(kinds) do sum = sum + kind[1] end
  local at = dice:below(sum)
  for _, kind in ipairs(kinds) do
    at = at - kind[1]
    if at < 0 then return kind end
  end
end

local function plain_item(dice, hidden, name)
  local kind = pick_kind(dice)
  local code, positions = kind[3](dice, hidden, name)
  return {name = name, kind = kind[2], code = code, positions = positions or 1}
end

local function router_code(dice, top_k, may_pad)
  local options = {"std = 0.7"}
  local function add(text) options[#options + 1] = text end
  if dice:one_in(3) then add 'score = "sigmoid"' end
  if dice:one_in(3) and top_k > 1 then add 'normalise = "selected"' end
  local has_bias = dice:one_in(3)
  if has_bias then add "bias = true, bias_rate = 0.1" end
  if dice:one_in(4) then
    local noises = {"jitter", "gumbel", top_k > 1 and "gumbel_second" or "gumbel"}
    add(('noise = "%s"'):format(has_bias and "jitter" or dice:pick(noises)))
  end
  if dice:one_in(3) then
    local keep, pads = dice:pick{"probability", "place"}, may_pad and dice:one_in(2)
    add(('capacity = {train = 1, eval = 2, min = 1, keep = "%s", pad = %s}'):format(keep, pads))
  end
  if dice:one_in(2) then add(("losses = {balance = 0.1, z = %s}"):format(dice:pick{0, 0.01})) end
  return table.concat(options, ", ")
end

-- Returns an item with experts. `dense`: the name of a layer of the model that it uses as prototype of its experts, as shared
-- expert, or as both, or nil.
local function mixture(dice, case, name, experts, dense)
  local hidden = case.hidden
  local top_k = dice:between(1, 2)
  local parts = {("experts = %d, hidden = %d, top_k = %d, axis = mesh.ep"):format(experts, hidden, top_k)}
  local function add(text) parts[#parts + 1] = text end
  local positions = 4
  local role = dense and dice:pick{"expert", "shared", "both"}
  if role == "expert" or role == "both" then add("expert = " .. dense)
  elseif dice:one_in(4) then add(("expert = layers.mix(%d, %d, %d)"):format(hidden, dice:between(1, 3), seed(dice)))
  else add(("ffn = %d, bias = %s"):format(dice:between(2, 9), dice:one_in(2))) end
  if role == "shared" or role == "both" then add(("shared = {layer = %s, gate = %s}"):format(dense, dice:one_in(2)))
  elseif dice:one_in(3) then add(("shared = {ffn = %d, gate = %s}"):format(dice:between(1, 5), dice:one_in(2))) end
  if parts[#parts]:find "^shared" then positions = positions + 1 end
  local gathers = dice:one_in(3)
  if gathers then add 'dispatcher = "all_gather"' end
  if dice:one_in(3) then add "overlap = true" end
  local may_pad = not gathers and not case.is_ragged -- padded ranks need equally many tokens
  local router = router_code(dice, top_k, may_pad)
  -- Dice of their own, so that the other draws of a seed stay.
  local chooses = Dice.new(case.seed * 7 + 3):one_in(3) and not router:find "bias" and not router:find "gumbel"
  if chooses then add(("select = layers.choice(%d)"):format(top_k)) end
  add("router = {" .. router .. "}")
  local code = ("moe.layers{%s}"):format(table.concat(parts, ", "))
  return {name = name, kind = "mixture", code = code, positions = positions, needs = {dense}}
end

-- Puts an item with experts at a random place, and maybe a layer before it that it uses, too.
local function insert_mixture(dice, case, items, name, experts)
  local at, dense = dice:between(1, #items + 1), nil
  if dice:one_in(4) then
    dense = name .. "_dense"
    local code = ("layers.mix(%d, %d, %d)"):format(case.hidden, dice:between(1, 4), seed(dice))
    table.insert(items, dice:between(1, at), {name = dense, kind = "mix", code = code, positions = 1, is_local = true})
    at = at + 1
  end
  table.insert(items, at, mixture(dice, case, name, experts, dense))
end

-- Puts two items into the list, the first before the second, at random places. The second needs the first.
local function insert_pair(dice, items, name, first, second)
  local at = dice:between(1, #items + 1)
  table.insert(items, at, {name = name, kind = first[1], code = first[2], positions = 1})
  table.insert(items, dice:between(at + 1, #items + 1),
    {name = name .. "_use", kind = second[1], code = second[2], positions = 1, needs = {name}})
end

-- By kind: adds layers that belong together.
local related = {}

function related.skip(dice, items, _, name)
  insert_pair(dice, items, name, {"fork", ('layers.fork("%s_aside")'):format(name)},
    {"join", ('layers.join("%s_aside", %d)'):format(name, seed(dice))})
end

function related.mask(dice, items, _, name)
  insert_pair(dice, items, name, {"mask", ('layers.mask("%s_mask")'):format(name)},
    {"masked", ('layers.masked("%s_mask")'):format(name)})
end

function related.tied(dice, items, hidden, name)
  table.insert(items, 1, {param = name, code = ("layers.param(%d, %d)"):format(hidden, seed(dice))})
  for use = 1, dice:between(2, 3) do
    local item = {name = name .. "_" .. use, kind = "tied", positions = 1, needs = {name}}
    item.code = ("layers.tied(%s)"):format(name)
    table.insert(items, dice:between(2, #items + 1), item)
  end
end

-- Kinds that stand once only.
local unique = {mixture = true, fork = true, mask = true, wide = true, metric = true}

local function may_repeat(item) return item.name and not unique[item.kind] end

-- Uses some layers once or twice more, each after its first use.
local function repeat_some(dice, items)
  for _ = 1, dice:below(4) do
    local at = #items > 0 and dice:between(1, #items) or 1
    local item = items[at]
    if item and may_repeat(item) then
      local again = {again = item.name, kind = item.kind, positions = 1, needs = {item.name}}
      table.insert(items, dice:between(at + 1, #items + 1), again)
    end
  end
end

-- Layers that may also stand within a layer in Lua.
local may_stand_within = {
  linear = true, mlp = true, block = true, attention = true, rmsnorm = true, layernorm = true, dropout = true, penalty = true,
  sometimes = true,
}

-- Puts some layers into layers in Lua, and maybe a metric between two layers.
local function draw_lua(dice, items)
  for _, item in ipairs(items) do
    if item.name and item.code and not item.is_local and may_stand_within[item.kind] and dice:one_in(4) then
      item.code = ("layers.within(%s)"):format(item.code)
    end
  end
  if dice:one_in(4) then
    local item = {name = "metric", kind = "metric", code = "layers.metric()", positions = 1}
    table.insert(items, dice:between(1, #items + 1), item)
  end
end

-- Lets some MLPs and the head work on a tile of rows at a time.
local function draw_tiles(dice, case)
  for _, item in ipairs(case.items) do
    local option = item.kind == "mlp" and "tile" or item.kind == "block" and "mlp_tile"
    if option and item.code and dice:one_in(3) then
      item.code = item.code:gsub("}", (", %s = %d}"):format(option, dice:between(1, 5)), 1)
    end
  end
  if dice:one_in(3) then case.head_tile = dice:between(1, 5) end
end

--- Sets hidden, items, is_tied, norm and head_tile of the case. `experts`: the number of experts, or nil.
function draw_model.draw(dice, case, experts)
  local hidden, items = dice:pick{3, 4, 5, 6, 7, 8}, {}
  case.hidden = hidden
  for i = 1, dice:below(6) do items[i] = plain_item(dice, hidden, "layer" .. i) end
  for i = 1, experts and dice:between(1, 2) or 0 do
    insert_mixture(dice, case, items, "mixture" .. i, experts)
  end
  for i = 1, dice:pick{0, 0, 1, 1, 2} do
    local kind = dice:pick{"skip", "skip", "mask", "tied"}
    related[kind](dice, items, hidden, kind .. i)
  end
  repeat_some(dice, items)
  draw_lua(Dice.new(case.seed * 11 + 5), items) -- dice of their own, so that the other draws of a seed stay
  case.items = items
  case.is_tied, case.norm = dice:one_in(3), dice:pick{"none", "none", "rmsnorm", "layernorm"}
  draw_tiles(Dice.new(case.seed * 13 + 7), case)
end

--- Lets some models end with the loss of a policy by log-probabilities of the labels: sets policy, code of options.
function draw_model.draw_policy(dice, case)
  if not dice:one_in(4) then return end
  local head = {("temperature = %s"):format(dice:pick{1, 1, 0.7, 2})}
  local loss = {("clip = {low = %s, high = %s}"):format(dice:pick{0.2, 0.5}, dice:pick{0.3, 1})}
  if dice:one_in(2) then
    head[2], loss[2] = "entropy = true", "entropy = 0.05"
  end
  if dice:one_in(2) then
    loss[#loss + 1] = ("kl = {estimator = %q, corrected = %s}"):format(dice:pick{"k2", "k3"}, dice:one_in(2))
  end
  if dice:one_in(3) then loss[#loss + 1] = "dual_clip = 2" end
  if dice:one_in(2) then loss[#loss + 1] = dice:pick{'mean = "sequence"', 'mean = "constant", max_tokens = 7'} end
  if not case.cut and dice:one_in(4) then loss[#loss + 1] = 'level = "sequence"' end
  case.policy = {head = table.concat(head, ", "), loss = table.concat(loss, ", ")}
end

local without_parameters = {
  fork = true, mask = true, masked = true, dropout = true, tally = true, mixture = true, tied = true, fuse = true,
  metric = true,
}

--- Returns what is frozen: some items or one parameter of them, as {item = name, pattern =}. The head stays trainable.
function draw_model.frozen(dice, items)
  local frozen = {}
  for _, item in ipairs(items) do
    local name = item.param or item.name
    if name and not without_parameters[item.kind] and dice:one_in(5) then
      local pattern = item.param and "^%s_[0-9]+[.]" or item.kind == "mix" and "^%s[.]w1$" or "^%s[.]"
      frozen[#frozen + 1] = {item = name, pattern = pattern:format(name)}
    end
  end
  return frozen
end

return draw_model
