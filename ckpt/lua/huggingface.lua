--- Converts between Hugging Face's config.json of GPT-2, Llama, Mistral, Qwen2, Qwen3, Mixtral and Qwen3-MoE and the options of
-- moe.gpt: those of nn.gpt and, for a mixture of experts, the table `moe`. In both directions, an option that changes the model's
-- function and has no equivalent is an error.

local Reader = require "zt.ckpt.config_reader"
local fail = require "zt.fail"
local mixtures = require "zt.ckpt.mixtures"
local model_head = require "zt.ckpt.config.model_head"
local rope = require "zt.ckpt.config.rope"
local windows = require "zt.ckpt.config.windows"

local huggingface = {}

local ACTIVATIONS = {gelu_new = "gelu_tanh", gelu_pytorch_tanh = "gelu_tanh", gelu = "gelu", relu = "relu"}
local WRITTEN_ACTIVATIONS = {gelu_tanh = "gelu_new", gelu = "gelu", relu = "relu"}

local GPT2_END = 50256 -- <|endoftext|>, the last token of GPT-2's vocabulary, begins and ends texts

local MOST_LAYERS, MOST_COLUMNS, MOST_ROWS = Reader.MOST_LAYERS, Reader.MOST_COLUMNS, Reader.MOST_ROWS

local function read_gpt2(reader)
  reader:check_fixed{
    {"scale_attn_weights", true, "nn.attention always divides scores by sqrt(head_dim)"},
    {"scale_attn_by_inverse_layer_idx", false, "nn.attention scales all layers alike"},
    {"add_cross_attention", false, "nn.gpt has no cross-attention"},
  }
  local activation = reader:text("activation_function", "gelu_new")
  if not ACTIVATIONS[activation] then reader:refuse("activation_function", activation, "nn.mlp does not have it") end
  local hidden, heads = reader:size("n_embd", MOST_COLUMNS), reader:size("n_head", MOST_COLUMNS)
  reader:check_divides("n_embd", hidden, "n_head", heads)
  local dropout = reader:rate("resid_pdrop", 0.1)
  if reader:rate("embd_pdrop", 0.1) ~= dropout or reader:rate("attn_pdrop", 0.1) ~= dropout then
    fail("%s has different 'resid_pdrop', 'embd_pdrop' and 'attn_pdrop', but nn.gpt has one rate of dropout: make them equal",
      reader.path)
  end
  return {
    family = "gpt2", layers = reader:size("n_layer", MOST_LAYERS), hidden = hidden, heads = heads, kv_heads = heads,
    head_dim = hidden / heads, ffn = reader:size("n_inner", MOST_COLUMNS, 4 * hidden),
    vocab = reader:size("vocab_size", MOST_ROWS), seq = reader:size("n_positions", MOST_ROWS), norm = "layernorm",
    position = "learned", activation = ACTIVATIONS[activation], bias = true, tied = reader:truth("tie_word_embeddings", true),
    eps = reader:above_zero("layer_norm_epsilon", 1e-5), dropout = dropout,
  }
end

-- Returns the options that all families but GPT-2 have in common. defaults: {kv_heads, head_dim, eps, rope_base}, for missing
-- keys; without kv_heads, the file must say it.
local function llama_options(reader, defaults)
  reader:check_fixed{
    {"hidden_act", "silu", "the gate of nn.mlp's swiglu is silu"},
    {"attention_dropout", 0, "nn.gpt cannot apply dropout to the attention weights alone"},
  }
  local hidden, heads = reader:size("hidden_size", MOST_COLUMNS), reader:size("num_attention_heads", MOST_COLUMNS)
  local kv_heads = reader:size("num_key_value_heads", MOST_COLUMNS, defaults.kv_heads == "heads" and heads or nil)
  reader:check_divides("num_attention_heads", heads, "num_key_value_heads", kv_heads)
  local head_dim = reader:size("head_dim", MOST_COLUMNS, defaults.head_dim or hidden / heads)
  if head_dim == hidden / heads then reader:check_divides("hidden_size", hidden, "num_attention_heads", heads) end
  local seq = reader:size("max_position_embeddings", MOST_ROWS)
  local rope_base, rope_scaling = rope.read(reader, defaults.rope_base, seq)
  return {
    family = "llama", layers = reader:size("num_hidden_layers", MOST_LAYERS), hidden = hidden, heads = heads,
    kv_heads = kv_heads, head_dim = head_dim, ffn = reader:size("intermediate_size", MOST_COLUMNS),
    vocab = reader:size("vocab_size", MOST_ROWS), seq = seq,
    norm = "rmsnorm", position = "rotary", activation = "swiglu", bias = false, tied = reader:truth("tie_word_embeddings", false),
    eps = reader:above_zero("rms_norm_eps", defaults.eps), rope_base = rope_base,
    rope_scaling = rope_scaling, dropout = 0,
  }
end

local function read_llama(reader)
  local options = llama_options(reader, {kv_heads = "heads", eps = 1e-6, rope_base = 10000})
  options.bias = reader:truth("attention_bias", false)
  if options.bias ~= reader:truth("mlp_bias", false) then
    reader:refuse("attention_bias", options.bias, "'mlp_bias' differs, and " .. Reader.BIASES)
  end
  return options
end

local function read_mistral(reader)
  local layer_types = reader:get("layer_types", "table", "no value in a Mistral")
  if layer_types then reader:refuse("layer_types", layer_types, "with it, transformers makes a Ministral, not a Mistral") end
  local options = llama_options(reader, {eps = 1e-6, rope_base = 10000})
  options.window = windows.of_all(reader, options.seq)
  return options
end

local function read_qwen2(reader)
  local options = llama_options(reader, {eps = 1e-6, rope_base = 10000})
  options.qkv_bias, options.window = true, windows.by_block(reader, options.seq, options.layers)
  return options
end

local function read_qwen3(reader)
  reader:check_fixed{{"attention_bias", false, Reader.NO_MLP_BIAS}}
  local options = llama_options(reader, {head_dim = 128, eps = 1e-6, rope_base = 10000})
  options.qk_norm, options.window = true, windows.by_block(reader, options.seq, options.layers)
  return options
end

local function read_mixtral(reader)
  return mixtures.read_mixtral(reader, llama_options(reader, {eps = 1e-5, rope_base = 1e6}))
end

local function read_qwen3_moe(reader)
  return mixtures.read_qwen3_moe(reader, llama_options(reader, {eps = 1e-6, rope_base = 10000}))
end

local READERS = {gpt2 = read_gpt2, llama = read_llama, mistral = read_mistral, qwen2 = read_qwen2, qwen3 = read_qwen3,
                 mixtral = read_mixtral, qwen3_moe = read_qwen3_moe}

--- Returns all options of moe.gpt that matter for a model with this config.json (a table), and its form, a key of READERS. An
-- error for a value of the wrong type or out of range, and for one that has no equivalent. path: for messages.
function huggingface.options(config, path)
  local reader = Reader.of(config, path or "config.json")
  local form = reader:text "model_type"
  local read = READERS[form]
  if not read then
    fail("%s has 'model_type' = %s: only 'gpt2', 'llama', 'mistral', 'qwen2', 'qwen3', 'mixtral' and 'qwen3_moe' are supported",
      reader.path, tostring(form))
  end
  local quantised = config.quantization_config
  if quantised then reader:refuse("quantization_config", quantised, "its weights are no plain tensors") end
  local options = read(reader)
  options.head = model_head.read(reader)
  return options, form
end

--- Returns a new table of these options of moe.gpt, with defaults filled in as it does, from the family and other options.
function huggingface.complete(options)
  local is_llama = options.family == "llama"
  local o = {family = "gpt2", kv_heads = 0, head_dim = 0, ffn = 0, seq = 0, eps = 1e-5, dropout = 0, rope_base = 10000,
             norm = is_llama and "rmsnorm" or "layernorm", position = is_llama and "rotary" or "learned",
             activation = is_llama and "swiglu" or "gelu_tanh", bias = not is_llama, tied = not is_llama, causal = true,
             qk_norm = false, window = 0}
  for key, value in pairs(options) do o[key] = value end
  if o.qkv_bias == nil then o.qkv_bias = o.bias end
  if o.kv_heads == 0 then o.kv_heads = o.heads end
  if o.head_dim == 0 then o.head_dim = o.hidden / o.heads end
  if o.ffn == 0 then o.ffn = is_llama and math.ceil(math.floor(8 * o.hidden / 3) / 256) * 256 or 4 * o.hidden end
  if o.moe then o.moe = mixtures.complete(o) end
  return o
end

local TOKEN_IDS = {"bos_token_id", "eos_token_id", "pad_token_id"}

--- Returns the ids of special tokens of a config.json (a table). GPT-2's file may leave out those that are its defaults.
function huggingface.token_ids(config)
  local ids = {}
  for _, key in ipairs(TOKEN_IDS) do ids[key] = config[key] end
  if config.model_type == "gpt2" then
    for _, key in ipairs{"bos_token_id", "eos_token_id"} do ids[key] = ids[key] or GPT2_END end
  end
  return ids
end

--- Adds the ids of special tokens to a config.json. ids: those of the model that was imported, or nil: then only a model with
-- GPT-2's vocabulary has them. An id that is not known is null, because transformers has defaults that another tokenizer lacks.
-- Returns whether the padding's id is left out (model_head.pad_token).
function huggingface.add_token_ids(config, ids)
  if not ids and config.model_type == "gpt2" and config.vocab_size == GPT2_END + 1 then
    ids = {bos_token_id = GPT2_END, eos_token_id = GPT2_END}
  end
  for _, key in ipairs(TOKEN_IDS) do config[key] = ids and ids[key] or 0 / 0 end -- nan is encoded as null
  local pad, is_left_out = model_head.pad_token(config, ids or {})
  config.pad_token_id = pad or 0 / 0
  return is_left_out
end

local function write_gpt2(o)
  return {
    architectures = {"GPT2LMHeadModel"}, model_type = "gpt2", vocab_size = o.vocab, n_positions = o.seq, n_embd = o.hidden,
    n_layer = o.layers, n_head = o.heads, n_inner = o.ffn, activation_function = WRITTEN_ACTIVATIONS[o.activation],
    layer_norm_epsilon = o.eps, resid_pdrop = o.dropout, embd_pdrop = o.dropout, attn_pdrop = o.dropout,
    tie_word_embeddings = o.tied,
  }
end

-- Returns what the config.json of all families but GPT-2 have in common.
local function common_config(o, model_type, architecture)
  local config = {
    architectures = {architecture}, model_type = model_type, vocab_size = o.vocab, max_position_embeddings = o.seq,
    hidden_size = o.hidden, intermediate_size = o.ffn, num_hidden_layers = o.layers, num_attention_heads = o.heads,
    num_key_value_heads = o.kv_heads, head_dim = o.head_dim, hidden_act = "silu", rms_norm_eps = o.eps,
    tie_word_embeddings = o.tied,
  }
  rope.write(config, o)
  return config
end

local function write_llama(o)
  local config = common_config(o, "llama", "LlamaForCausalLM")
  config.attention_bias, config.mlp_bias = o.bias, o.bias
  return config
end

local function write_mistral(o)
  local config = common_config(o, "mistral", "MistralForCausalLM")
  windows.write_of_all(config, o)
  return config
end

local function write_qwen2(o)
  local config = common_config(o, "qwen2", "Qwen2ForCausalLM")
  windows.write_by_block(config, o)
  return config
end

local function write_qwen3(o)
  local config = common_config(o, "qwen3", "Qwen3ForCausalLM")
  config.attention_bias = false
  windows.write_by_block(config, o)
  return config
end

-- Returns the values that an option may have.
local function any(...)
  local set = {}
  for _, value in ipairs{...} do set[value] = true end
  return set
end

-- Returns the supported values of a family of Llama's kind. `windows` is what windows.kind returns, `biases` what biases_of does.
local function like_llama(biases, qk_norm, kinds)
  return {norm = any "rmsnorm", position = any "rotary", activation = any "swiglu", biases = biases, qk_norm = any(qk_norm),
          windows = kinds}
end

-- Rows {form, writer, supported values of nn.gpt's options}.
local FORMS = {
  {"gpt2", write_gpt2, {norm = any "layernorm", position = any "learned", activation = WRITTEN_ACTIVATIONS, biases = any "all",
                        qk_norm = any(false), windows = any "none"}},
  {"llama", write_llama, like_llama(any("all", "none"), false, any "none")},
  {"mistral", write_mistral, like_llama(any "none", false, any "all")},
  {"qwen2", write_qwen2, like_llama(any "qkv", false, any("none", "some", "all"))},
  {"qwen3", write_qwen3, like_llama(any "none", true, any("none", "some", "all"))},
}

-- Returns which matmuls have biases: "all", "none", those of queries, keys and values ("qkv"), or all but these ("others").
local function biases_of(o)
  if o.bias == o.qkv_bias then return o.bias and "all" or "none" end
  return o.bias and "others" or "qkv"
end

-- All options that a model may have: those in config.json; in the fourth line those without an effect on logits and values; and
-- value_bias and `lora`: these are no part of a family, and what writes a model says of them what it does with them.
local KNOWN = mixtures.known([[
  family layers hidden heads kv_heads head_dim ffn vocab seq norm position activation bias tied eps rope_base causal qk_norm
  qkv_bias rope_scaling window moe head
  dropout entropy ignore_index loss scale_residual seed std temperature
  value_bias lora]], {})

local function refuse(option, value)
  fail("no model of Hugging Face's that is supported has nn.gpt's option %s = %s, so the exported model would compute something "
    .. "else: export it without --huggingface", option, value)
end

local WINDOWS = {none = "no window", all = "a window in all blocks", some = "a window in some blocks",
                 different = "different windows"}

local function fits(traits, wanted)
  for key, values in pairs(wanted) do
    if not values[traits[key]] then return false end
  end
  return true
end

-- Returns config.json and the form of a language model with complete options, whatever its head.
local function config_of(o)
  if o.moe then return mixtures.config(o, common_config(o)) end
  local traits = {norm = o.norm, position = o.position, activation = o.activation, biases = biases_of(o), qk_norm = o.qk_norm,
                  windows = windows.kind(o)}
  for _, row in ipairs(FORMS) do
    local form, write, wanted = unpack(row)
    local has_heads = form ~= "gpt2" or (o.kv_heads == o.heads and o.head_dim * o.heads == o.hidden)
    if o.causal and has_heads and fits(traits, wanted) then return write(o), form end
  end
  fail("norm = '%s', position = '%s', activation = '%s', bias = %s, qkv_bias = %s, qk_norm = %s, %s: that is no "
    .. "model of Hugging Face's that is supported. GPT-2 has layernorm, learned positions, gelu_tanh, gelu or relu, biases. The "
    .. "others have rmsnorm, rotary positions, swiglu: a Llama biases or none; a Mistral one window in all blocks; a Qwen2 "
    .. "qkv_bias, a Qwen3 qk_norm, and both may have one window in some blocks", o.norm, o.position, o.activation,
    tostring(o.bias), tostring(o.qkv_bias), tostring(o.qk_norm), WINDOWS[traits.windows])
end

--- Returns config.json (a table) and the form of a model made by moe.gpt with these options. An error if no form fits, and for a
-- model without 'seq', which config.json needs. A Llama's config.json has no dropout, which only training uses; those of mixtures
-- have of the options for training only a balancing loss and jitter. A Mistral whose window no sequence exceeds is a Llama. With
-- head = "logprobs" the model is the language model; with head = "value" it is a classifier with one label.
function huggingface.config(options)
  mixtures.check_known(options, KNOWN, "", refuse)
  local o = huggingface.complete(options)
  if o.seq == 0 then fail "config.json needs the longest sequence: give nn.gpt's option 'seq'" end
  local config, form = config_of(o)
  model_head.write(config, o)
  return config, form
end

return huggingface
