--- Faults of cut layers: parameters whose placement a module has forgotten to state, so that their gradients are not summed over
--- the ranks that share matrices. `list` has entries of faults.list.
local ranks = require "zt.ranks"
local draw_layout = require "draw.layout"

local placements = {}

local function has_code(case, text)
  for _, item in ipairs(case.items) do
    if item.code and item.code:find(text, 1, true) then return true end
  end
  return false
end

-- Ranks with other weights route otherwise, and leave the comparison of a loaded checkpoint at other places: such a case ends
-- with an error, and no numbers are compared.
local function shares_matrices(case)
  local may_end = case.second or has_code(case, "moe.layers")
  return case.cut and draw_layout.size(case.layout, "tp") > 1 and not may_end
end

-- Norms of heads: each rank has other heads.
placements.norms_of_heads_see_same_data = {
  fits = function(case) return shares_matrices(case) and has_code(case, "qk_norm = true") end,
  forgotten = {"q_norm.weight", "k_norm.weight"},
}

-- Norms of a stream whose tokens are shared: each rank has other tokens.
placements.norms_of_tokens_see_same_data = {
  fits = function(case) return shares_matrices(case) and case.cut.sequence end,
  forgotten = {"norm1.weight", "norm2.weight"},
}

local LAYERS = {"attention", "attention_block", "block"}

-- Returns zt.nn with layers whose placements the fault that `active()` returns has forgotten.
local function falsified(nn, active)
  local own = setmetatable({}, {__index = nn})
  for _, name in ipairs(LAYERS) do
    own[name] = function(options)
      local layer, fault = nn[name](options), active()
      for _, forgotten in ipairs(fault and fault.forgotten or {}) do ranks.falsify(layer, forgotten, "tp") end
      return layer
    end
  end
  return own
end

return {list = placements, falsified = falsified}
