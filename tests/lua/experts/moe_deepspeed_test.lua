-- Compares moe.from_deepspeed with DeepSpeed's own gates (tests/oracle/make_moe_deepspeed.py), in fp32, on 1,000 random inputs
-- each: which experts keep a token, its weights, the number of routes without room and the balancing loss.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local moe, nn, optim = require "zt.moe", require "zt.nn", require "zt.optim"
local router_alone = require "support.router_alone"
local safetensors = require "support.safetensors"

local INPUTS, TOKENS, EXPERTS = 1000, 24, 4
local FACTORS = {0.25, 0.5, 0.75, 1} -- of the inputs in turn
local golden = safetensors.read "tests/golden/moe_deepspeed.safetensors"

-- Weights are at most 1. Each is a quotient of rounded sums of at most 4 rounded exponentials, in both libraries.
local BOUND = 16 * 2 ^ -24

-- The inputs of tests/oracle/make_moe_deepspeed.py.
local function logits_of(index)
  local state = index + 1
  local function number()
    state = state * 48271 % 2147483647
    return state / 2147483647
  end
  for _ = 1, 8 do number() end
  local rows = {}
  for token = 1, TOKENS do
    rows[token] = {}
    for expert = 1, EXPERTS do rows[token][expert] = (number() + number() + number() - 1.5) * 4 end
  end
  return zt.tensor(rows, {dtype = "float32"}):view{1, TOKENS, EXPERTS}
end

-- Returns a function from logits to {weights = list by token and expert, dropped =, balance =}: the router alone, with the
-- identity as its weight.
local function gate_of(options)
  options.hidden_size, options.num_experts, options.ffn, options.aux_loss = EXPERTS, EXPERTS, 4, 1
  local trainer, seen = router_alone.trainer(moe.from_deepspeed(options)[1][2], EXPERTS)
  return function(logits, mode)
    local result = trainer[mode or "step"](trainer, {logits = logits})
    local experts, weights = seen.experts:view{TOKENS, -1}:tolist(), seen.weights:view{TOKENS, -1}:tolist()
    local by_expert = {}
    for token = 1, TOKENS do
      by_expert[token] = {0, 0, 0, 0}
      for route, expert in ipairs(experts[token]) do
        if expert >= 0 then by_expert[token][expert + 1] = weights[token][route] end
      end
    end
    return {weights = by_expert, dropped = result.stats["router.dropped"], balance = result.terms.balance}
  end
end

-- Compares one input with the golden file.
local function compare(k, index, got, wanted)
  local what, kept, sum = ("k = %d, input %d"):format(k, index), 0, 0
  for token = 1, TOKENS do
    local bits = 0
    for expert, weight in ipairs(got.weights[token]) do
      if weight > 0 then bits, kept = bits + 2 ^ (expert - 1), kept + 1 end
      sum = sum + weight * ((token - 1) * EXPERTS + expert)
      local whole = wanted.gates[index + 1]
      if whole then lu.assertAlmostEquals(weight, whole[token][expert], BOUND, what) end
    end
    lu.assertEquals(bits, wanted.kept[index + 1][token], what)
  end
  lu.assertEquals(got.dropped, TOKENS * k - kept, what)
  lu.assertAlmostEquals(got.balance, wanted.balance[index + 1], BOUND * wanted.balance[index + 1], what)
  lu.assertAlmostEquals(sum, wanted.sum[index + 1], BOUND * wanted.sum[index + 1], what)
end

local TestDeepSpeed = {}

for k, more in ipairs{{use_rts = false}, {top2_2nd_expert_sampling = false}, {}} do
  TestDeepSpeed["test_gate_" .. k] = function()
    local wanted = {}
    for _, key in ipairs{"kept", "balance", "gates", "sum"} do wanted[key] = golden[k .. "/" .. key]:tolist() end
    local gates = {}
    for place, factor in ipairs(FACTORS) do
      local options = {k = k, capacity_factor = factor, min_capacity = 0}
      for key, value in pairs(more) do options[key] = value end
      gates[place] = gate_of(options)
    end
    for index = 0, INPUTS - 1 do
      compare(k, index, gates[index % #FACTORS + 1](logits_of(index)), wanted)
    end
  end
end

-- Room for 1.1 * 50 tokens is 55 rows, as in float32; in float64 the product is above 55.
function TestDeepSpeed:test_capacity_is_rounded_as_DeepSpeed_rounds()
  local options = {k = 1, capacity_factor = 1.1, use_rts = false}
  options.hidden_size, options.num_experts, options.ffn = 2, 2, 4
  local model = nn.sequential{
    {"input", nn.embedding{vocab = 1, hidden = 2}}, {"moe", moe.from_deepspeed(options)},
    zt.loss(function(out) return out.h:sum() end, {inputs = {"h"}, per = "sample", reduction = "sum"}),
  }
  local trainer = zt.trainer(zt.program(model), {optimizer = optim.sgd{lr = 0}})
  local result = trainer:step{tokens = zt.zeros({1, 100}, {dtype = "int64"})} -- all tokens choose one expert
  lu.assertEquals(result.stats["moe.router.dropped"], 100 - 55)
end

-- The second expert is drawn in evaluations, too. Of equal scores, 0 and 1 come first without a draw.
function TestDeepSpeed:test_evaluation_draws_the_second_expert()
  local function seconds(more)
    local options = {k = 2, drop_tokens = false}
    for key, value in pairs(more) do options[key] = value end
    local got, used = gate_of(options)(zt.zeros({1, TOKENS, EXPERTS}), "evaluate"), {0, 0, 0, 0}
    for _, weights in ipairs(got.weights) do
      for expert, weight in ipairs(weights) do used[expert] = used[expert] + (weight > 0 and 1 or 0) end
    end
    return used
  end
  lu.assertEquals(seconds{top2_2nd_expert_sampling = false}, {TOKENS, TOKENS, 0, 0})
  for _, policy in ipairs{"None", "Jitter", "RSample"} do
    local used = seconds{noisy_gate_policy = policy}
    lu.assertEquals(used[1], TOKENS)
    lu.assertTrue(used[2] > 0 and used[3] > 0 and used[4] > 0)
  end
end

function TestDeepSpeed:test_options_that_DeepSpeed_has()
  local function layers(more)
    local options = {hidden_size = 8, num_experts = 4, ffn = 8}
    for key, value in pairs(more) do options[key] = value end
    return moe.from_deepspeed(options)
  end
  lu.assertEquals(#layers{use_tutel = false, enable_expert_tensor_parallelism = false, min_capacity = 0}, 4)
  lu.assertEquals(#layers{k = 2, use_rts = true, drop_tokens = false, capacity_factor = 2}, 4) -- DeepSpeed uses none of these
  lu.assertErrorMsgContains("use_tutel = true asks for Tutel's kernels", layers, {use_tutel = true})
  lu.assertErrorMsgContains("cuts each expert over ranks", layers, {enable_expert_tensor_parallelism = true})
  lu.assertErrorMsgContains("moe.from_deepspeed.ffn has an effect only without expert", layers,
                            {expert = nn.mlp{hidden = 8, ffn = 8}})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestDeepSpeed", TestDeepSpeed}})
