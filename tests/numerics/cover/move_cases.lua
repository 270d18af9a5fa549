--- Makes a case of the random tests from a combination of the cover of data that move.
local cut_cases, dimensions = require "cases", require "move_dimensions"

local cases = {}

local RULES = {
  adamw = {lr = 0.01, weight_decay = 0.1}, adam = {lr = 0.01, weight_decay = 0.1}, lion = {lr = 0.003},
  sgd = {lr = 0.02, momentum = 0.9}, lua_momentum = {lr = 0.02, weight_decay = 0.1},
}

-- The embedding, or a part of the first block.
local FROZEN = {{{item = "one", pattern = "^embedding[.]"}}, {{item = "one", pattern = "^one[.]mlp"}}}

-- Enough for all that one action needs.
local LEAST_STAGING = 1000000

local function moves_of(of)
  local name, number = of.room:match "^(%a+) (%S+)$"
  local move = {
    optimizer = of.optimizer, gradients = of.gradients, parameters = of.parameters, activations = of.activations,
    slice = of.slice, [name] = tonumber(number),
    staging = of.staging == "least" and LEAST_STAGING or nil,
    step_on = of.step_on == "device" and of.optimizer ~= "device" and "device" or nil,
  }
  if of.activations ~= "device" then move.activations_stay, move.activation_bytes = of.activations_stay, 1 end
  if of.disk == "cached, two folders" then move.direct, move.folder = false, {"/tmp", "/tmp"} end
  if of.disk == "checksum, small blocks" then move.checksum, move.block, move.depth = true, 4096, 2 end
  return move
end

--- Returns the case of combination number `number`, from 0.
function cases.of(combination, number)
  local of = combination
  local base = {
    tensor = "1", context = "1", overlap = false, heads_at_once = 0, style = number % 2 == 0 and "gpt2" or "llama", vocab = 127,
    hidden = 48, heads = 3, kv_heads = 3, tokens = 9, packed = false, window = 0, ignored = false, tile = 0,
    order = "pp dp ep cp tp", backend = "local", selective = false, tied = of.tied, dp = of.dp, stage = of.stage,
    pipeline = of.pipeline, recompute = of.recompute, dropout = of.dropout, clip = of.clip, mlp = of.mlp,
    precision = of.precision,
  }
  local case = cut_cases.of(base, number)
  case.by_hand = of.by_hand
  case.rows, case.layout.micro_batches = {1, 1}, 2
  case.optimizer = {of.rule, RULES[of.rule]}
  case.frozen = of.frozen and FROZEN[1 + number % 2] or {}
  local shard = case.layout.shard
  shard.reduce_every = of.every
  if of.stage == 3 then shard.node_shared = false end
  case.layout.move = moves_of(of)
  return case
end

--- Returns a line that says what the combination is.
function cases.text(combination) return cut_cases.text(combination, dimensions.list) end

return cases
