--- Gives some layers of a drawn case adapters. Its dice are its own, so that the other draws of a seed stay.
local Dice = require "draw.dice"

local draw_adapters = {}

-- Functions of nn that take the option.
local MAY_HAVE = {linear = true, mlp = true, block = true, attention = true, attention_block = true}

-- By function: the targets of its adapters, as lists of names that go together.
local MLP, GATED = {{"up"}, {"down"}, {"up", "down"}}, {{"gate", "down"}, {"up_proj"}, {"up"}}
local ATTENTION = {{"q", "v"}, {"qkv", "out"}, {"k"}, {"v", "out"}, {"q", "k", "v", "out"}}

local function targets_of(dice, layer, code)
  local gated = code:find("swiglu", 1, true) ~= nil
  local list = {}
  if layer ~= "mlp" then
    for _, name in ipairs(dice:pick(ATTENTION)) do list[#list + 1] = name end
  end
  if layer == "mlp" or (layer == "block" and dice:one_in(2)) then
    for _, name in ipairs(dice:pick(gated and GATED or MLP)) do list[#list + 1] = name end
  end
  for i, name in ipairs(list) do list[i] = ("%q"):format(name) end
  return ("targets = {%s}, "):format(table.concat(list, ", "))
end

-- Returns code of the option `lora` of a layer whose function is nn.LAYER.
local function option_code(dice, layer, code)
  local targets = layer == "linear" and "" or targets_of(dice, layer, code)
  return ("lora = {%srank = %d, alpha = %d, dropout = %s, scale = %q, init = %q}, "):format(targets, dice:between(1, 3),
    dice:between(1, 5), dice:pick{0, 0, 0.2}, dice:pick{"alpha/r", "alpha/sqrt(r)"}, dice:pick{"kaiming", "gaussian"})
end

--- Gives one case in three adapters: some of its layers of matrices.
function draw_adapters.draw(case)
  local dice = Dice.new(case.seed * 17 + 11)
  if not dice:one_in(3) then return end
  for _, item in ipairs(case.items) do
    local layer = item.code and not item.is_local and item.code:match "nn%.([%w_]+){"
    if MAY_HAVE[layer] and dice:one_in(2) then
      local option = option_code(dice, layer, item.code)
      item.code = item.code:gsub("nn%." .. layer .. "{", function(head) return head .. option end, 1)
    end
  end
end

return draw_adapters
