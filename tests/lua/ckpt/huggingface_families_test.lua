-- Tests config.json of Llama 3, Mistral, Qwen2 and Qwen3, in both directions: scaled rotary angles, windows, biases.
-- huggingface_test.lua compares the logits of these families.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local moe = require "zt.moe"
local huggingface = require "zt.ckpt.huggingface"
local names = require "zt.ckpt.names"
local models = require "support.huggingface_models"
local refused = models.check_refused

local function options_of(name, changes)
  local config = models.config_of(name)
  for key, value in pairs(changes or {}) do config[key] = value end
  return huggingface.options(config)
end

-- Returns config.json as a reader gets it: null is nil.
local function written(options) return zt.json.decode(zt.json.encode((huggingface.config(options)))) end

local TestRotary = {}

local LLAMA3 = {type = "llama3", factor = 8, low_freq_factor = 1, high_freq_factor = 4, original = 64}

function TestRotary:test_the_forms_of_both_versions_of_transformers()
  lu.assertEquals(options_of("llama3").rope_scaling, LLAMA3)
  lu.assertEquals(options_of("llama3").rope_base, 100)
  local scaling = models.config_of("llama3").rope_parameters
  scaling.rope_theta = nil
  local config = models.config_of "llama3"
  config.rope_parameters, config.rope_scaling, config.rope_theta = nil, scaling, 100
  lu.assertEquals(huggingface.options(config), options_of "llama3")
  config.rope_parameters = models.config_of("llama3").rope_parameters
  lu.assertEquals(huggingface.options(config), options_of "llama3")
  lu.assertEquals(options_of("mistral").rope_scaling, {type = "linear", factor = 4})
  config = models.config_of "mistral"
  config.rope_parameters, config.rope_scaling, config.rope_theta = nil, {type = "linear", factor = 4}, 200
  lu.assertEquals(huggingface.options(config), options_of "mistral")
  lu.assertNil(options_of("llama").rope_scaling)
  lu.assertNil(options_of("llama", {rope_scaling = {rope_type = "default"}}).rope_scaling)
end

-- In transformers, the length of the first training may also be beside the angles, or be the longest sequence.
function TestRotary:test_the_length_of_the_first_training()
  local scaling = models.config_of("llama3").rope_parameters
  scaling.original_max_position_embeddings = nil
  lu.assertEquals(options_of("llama3", {rope_parameters = scaling}).rope_scaling.original, 512)
  local changes = {rope_parameters = scaling, original_max_position_embeddings = 128}
  lu.assertEquals(options_of("llama3", changes).rope_scaling.original, 128)
  scaling.original_max_position_embeddings = 64
  refused("llama3", changes, "has 'original_max_position_embeddings' = 128, and inside of its rotary positions 64")
end

function TestRotary:test_written_for_both_versions()
  local config = written(options_of "llama3")
  local inner = {rope_type = "llama3", factor = 8, low_freq_factor = 1, high_freq_factor = 4,
                 original_max_position_embeddings = 64}
  lu.assertEquals({config.rope_theta, config.rope_scaling}, {100, inner})
  inner.rope_theta = 100
  lu.assertEquals(config.rope_parameters, inner)
  config = written(options_of "llama")
  lu.assertNil(config.rope_scaling)
  lu.assertEquals(config.rope_parameters, {rope_type = "default", rope_theta = 500})
end

function TestRotary:test_other_angles_are_refused()
  local function refused_angles(angles, message) refused("llama", {rope_parameters = angles}, message) end
  for _, kind in ipairs{"yarn", "dynamic", "longrope", "mrope", "su"} do
    refused_angles({rope_type = kind, factor = 2}, "nn.attention scales rotary angles only as the types 'linear' and 'llama3'")
  end
  refused_angles({rope_type = "linear"}, "'rope_parameters' has no 'factor', which angles of the type 'linear' need")
  refused_angles({rope_type = "linear", factor = -1}, "'factor' = -1 (a number), where a number above 0 is needed")
  refused_angles({rope_type = "llama3", factor = 8}, "has no 'low_freq_factor', which angles of the type 'llama3' need")
  refused_angles({rope_type = "linear", factor = 2, partial_rotary_factor = 0.5}, "nn.attention rotates all elements of a head")
  refused_angles({rope_type = "default", mrope_section = {1, 2}}, "nn.attention does not have its 'mrope_section'")
  refused("llama", {partial_rotary_factor = 0.5}, "'partial_rotary_factor' = 0.5: nn.attention rotates all elements")
  refused("llama", {rope_scaling = {type = "linear", factor = 2}}, "'rope_parameters', which describe different angles")
end

local TestFamilies = {}

function TestFamilies:test_what_each_family_is()
  local mistral, qwen2, qwen3 = options_of "mistral", options_of "qwen2", options_of "qwen3"
  lu.assertEquals({mistral.window, mistral.bias, mistral.qkv_bias, mistral.qk_norm}, {4, false})
  lu.assertEquals({qwen2.window, qwen2.bias, qwen2.qkv_bias, qwen2.tied}, {{0, 0, 3}, false, true, true})
  lu.assertEquals({qwen3.window, qwen3.bias, qwen3.qk_norm, qwen3.head_dim}, {{5, 0}, false, true, 6})
  local config = models.config_of "qwen3"
  config.head_dim = nil
  lu.assertEquals(huggingface.options(config).head_dim, 128)
end

function TestFamilies:test_windows()
  -- A window that no sequence exceeds changes nothing.
  for _, name in ipairs{"mistral", "qwen2", "qwen3"} do lu.assertNil(options_of(name, {sliding_window = 32}).window) end
  for _, name in ipairs{"qwen2", "qwen3"} do
    local function windows(changes)
      local config = models.config_of(name)
      config.layer_types, config.max_window_layers = nil, nil
      for key, value in pairs(changes) do config[key] = value end
      return huggingface.options(config).window
    end
    local layers = options_of(name).layers
    lu.assertEquals(windows{max_window_layers = 0, sliding_window = 7}, 7)
    lu.assertNil(windows{max_window_layers = layers})
    lu.assertNil(windows{}) -- transformers' default is beyond the layers
    lu.assertNil(windows{use_sliding_window = false, max_window_layers = 0})
    lu.assertEquals(windows{max_window_layers = 1, sliding_window = 7}[layers], 7)
    lu.assertEquals(windows{max_window_layers = 1, sliding_window = 7}[1], 0)
  end
end

function TestFamilies:test_other_values_are_refused()
  refused("mistral", {layer_types = {"full_attention", "sliding_attention"}}, "makes a Ministral, not a Mistral")
  refused("mistral", {sliding_window = -1}, "'sliding_window' = -1 (a number), where a whole number")
  refused("qwen3", {attention_bias = true}, "'attention_bias' = true: its MLPs have no biases")
  refused("qwen3", {layer_types = {"full_attention"}}, "a list of 2 times 'full_attention' or 'sliding_attention' is needed")
  refused("qwen3", {layer_types = {"full_attention", "chunked_attention"}}, "'full_attention' or 'sliding_attention' is needed")
  refused("qwen3", {use_sliding_window = false},
          "1 of 2 layers have a sliding window, but 'use_sliding_window' = false and 'sliding_window' = 5 do not say which")
  refused("qwen2", {max_window_layers = 1.5}, "'max_window_layers' = 1.5 (a number), where a whole number of at least 0")
  local config = models.config_of "qwen2"
  config.sliding_window = nil
  lu.assertErrorMsgContains("1 of 3 layers have a sliding window, but 'use_sliding_window' = true and 'sliding_window' = nil",
    huggingface.options, config)
  config = models.config_of "mistral"
  config.num_key_value_heads = nil
  lu.assertErrorMsgContains("has no 'num_key_value_heads'", huggingface.options, config)
end

-- The keys of published files, as transformers 4 wrote them; those that are null there are missing here.
local PUBLISHED = {
  {"Llama 3.1 8B", {
    model_type = "llama", attention_bias = false, mlp_bias = false, hidden_act = "silu", hidden_size = 4096,
    intermediate_size = 14336, max_position_embeddings = 131072, num_attention_heads = 32, num_hidden_layers = 32,
    num_key_value_heads = 8, pretraining_tp = 1, rms_norm_eps = 1e-5, rope_theta = 500000, tie_word_embeddings = false,
    rope_scaling = {factor = 8, low_freq_factor = 1, high_freq_factor = 4, original_max_position_embeddings = 8192,
                    rope_type = "llama3"}, vocab_size = 128256,
  }, {rope_scaling = {type = "llama3", factor = 8, low_freq_factor = 1, high_freq_factor = 4, original = 8192}}},
  {"Mistral 7B", {
    model_type = "mistral", hidden_act = "silu", hidden_size = 4096, intermediate_size = 14336, max_position_embeddings = 32768,
    num_attention_heads = 32, num_hidden_layers = 32, num_key_value_heads = 8, rms_norm_eps = 1e-5, rope_theta = 10000,
    sliding_window = 4096, tie_word_embeddings = false, vocab_size = 32000,
  }, {window = 4096, kv_heads = 8, head_dim = 128}},
  {"Qwen2.5 7B", {
    model_type = "qwen2", attention_dropout = 0, hidden_act = "silu", hidden_size = 3584, intermediate_size = 18944,
    max_position_embeddings = 131072, max_window_layers = 28, num_attention_heads = 28, num_hidden_layers = 28,
    num_key_value_heads = 4, rms_norm_eps = 1e-6, rope_theta = 1000000, sliding_window = 131072, tie_word_embeddings = false,
    use_mrope = false, use_sliding_window = false, vocab_size = 152064,
  }, {qkv_bias = true, bias = false, head_dim = 128}},
  {"Qwen3 8B", {
    model_type = "qwen3", attention_bias = false, attention_dropout = 0, head_dim = 128, hidden_act = "silu", hidden_size = 4096,
    intermediate_size = 12288, max_position_embeddings = 40960, max_window_layers = 36, num_attention_heads = 32,
    num_hidden_layers = 36, num_key_value_heads = 8, rms_norm_eps = 1e-6, rope_theta = 1000000, tie_word_embeddings = false,
    use_sliding_window = false, vocab_size = 151936,
  }, {qk_norm = true, rope_base = 1e6}},
}

function TestFamilies:test_published_files()
  for _, row in ipairs(PUBLISHED) do
    local name, config, wanted = unpack(row)
    local options, form = huggingface.options(config)
    for key, value in pairs(wanted) do lu.assertEquals(options[key], value, name .. ": " .. key) end
    for _, key in ipairs{"window", "rope_scaling", "qkv_bias", "qk_norm"} do lu.assertEquals(options[key], wanted[key], key) end
    local again, again_form = huggingface.options(written(options))
    lu.assertEquals({again, again_form}, {options, form})
  end
end

-- Options of nn.gpt, the family that they are, and keys of its config.json.
local SCALING = {type = "linear", factor = 2}
local MADE = {
  {{window = 4}, "mistral", {sliding_window = 4}},
  {{window = {4, 4, 4}, rope_scaling = SCALING}, "mistral", {sliding_window = 4}},
  {{window = {0, 0, 0}, rope_scaling = SCALING}, "llama", {}},
  {{qkv_bias = false}, "llama", {attention_bias = false}},
  {{bias = true}, "llama", {attention_bias = true, mlp_bias = true}},
  {{qkv_bias = true}, "qwen2", {use_sliding_window = false}},
  {{qkv_bias = true, window = 3}, "qwen2", {sliding_window = 3, max_window_layers = 0}},
  {{qkv_bias = true, window = {0, 3, 3}, tied = true}, "qwen2", {sliding_window = 3, max_window_layers = 1}},
  {{qk_norm = true}, "qwen3", {use_sliding_window = false, head_dim = 4}},
  {{qk_norm = true, window = {0, 3, 0}, head_dim = 6, rope_scaling = SCALING}, "qwen3",
   {layer_types = {"full_attention", "sliding_attention", "full_attention"}, max_window_layers = 1}},
}

local function gpt_options(changes)
  local options = {family = "llama", layers = 3, hidden = 12, heads = 3, ffn = 5, vocab = 7, seq = 6}
  for key, value in pairs(changes) do options[key] = value end
  return options
end

function TestFamilies:test_models_made_here()
  for _, row in ipairs(MADE) do
    local options = gpt_options(row[1])
    local config, form = huggingface.config(options)
    lu.assertEquals({form, config.model_type}, {row[2], row[2]})
    for key, value in pairs(row[3]) do lu.assertEquals(config[key], value, key) end
    -- The options of that file make the same model, with the parameters that the map has.
    local again = huggingface.complete(huggingface.options(written(options)))
    local wanted = huggingface.complete(options)
    for _, o in ipairs{again, wanted} do o.window = select(3, require("zt.ckpt.config.windows").kind(o)) end
    lu.assertEquals(again, wanted)
    local shapes = {}
    for _, parameter in ipairs(moe.gpt(options):parameters()) do shapes[parameter.name] = parameter.shape end
    for _, entry in ipairs(names.map(form, again)) do
      lu.assertEquals(entry.shape, shapes[entry.name], entry.name)
      shapes[entry.name] = nil
    end
    lu.assertNil(next(shapes))
  end
end

function TestFamilies:test_models_without_a_counterpart_are_refused()
  for message, changes in pairs{
    ["bias = true, qkv_bias = false, qk_norm = false, no window"] = {bias = true, qkv_bias = false},
    ["bias = true, qkv_bias = true, qk_norm = true"] = {bias = true, qk_norm = true},
    ["a window in some blocks"] = {window = {0, 4, 4}},
    ["different windows"] = {window = {0, 4, 3}, qk_norm = true},
    ["a window in all blocks"] = {window = 4, bias = true},
  } do
    lu.assertErrorMsgContains(message, huggingface.config, gpt_options(changes))
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestRotary", TestRotary}, {"TestFamilies", TestFamilies}})
