-- Tests the conversion of Hugging Face's mixtures of experts, Mixtral and Qwen3-MoE: names of tensors, config.json, and what is
-- refused. huggingface_test.lua compares their logits.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local huggingface = require "zt.ckpt.huggingface"
local names = require "zt.ckpt.names"
local models = require "support.huggingface_models"
local refused = models.check_refused

local TestNames = {}

-- The rows of an expert follow those of the one before it.
function TestNames:test_rows_of_experts()
  local found
  local options = huggingface.complete{
    layers = 2, hidden = 12, heads = 3, vocab = 7, family = "llama", moe = {experts = 3, ffn = 5},
  }
  for _, entry in ipairs(names.map("mixtral", options)) do
    if entry.name == "blocks.1.experts.up.weight" then found = entry end
  end
  lu.assertEquals(found.shape, {3, 10, 12})
  lu.assertEquals(#found.parts, 6)
  local name = "model.layers.1.block_sparse_moe.experts.1.w3.weight"
  lu.assertEquals(found.parts[4], {name = name, shape = {5, 12}, first = 15, rows = 5})
end

-- A Mixtral saved by transformers 5 as it holds it has other names than one that it saves by default.
function TestNames:test_experts_of_a_layer_in_one_tensor()
  local options = huggingface.options(models.config_of "mixtral")
  local map = names.map("mixtral", options)
  local shapes = {}
  for name, shape in pairs(models.shapes_of_map(map)) do
    if not name:find "block_sparse_moe" then shapes[name] = shape end
  end
  for layer = 0, 1 do
    local mlp = ("model.layers.%d.mlp."):format(layer)
    shapes[mlp .. "gate.weight"], shapes[mlp .. "experts.down_proj"] = {4, 16}, {4, 16, 10}
    shapes[mlp .. "experts.gate_up_proj"] = {4, 20, 16}
  end
  lu.assertEquals(models.shapes_of_map(names.fit("mixtral", options, shapes)), shapes)
  shapes["model.layers.1.mlp.experts.down_proj"] = {3, 16, 10}
  lu.assertErrorMsgContains("experts.down_proj is [3, 16, 10] instead of [4, 16, 10]", names.fit, "mixtral", options, shapes)
end

-- The check must come before the map is built, whose size grows with the experts.
function TestNames:test_more_experts_than_there_are_tensors_of()
  for _, form in ipairs {"mixtral", "qwen3_moe"} do
    local options = huggingface.options(models.config_of(form))
    local shapes = models.shapes_of_map(names.map(form, options))
    local there = options.moe.experts * 2 * 3
    options.moe.experts = 1e9
    local message = ("x/c.json has 1000000000 experts in 2 layers, of 3 tensors each, but only %d of the"):format(there)
    lu.assertErrorMsgContains(message, names.fit, form, options, shapes, "x/c.json")
  end
end

local TestConfig = {}

function TestConfig:test_options_of_mixtures()
  local function options_of(name, changes)
    local config = models.config_of(name)
    for key, value in pairs(changes) do config[key] = value end
    return huggingface.options(config)
  end
  lu.assertEquals(options_of("mixtral", {}).moe, {
    experts = 4, top_k = 2, ffn = 10, activation = "swiglu", bias = false, router = {normalise = "selected"}})
  lu.assertEquals(options_of("qwen3_moe", {}).moe, {
    experts = 6, top_k = 3, ffn = 7, activation = "swiglu", bias = false, blocks = {0, 2}, router = {normalise = "none"}})
  local of_version_4 = models.config_of "qwen3_moe"
  of_version_4.num_experts, of_version_4.num_local_experts = 6, nil
  lu.assertEquals(huggingface.options(of_version_4).moe.experts, 6)
  -- The loss of transformers has one term for all layers, with shares whose sum is top_k.
  local trained = options_of("mixtral", {output_router_logits = true, router_aux_loss_coef = 0.25, router_jitter_noise = 0.125})
  lu.assertEquals(trained.moe.router,
    {normalise = "selected", noise = "jitter", jitter = 0.125, losses = {balance = 0.25, per = "micro_batch"}})
  local config = huggingface.config(trained)
  lu.assertEquals({config.output_router_logits, config.router_aux_loss_coef, config.router_jitter_noise}, {true, 0.25, 0.125})
  -- Missing keys have the values of that model.
  local bare = models.config_of "mixtral"
  bare.rope_parameters, bare.rms_norm_eps = nil, nil
  lu.assertEquals({huggingface.options(bare).rope_base, huggingface.options(bare).eps}, {1e6, 1e-5})
  -- A window that no sequence exceeds changes nothing.
  lu.assertNil(options_of("mixtral", {sliding_window = 32}).window)
  lu.assertNil(options_of("qwen3_moe", {sliding_window = 8}).window)
  -- Others are those of all blocks, and are written again.
  for name, changes in pairs{mixtral = {sliding_window = 8}, qwen3_moe = {use_sliding_window = true, sliding_window = 8}} do
    local windowed = options_of(name, changes)
    lu.assertEquals(windowed.window, 8)
    lu.assertEquals(huggingface.options(huggingface.config(windowed)), windowed)
  end
  lu.assertEquals(options_of("qwen3_moe", {decoder_sparse_step = 2, mlp_only_layers = {}}).moe.blocks, {1})
  lu.assertNil(options_of("qwen3_moe", {mlp_only_layers = {}}).moe.blocks)
end

function TestConfig:test_what_mixtures_do_not_have_is_refused()
  refused("mixtral", {hidden_act = "gelu"}, "'hidden_act' = gelu")
  refused("mixtral", {num_experts_per_tok = 5}, "'num_experts_per_tok' = 5, but 'num_local_experts' = 4")
  refused("mixtral", {num_local_experts = 0}, "'num_local_experts' = 0 (a number), where a whole number from 1")
  refused("mixtral", {num_local_experts = 1e9}, "where a whole number from 1 to 65536")
  refused("mixtral", {router_jitter_noise = -1}, "'router_jitter_noise' = -1")
  refused("mixtral", {router_aux_loss_coef = "0.1"}, "'router_aux_loss_coef' = '0.1' (a string)")
  refused("mixtral", {rope_parameters = {rope_type = "yarn", factor = 8}}, "nn.attention scales rotary angles only as the types")
  refused("qwen3_moe", {use_sliding_window = true, sliding_window = 8, max_window_layers = 1},
          "'max_window_layers' = 1: versions of transformers differ")
  refused("qwen3_moe", {attention_bias = true}, "'attention_bias' = true: its MLPs have no biases")
  refused("qwen3_moe", {num_experts = 8}, "'num_experts' = 8 and 'num_local_experts' = 6, two names of one number")
  refused("qwen3_moe", {mlp_only_layers = {1.5}},
          "'mlp_only_layers' = [1.5] (a list or an object), where a list of whole numbers")
  refused("qwen3_moe", {mlp_only_layers = "1"}, "'mlp_only_layers' = '1' (a string), where a list of whole numbers")
  refused("qwen3_moe", {norm_topk_prob = 1}, "'norm_topk_prob' = 1 (a number), where true or false")
  local config = models.config_of "mixtral"
  config.num_key_value_heads = nil -- older versions of transformers have another default than newer ones
  lu.assertErrorMsgContains("has no 'num_key_value_heads'", huggingface.options, config)
end

function TestConfig:test_models_that_are_neither_are_refused()
  local function check_experts(moe_options, router, message, changes)
    local experts = {experts = 4, ffn = 8, router = router}
    for key, value in pairs(moe_options) do experts[key] = value end
    local all = {family = "llama", moe = experts}
    for key, value in pairs(changes or {}) do all[key] = value end
    for key, value in pairs{layers = 1, hidden = 12, heads = 3, vocab = 7, seq = 5} do all[key] = all[key] or value end
    lu.assertErrorMsgContains(message, huggingface.config, all)
  end
  local normalised = {normalise = "selected"}
  check_experts({}, nil, "a Mixtral divides weights by the sum")
  check_experts({blocks = {0}}, normalised, "a Mixtral has experts in all blocks", {layers = 2})
  check_experts({}, normalised, "norm = layernorm is in no mixture", {norm = "layernorm"})
  check_experts({bias = true}, normalised, "moe.bias = true is in no mixture")
  check_experts({activation = "relu"}, normalised, "moe.activation = relu is in no mixture")
  check_experts({shared = {ffn = 8}}, normalised, "moe.shared = {...} is in no mixture")
  check_experts({}, {score = "sigmoid"}, "moe.router.score = sigmoid is in no mixture", {qk_norm = true})
  check_experts({}, {normalise = "selected", scale = 2}, "moe.router.scale = 2 is in no mixture")
  check_experts({}, {normalise = "selected", groups = 2}, "moe.router.groups = 2 is in no mixture")
  check_experts({}, {normalise = "selected", bias = true}, "moe.router.bias = true is in no mixture")
  check_experts({}, {normalise = "kept", capacity = {}}, "moe.router.capacity = {...} is in no mixture")
  check_experts({}, {normalise = "selected", noise = "noisy_top_k"}, "moe.router.noise = noisy_top_k is in no mixture")
  check_experts({}, {normalise = "selected", noise = "gumbel", draw_always = true}, "moe.router.draw_always = true")
  check_experts({}, {normalise = "selected", select = print}, "moe.router.select = function")
  check_experts({select = print}, normalised, "moe.select = function")
  -- Options that no form is known to have, such as one that a later version adds.
  check_experts({window = 4}, normalised, "moe.window = 4 is in no mixture")
  check_experts({}, {normalise = "selected", temperature = 2}, "moe.router.temperature = 2 is in no mixture")
  check_experts({}, normalised, "has nn.gpt's option sink = 4, so", {sink = 4})
  check_experts({}, normalised, "window = {...} is in no mixture", {layers = 2, window = {4, 0}})
  check_experts({}, normalised, "qkv_bias = true is in no mixture", {qkv_bias = true})
end

function TestConfig:test_options_without_effect_on_evaluation_change_nothing()
  local router = {normalise = "selected"}
  local experts = {experts = 4, ffn = 8, router = router}
  local options = {layers = 1, hidden = 12, heads = 3, vocab = 7, seq = 5, family = "llama", moe = experts}
  local config = huggingface.config(options)
  for key, value in pairs{dispatcher = "all_gather", transport = "bf16", overlap = true, grouped_gemm = false, planned_rows = 2,
                          std = 0.5, residual_std = 0.5, hidden = 12} do
    experts[key] = value
  end
  for key, value in pairs{std = 0.5, mask = "none", noise = "gumbel", draw_always = false, bias_rate = 0.5, top_k = 2,
                          losses = {z = 1}, batch_axes = {"dp"}} do
    router[key] = value
  end
  lu.assertEquals(huggingface.config(options), config)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestNames", TestNames}, {"TestConfig", TestConfig}})
