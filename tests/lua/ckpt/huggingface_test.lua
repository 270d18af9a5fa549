-- Tests models saved by Hugging Face's transformers (tests/oracle/make_huggingface.py): from their config.json and the names of
-- their tensors comes a moe.gpt that computes the same logits.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local moe = require "zt.moe"
local optim = require "zt.optim"
local huggingface = require "zt.ckpt.huggingface"
local names = require "zt.ckpt.names"
local models = require "support.huggingface_models"
local refused = models.check_refused

local function shapes_of(tensors)
  local shapes = {}
  for name, tensor in pairs(tensors) do shapes[name] = tensor:size() end
  return shapes
end

-- Returns our parameters by name, joined from a file's tensors.
local function assemble(map, tensors)
  local parameters = {}
  for _, entry in ipairs(map) do
    parameters[entry.name] = names.join(entry, function(name) return tensors[name] end)
    lu.assertEquals(parameters[entry.name]:size(), entry.shape, entry.name)
  end
  return parameters
end

-- Returns a file's tensors by name, cut from our parameters: the inverse of `assemble`.
local function take_apart(map, parameters)
  local tensors = {}
  for _, part in ipairs(names.by_tensor(map)) do
    local parameter = parameters[part.parameter]
    local rows = parameter:dim() > 1 and parameter:flatten(0, -2) or parameter
    tensors[part.name] = names.part_of(part, rows:narrow(0, part.first, part.rows))
  end
  return tensors
end

local function logits_of(options, parameters, precision, tokens)
  local model = moe.gpt(options)
  model:initialise(parameters)
  return zt.trainer(zt.program(model, {precision = precision}), {optimizer = optim.sgd{lr = 0.5}}):infer{tokens = tokens}.logits
end

local TestLogits = {}

for _, name in ipairs(models.NAMES) do
  TestLogits["test_" .. name] = function()
    local expected, tensors = models.expected_of(name), models.tensors_of(name)
    local options, form = huggingface.options(models.config_of(name))
    local parameters = assemble(names.fit(form, options, shapes_of(tensors)), tensors)
    for _, row in ipairs(models.BOUNDS) do
      local precision, bound = unpack(row)
      local error_ = models.distance(logits_of(options, parameters, precision, expected.tokens), expected["logits_" .. precision])
      if os.getenv "ZT_PRINT_DISTANCES" then print(name, precision, error_) end
      lu.assertTrue(error_ <= bound, ("%s in %s: %g off"):format(name, precision, error_))
    end
  end

  -- Every tensor of the file affects the logits: a change of any one makes them wrong.
  TestLogits["test_every_tensor_counts_in_" .. name] = function()
    local expected, tensors = models.expected_of(name), models.tensors_of(name)
    local options, form = huggingface.options(models.config_of(name))
    local map = names.fit(form, options, shapes_of(tensors))
    for tensor, values in pairs(tensors) do
      tensors[tensor] = values:flip({0})
      local got = logits_of(options, assemble(map, tensors), "fp64", expected.tokens)
      lu.assertTrue(models.distance(got, expected.logits_fp64) > 1e-6, tensor)
      tensors[tensor] = values
    end
  end
end

local TestNames = {}

for _, name in ipairs(models.NAMES) do
  TestNames["test_taken_apart_again_" .. name] = function()
    local tensors = models.unstacked(models.tensors_of(name))
    local options, form = huggingface.options(models.config_of(name))
    local map = names.map(form, options)
    local again, count = take_apart(map, assemble(map, tensors)), 0
    for tensor, values in pairs(again) do
      lu.assertTrue(values:equal(tensors[tensor]), tensor)
      count = count + 1
    end
    for _ in pairs(tensors) do count = count - 1 end
    lu.assertEquals(count, 0)
  end
end

-- Options of nn.gpt in a script's short form. For each, the map must have the same parameters as nn.gpt.
local SHORT = {
  {layers = 2, hidden = 12, heads = 3, vocab = 7, seq = 5},
  {layers = 1, hidden = 12, heads = 3, vocab = 7, seq = 5, ffn = 9, tied = false, activation = "relu"},
  {layers = 2, hidden = 12, heads = 3, vocab = 7, seq = 5, family = "llama"},
  {layers = 1, hidden = 12, heads = 4, vocab = 7, seq = 5, family = "llama", kv_heads = 2, head_dim = 6, ffn = 9},
  {layers = 1, hidden = 100, heads = 2, vocab = 7, seq = 5, family = "llama", bias = true, tied = true},
  {layers = 1, hidden = 12, heads = 3, vocab = 7, seq = 5, norm = "rmsnorm", position = "rotary", activation = "swiglu"},
  {layers = 2, hidden = 12, heads = 3, vocab = 7, seq = 5, family = "llama",
   moe = {experts = 3, ffn = 5, router = {softmax_after = true}}},
  {layers = 3, hidden = 12, heads = 3, vocab = 7, seq = 5, family = "llama", qk_norm = true,
   moe = {experts = 5, ffn = 7, top_k = 3, blocks = {0, 2}}},
}

function TestNames:test_the_map_has_the_parameters_of_the_model()
  for _, options in ipairs(SHORT) do
    local _, form = huggingface.config(options)
    local wanted, got = {}, {}
    for _, parameter in ipairs(moe.gpt(options):parameters()) do wanted[parameter.name] = parameter.shape end
    for _, entry in ipairs(names.map(form, huggingface.complete(options))) do got[entry.name] = entry.shape end
    lu.assertEquals(got, wanted)
  end
end

function TestNames:test_rows_of_grouped_heads()
  local options = huggingface.complete(SHORT[4])
  local found
  for _, entry in ipairs(names.map("llama", options)) do
    if entry.name == "blocks.0.attention.qkv.weight" then found = entry end
  end
  local prefix = "model.layers.0.self_attn."
  lu.assertEquals(found, {name = "blocks.0.attention.qkv.weight", shape = {48, 12}, parts = {
    {name = prefix .. "q_proj.weight", shape = {24, 12}, first = 0, rows = 24},
    {name = prefix .. "k_proj.weight", shape = {12, 12}, first = 24, rows = 12},
    {name = prefix .. "v_proj.weight", shape = {12, 12}, first = 36, rows = 12},
  }})
end

local TestFit = {}

function TestFit:test_names_without_a_prefix()
  for _, form in ipairs {"gpt2", "llama", "mixtral"} do
    local options = huggingface.options(models.config_of(form))
    local bare = {}
    for name, shape in pairs(models.shapes_of_map(names.map(form, options))) do
      bare[name:gsub("^transformer%.", ""):gsub("^model%.", "")] = shape
    end
    lu.assertEquals(models.shapes_of_map(names.fit(form, options, bare)), bare)
  end
end

function TestFit:test_masks_and_tables_are_left_out()
  local options = huggingface.options(models.config_of "gpt2")
  local shapes = models.shapes_of_map(names.map("gpt2", options))
  shapes["transformer.h.1.attn.bias"], shapes["transformer.h.0.attn.masked_bias"] = {1, 1, 12, 12}, {}
  lu.assertEquals(names.fit("gpt2", options, shapes), names.map("gpt2", options))
  options = huggingface.options(models.config_of "llama")
  shapes = models.shapes_of_map(names.map("llama", options))
  shapes["model.layers.1.self_attn.rotary_emb.inv_freq"] = {3}
  lu.assertEquals(names.fit("llama", options, shapes), names.map("llama", options))
end

function TestFit:test_a_tied_head_that_is_written_twice()
  local options = huggingface.options(models.config_of "gpt2")
  local shapes = models.shapes_of_map(names.map("gpt2", options))
  local _, none = names.fit("gpt2", options, shapes)
  lu.assertEquals(none, {})
  shapes["lm_head.weight"] = shapes["transformer.wte.weight"]
  local map, copies = names.fit("gpt2", options, shapes)
  lu.assertEquals(map, names.map("gpt2", options))
  lu.assertEquals(copies, {["lm_head.weight"] = "transformer.wte.weight"})
end

function TestFit:test_what_does_not_fit_is_listed()
  local options = huggingface.options(models.config_of "llama")
  local shapes = models.shapes_of_map(names.map("llama", options))
  shapes["lm_head.weight"], shapes["model.norm.weight"] = nil, {17}
  shapes["model.layers.2.input_layernorm.weight"], shapes["lm_head.bias"] = {16}, {61}
  local ok, message = pcall(names.fit, "llama", options, shapes)
  lu.assertFalse(ok)
  lu.assertStrContains(message, "missing: lm_head.weight\n")
  lu.assertStrContains(message, "of another shape: model.norm.weight is [17] instead of [16]\n")
  lu.assertStrContains(message, "not part of such a model: lm_head.bias, model.layers.2.input_layernorm.weight")
end

-- The check must come before the map is built: a map of a million layers takes minutes and memory.
function TestFit:test_more_layers_than_there_are_tensors_of()
  for form, key in pairs {gpt2 = "n_layer", llama = "num_hidden_layers"} do
    local options = huggingface.options(models.config_of(form))
    local shapes = models.shapes_of_map(names.map(form, options))
    options.layers = 1e9
    lu.assertErrorMsgContains(("x/c.json has '%s' = 1000000000, but the tensors are those of 2 layers"):format(key),
      names.fit, form, options, shapes, "x/c.json")
  end
end

local TestConfig = {}

function TestConfig:test_options_and_back()
  for _, name in ipairs(models.NAMES) do
    local options, form = huggingface.options(models.config_of(name))
    local written, written_form = huggingface.config(options)
    lu.assertEquals(written_form, form)
    lu.assertEquals(huggingface.options(written), options)
    local config = models.config_of(name)
    if name == "qwen3_moe_stacked" then -- lists its dense layers instead of a step
      lu.assertEquals({config.decoder_sparse_step, written.decoder_sparse_step, written.mlp_only_layers}, {2, 1, {0}})
      config.decoder_sparse_step, config.mlp_only_layers = nil, nil
    end
    if name == "qwen3" then config.max_window_layers = nil end -- its layer_types say which layers have the window
    for key, value in pairs(written) do
      if config[key] ~= nil then lu.assertEquals(value, config[key], name .. ": " .. key) end
    end
  end
end

-- A config.json of transformers 4, and one with as few keys as old files have.
function TestConfig:test_older_files()
  local options = huggingface.options{
    model_type = "llama", hidden_size = 16, intermediate_size = 22, num_hidden_layers = 2, num_attention_heads = 4,
    vocab_size = 61, max_position_embeddings = 32, rms_norm_eps = 1e-5, rope_theta = 500, hidden_act = "silu",
  }
  lu.assertEquals({options.kv_heads, options.head_dim, options.rope_base, options.eps, options.bias, options.tied},
                  {4, 4, 500, 1e-5, false, false})
  options = huggingface.options{model_type = "gpt2", n_embd = 16, n_layer = 1, n_head = 2, n_positions = 8, vocab_size = 61}
  lu.assertEquals({options.ffn, options.activation, options.eps, options.tied, options.dropout},
                  {64, "gelu_tanh", 1e-5, true, 0.1})
end

function TestConfig:test_what_nn_gpt_does_not_have_is_refused()
  refused("gpt2", {model_type = "bert"}, "'model_type' = bert: only 'gpt2', 'llama', 'mistral', 'qwen2', 'qwen3', 'mixtral'")
  refused("gpt2", {scale_attn_weights = false}, "'scale_attn_weights' = false")
  refused("gpt2", {scale_attn_by_inverse_layer_idx = true}, "'scale_attn_by_inverse_layer_idx' = true")
  refused("gpt2", {add_cross_attention = true}, "no cross-attention")
  refused("gpt2", {activation_function = "silu"}, "'activation_function' = silu: nn.mlp does not have it")
  refused("gpt2", {attn_pdrop = 0}, "nn.gpt has one rate of dropout")
  refused("gpt2", {n_head = 3}, "'n_embd' = 16, which 'n_head' = 3 does not divide")
  refused("gpt2", {n_embd = 1.5}, "'n_embd' = 1.5 (a number), where a whole number from 1 to 16777216 is needed")
  refused("llama", {hidden_act = "gelu"}, "'hidden_act' = gelu")
  refused("llama", {attention_bias = true}, "'mlp_bias' differs")
  refused("llama", {attention_dropout = 0.5}, "'attention_dropout' = 0.5")
  refused("llama", {quantization_config = {bits = 4}}, "no plain tensors")
end

-- Each message has the key, its value, its type and the required type.
function TestConfig:test_values_of_a_wrong_type_or_out_of_range_are_refused()
  refused("llama", {rms_norm_eps = "1e-6"},
          "config.json has 'rms_norm_eps' = '1e-6' (a string), where a number above 0 is needed")
  refused("llama", {rms_norm_eps = 0}, "'rms_norm_eps' = 0 (a number), where a number above 0")
  refused("llama", {num_hidden_layers = 1e9},
          "'num_hidden_layers' = 1000000000 (a number), where a whole number from 1 to 10000")
  refused("llama", {num_hidden_layers = "2"}, "'num_hidden_layers' = '2' (a string), where a whole number")
  refused("llama", {hidden_size = -16}, "'hidden_size' = -16 (a number), where a whole number")
  refused("llama", {vocab_size = 1e12}, "'vocab_size' = 1000000000000 (a number), where a whole number from 1 to 2147483647")
  refused("llama", {intermediate_size = {22}}, "'intermediate_size' = [22] (a list or an object), where a whole number")
  refused("llama", {num_key_value_heads = 3}, "'num_attention_heads' = 4, which 'num_key_value_heads' = 3 does not divide")
  refused("llama", {head_dim = "6"}, "'head_dim' = '6' (a string)")
  refused("llama", {max_position_embeddings = true}, "'max_position_embeddings' = true (a boolean)")
  refused("llama", {attention_bias = "false"}, "'attention_bias' = 'false' (a string), where true or false is needed")
  refused("llama", {tie_word_embeddings = 1}, "'tie_word_embeddings' = 1 (a number), where true or false is needed")
  refused("llama", {hidden_act = 3}, "'hidden_act' = 3 (a number), where a string is needed")
  refused("llama", {rope_parameters = "default"}, "'rope_parameters' = 'default' (a string), where an object {...} is needed")
  refused("llama", {rope_parameters = {rope_theta = "500"}}, "'rope_parameters' has 'rope_theta' = '500' (a string)")
  refused("gpt2", {model_type = 2}, "'model_type' = 2 (a number), where a string is needed")
  refused("gpt2", {attn_pdrop = "0.1"}, "'attn_pdrop' = '0.1' (a string), where a number from 0 to below 1")
  refused("gpt2", {resid_pdrop = 1.5}, "'resid_pdrop' = 1.5 (a number), where a number from 0 to below 1")
  refused("gpt2", {n_inner = 0}, "'n_inner' = 0 (a number), where a whole number")
  refused("gpt2", {scale_attn_weights = "true"}, "'scale_attn_weights' = 'true' (a string), where true or false is needed")
  local config = models.config_of "llama"
  config.hidden_size, config.head_dim = 18, nil
  lu.assertErrorMsgContains("x/c.json has 'hidden_size' = 18, which 'num_attention_heads' = 4 does not divide",
    huggingface.options, config, "x/c.json")
  config.vocab_size = nil -- null in the JSON file
  config.hidden_size = 16
  lu.assertErrorMsgContains("has no 'vocab_size', a whole number", huggingface.options, config)
end

function TestConfig:test_models_without_a_counterpart_are_refused()
  local function check(changes, message)
    local options = {layers = 1, hidden = 12, heads = 3, vocab = 7, seq = 5}
    for key, value in pairs(changes) do options[key] = value end
    lu.assertErrorMsgContains(message, huggingface.config, options)
  end
  check({norm = "rmsnorm"}, "no model of Hugging Face's")
  check({activation = "swiglu"}, "no model of Hugging Face's")
  check({bias = false}, "no model of Hugging Face's")
  check({kv_heads = 1}, "no model of Hugging Face's")
  check({position = "none"}, "no model of Hugging Face's")
  check({causal = false}, "no model of Hugging Face's")
  check({window = 4}, "a window in all blocks: that is no model of Hugging Face's")
  check({family = "llama", seq = 0}, "give nn.gpt's option 'seq'")
  -- Options that no form is known to have, such as one that a later version adds.
  check({sink = 4}, "no model of Hugging Face's that is supported has nn.gpt's option sink = 4")
  check({family = "llama", sink = 4}, "has nn.gpt's option sink = 4, so the exported model would")
  check({family = "llama", rope = {factor = 8}}, "has nn.gpt's option rope = {...}, so")
end

function TestConfig:test_options_without_effect_on_evaluation_change_nothing()
  local options = {layers = 1, hidden = 12, heads = 3, vocab = 7, seq = 5}
  local config = huggingface.config(options)
  for key, value in pairs{ignore_index = 3, loss = false, scale_residual = false, seed = 9, std = 0.5} do
    options[key] = value
  end
  lu.assertEquals(huggingface.config(options), config)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{
  {"TestLogits", TestLogits}, {"TestNames", TestNames}, {"TestFit", TestFit}, {"TestConfig", TestConfig},
})
