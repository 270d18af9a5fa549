-- Tests that ranks whose layers differ in any option are refused, with the ranks, the layer and the option. Runs on two ranks.
local lu = require "luaunit"
local zt = require "zt"
local check = require "zt.check"
local comm, moe, nn, optim, zero = require "zt.comm", require "zt.moe", require "zt.nn", require "zt.optim", require "zt.zero"

local HIDDEN = 8
local rank, ranks = zt.world.rank, zt.world.size
local mesh = comm.mesh{dp = -1, ep = 1}

local function merged(base, more)
  local out = {}
  for key, value in pairs(base) do out[key] = value end
  for key, value in pairs(more) do out[key] = value end
  return out
end

local function trainer_of(model)
  return zt.trainer(zt.program(model):apply(zero.shard{axis = mesh.dp}), {optimizer = optim.adamw{lr = 0.1}})
end

-- Outputs what the layers of this file read.
local NAMES = {"residual", "rows", "group_rows", "places", "traffic", "route_weights", "route_experts", "shared"}
local function source()
  local outputs = {"h"}
  for _, name in ipairs(NAMES) do outputs[#outputs + 1] = {name = name, differentiable = false} end
  return nn.layer{io = {inputs = {"h"}, outputs = outputs}, forward = function(_, h) return h, h, h, h, h, h, h, h, h end}
end

-- Returns a trainer of a model with the layer "own".
local function trained(layer)
  return trainer_of(nn.sequential{
    {"embedding", nn.embedding{vocab = 11, hidden = HIDDEN}}, {"source", source()},
    {"dispatch", moe.dispatch{experts = 2, hidden = HIDDEN, axis = mesh.ep}}, {"own", layer},
    {"head", nn.lm_loss{vocab = 11, hidden = HIDDEN}}, seed = 1,
  })
end

-- The options of each function that makes a layer, an option, and another value of it.
local LAYERS = {
  ["nn.attention"] = {{hidden = HIDDEN, heads = 2}, "causal", false},
  ["nn.attention_block"] = {{hidden = HIDDEN, heads = 2}, "eps", 0.5},
  ["nn.block"] = {{hidden = HIDDEN, heads = 2}, "activation", "relu"},
  ["nn.cross_entropy"] = {{}, "ignore_index", 7},
  ["nn.dropout"] = {{p = 0.5}, "p", 0.25},
  ["nn.embedding"] = {{vocab = 11, hidden = HIDDEN}, "dropout", 0.5},
  ["nn.grouped_mlp"] = {{groups = 2, hidden = HIDDEN, ffn = 8}, "grouped_gemm", false},
  ["nn.layer"] = {{forward = function(_, h) return h end, options = {a = {b = 1}}}, "options", {a = {b = 2}}, "options.a.b"},
  ["nn.layernorm"] = {{hidden = HIDDEN}, "eps", 0.5},
  ["nn.linear"] = {{["in"] = HIDDEN, out = HIDDEN}, "std", 0.5},
  ["nn.lm_logprobs"] = {{vocab = 11, hidden = HIDDEN}, "temperature", 0.5},
  ["nn.lm_loss"] = {{vocab = 11, hidden = HIDDEN}, "ignore_index", 7},
  ["nn.mlp"] = {{hidden = HIDDEN, ffn = 8}, "residual_std", 0.5},
  ["nn.residual"] = {{}, "dropout", 0.5},
  ["nn.value_head"] = {{hidden = HIDDEN}, "std", 0.5},
  ["nn.rmsnorm"] = {{hidden = HIDDEN}, "eps", 0.5},
  ["moe.combine"] = {{experts = 2, hidden = HIDDEN, axis = mesh.ep}, "overlap", true},
  ["moe.dispatch"] = {{experts = 2, hidden = HIDDEN}, "planned_rows", 2},
  ["moe.experts"] = {{experts = 2, expert = nn.mlp{hidden = HIDDEN, ffn = 8}}, "expert",
                     nn.mlp{hidden = HIDDEN, ffn = 8, activation = "relu"}, "expert.activation"},
  ["moe.residual_branch"] = {{hidden = HIDDEN, layer = nn.mlp{hidden = HIDDEN, ffn = 8}}, "layer",
                             nn.mlp{hidden = HIDDEN, ffn = 8, std = 0.5}, "layer.std"},
  ["moe.router"] = {{experts = 2, hidden = HIDDEN, top_k = 1}, "std", 0.5},
  ["moe.shared_expert"] = {{hidden = HIDDEN, layer = nn.linear{["in"] = HIDDEN, out = HIDDEN}}, "layer",
                           nn.mlp{hidden = HIDDEN, ffn = 8}},
}
local FUNCTIONS = {nn = nn, moe = moe}
local OTHERS = {
  ["nn.gpt"] = true, ["nn.sequential"] = true, ["moe.layers"] = true, ["moe.gpt"] = true, ["moe.from_deepspeed"] = true,
}

local function make(name, options)
  local library, key = name:match "^(%w+)%.(.+)$"
  return FUNCTIONS[library][key](options)
end

local TestAlikeLayers = {}

function TestAlikeLayers:test_all_functions_that_make_layers_are_here()
  for library, functions in pairs(FUNCTIONS) do
    for key in pairs(functions) do
      local name = library .. "." .. key
      lu.assertTrue(LAYERS[name] ~= nil or OTHERS[name] == true, name .. " has no entry in LAYERS")
    end
  end
end

function TestAlikeLayers:test_one_option_of_each_layer()
  if ranks == 1 then lu.skip "needs two ranks" end
  for _, name in ipairs(check.sorted_keys(LAYERS)) do -- in one order on all ranks
    local case = LAYERS[name]
    local options, key, other, shown = case[1], case[2], case[3], case[4] or case[2]
    local given = rank == 0 and options or merged(options, {[key] = other})
    local is_done, text = pcall(trained, make(name, given))
    lu.assertFalse(is_done, name)
    local of_layer = ("the option '%s' of layer 'own' is "):format(shown)
    lu.assertStrContains(text, of_layer)
    lu.assertStrMatches(text, ".* on rank 0 and .* on rank 1 of 'dp[^']*': .*give all ranks the same.*")
  end
end

-- Returns the layers of a mixture in a model.
local function mixture(router, more)
  return trainer_of(nn.gpt{layers = 1, hidden = HIDDEN, heads = 2, vocab = 11, seq = 4, seed = 1, mlp = function()
    return moe.layers(merged({experts = 4, hidden = HIDDEN, ffn = 8, router = router}, more or {}))
  end})
end

function TestAlikeLayers:test_every_option_of_a_router()
  if ranks == 1 then lu.skip "needs two ranks" end
  local batch, whole = {balance = 1, per = "batch"}, comm.mesh{dp = -1, cp = 1}.cp
  for _, case in ipairs{
    {"score", {}, {score = "sigmoid"}},
    {"std", {}, {std = 0.5}},
    {"scale", {}, {scale = 2}},
    {"normalise", {}, {normalise = "kept"}},
    {"noise", {}, {noise = "jitter"}},
    {"jitter", {noise = "jitter"}, {noise = "jitter", jitter = 0.5}},
    {"draw_always", {noise = "gumbel"}, {noise = "gumbel", draw_always = true}},
    {"mask", {}, {mask = "none"}},
    {"routes", {}, {routes = "balanced"}},
    {"groups", {}, {groups = 4, top_groups = 2}},
    {"softmax_after", {}, {softmax_after = true}},
    {"bias_rate", {bias = true}, {bias = true, bias_rate = 0.5}},
    {"losses.z", {}, {losses = {z = 1}}},
    {"losses.of", {losses = {balance = 1}}, {losses = {balance = 1, of = "first"}}},
    {"batch_axes[1]", {losses = batch, batch_axes = {"dp", "ep"}}, {losses = batch, batch_axes = {"ep", "dp"}}},
    {"capacity.train", {capacity = {}}, {capacity = {train = 2}}},
    {"capacity.keep", {capacity = {}}, {capacity = {keep = "random"}}},
    {"choice", {capacity = {}}, {capacity = {}, choice = "expert"}},
    {"context.layout", {context = {axis = whole}}, {context = {axis = whole, layout = "contiguous"}}},
  } do
    local key, first, second = case[1], case[2], case[3]
    lu.assertErrorMsgContains(("the option '%s' of layer 'blocks.0.router' is "):format(key), mixture,
                              rank == 0 and first or second)
  end
end

function TestAlikeLayers:test_options_of_the_other_layers_of_a_mixture()
  if ranks == 1 then lu.skip "needs two ranks" end
  local function refused(text, more) lu.assertErrorMsgContains(text, mixture, {}, rank == 1 and more or nil) end
  refused("the option 'overlap' of layer 'blocks.0.dispatch' is not given on rank 0 and true on rank 1", {overlap = true})
  refused([[the option 'activation' of layer 'blocks.0.experts' is "gelu_tanh" on rank 0 and "relu" on rank 1]],
          {activation = "relu"})
end

-- An option that is left out is its default.
function TestAlikeLayers:test_defaults_may_be_given()
  local function layer(options) return nn.mlp(merged({hidden = HIDDEN, ffn = 8}, options)) end
  trained(layer(rank == 0 and {} or {activation = "gelu_tanh", bias = true, std = 0.02}))
  mixture(rank == 0 and {} or {score = "softmax", groups = nil, losses = {z = 0}})
end

-- Functions are compared by where they are.
function TestAlikeLayers:test_functions()
  if ranks == 1 then lu.skip "needs two ranks" end
  local function first(_, h) return h end
  local function second(_, h) return h * 2 end
  lu.assertErrorMsgContains("the option 'forward' of layer 'own' is the function at ", trained,
                            nn.layer{forward = rank == 0 and first or second, defined_at = "x"})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestAlikeLayers", TestAlikeLayers}})
