--- Hugging Face's config.json of GPT-2 and Llama <-> the options of nn.gpt. What changes a model's function and nn.gpt does not
-- have is an error, in both directions.

local core = require "zt.core"
local fail = require "zt.fail"

local huggingface = {}

local ACTIVATIONS = {gelu_new = "gelu_tanh", gelu_pytorch_tanh = "gelu_tanh", gelu = "gelu", relu = "relu"}
local WRITTEN_ACTIVATIONS = {gelu_tanh = "gelu_new", gelu = "gelu", relu = "relu"}

local function size(config, key)
  local value = config[key]
  if type(value) ~= "number" or value < 1 or value ~= math.floor(value) then
    fail("config.json has no whole number above 0 as '%s', so the model's size is unknown: is it the right file?", key)
  end
  return value
end

local function default(value, otherwise)
  if value == nil then return otherwise end
  return value
end

local function refuse(key, value, why)
  local text = type(value) == "table" and core.json.encode(value) or tostring(value)
  fail("config.json has '%s' = %s: %s, so nn.gpt would compute other logits", key, text, why)
end

-- Keys that may be there with one value only.
local function check_fixed(config, fixed)
  for _, row in ipairs(fixed) do
    local key, value, why = unpack(row)
    if config[key] ~= nil and config[key] ~= value then refuse(key, config[key], why) end
  end
end

local function read_gpt2(config)
  check_fixed(config, {
    {"scale_attn_weights", true, "nn.attention always divides scores by sqrt(head_dim)"},
    {"scale_attn_by_inverse_layer_idx", false, "nn.attention scales all layers alike"},
    {"add_cross_attention", false, "nn.gpt has no cross-attention"},
  })
  local activation = default(config.activation_function, "gelu_new")
  if not ACTIVATIONS[activation] then refuse("activation_function", activation, "nn.mlp does not have it") end
  local hidden, heads = size(config, "n_embd"), size(config, "n_head")
  if hidden % heads ~= 0 then fail("config.json has %d columns ('n_embd') for %d heads ('n_head')", hidden, heads) end
  local dropout = default(config.resid_pdrop, 0.1)
  if default(config.embd_pdrop, 0.1) ~= dropout or default(config.attn_pdrop, 0.1) ~= dropout then
    fail "config.json has different 'resid_pdrop', 'embd_pdrop' and 'attn_pdrop', nn.gpt has one rate of dropout: make them equal"
  end
  return {
    family = "gpt2", layers = size(config, "n_layer"), hidden = hidden, heads = heads, kv_heads = heads,
    head_dim = hidden / heads, ffn = config.n_inner and size(config, "n_inner") or 4 * hidden,
    vocab = size(config, "vocab_size"), seq = size(config, "n_positions"), norm = "layernorm", position = "learned",
    activation = ACTIVATIONS[activation], bias = true, tied = default(config.tie_word_embeddings, true),
    eps = default(config.layer_norm_epsilon, 1e-5), dropout = dropout,
  }
end

-- The base of the rotary angles. Version 5 of transformers writes rope_parameters, version 4 rope_theta and rope_scaling.
local function rope_base(config)
  for _, key in ipairs {"rope_parameters", "rope_scaling"} do
    local rope = config[key]
    local kind = type(rope) == "table" and (rope.rope_type or rope.type)
    if kind and kind ~= "default" then refuse(key, rope, "nn.attention does not rescale rotary angles") end
  end
  return config.rope_parameters and config.rope_parameters.rope_theta or config.rope_theta or 10000
end

local function read_llama(config)
  check_fixed(config, {
    {"hidden_act", "silu", "the gate of nn.mlp's swiglu is silu"},
    {"attention_dropout", 0, "dropout of nn.gpt is not of the attention weights alone"},
  })
  local bias = default(config.attention_bias, false)
  if bias ~= default(config.mlp_bias, false) then
    refuse("attention_bias", bias, "'mlp_bias' is another, and nn.gpt has biases in all products or in none")
  end
  local hidden, heads = size(config, "hidden_size"), size(config, "num_attention_heads")
  local head_dim = config.head_dim and size(config, "head_dim") or hidden / heads
  if head_dim ~= math.floor(head_dim) then
    fail("config.json has %d columns ('hidden_size') for %d heads ('num_attention_heads')", hidden, heads)
  end
  return {
    family = "llama", layers = size(config, "num_hidden_layers"), hidden = hidden, heads = heads,
    kv_heads = config.num_key_value_heads and size(config, "num_key_value_heads") or heads, head_dim = head_dim,
    ffn = size(config, "intermediate_size"), vocab = size(config, "vocab_size"), seq = size(config, "max_position_embeddings"),
    norm = "rmsnorm", position = "rotary", activation = "swiglu", bias = bias,
    tied = default(config.tie_word_embeddings, false), eps = default(config.rms_norm_eps, 1e-6), rope_base = rope_base(config),
    dropout = 0,
  }
end

local READERS = {gpt2 = read_gpt2, llama = read_llama}

--- The options of nn.gpt for a model with this config.json (a table), all that matter given, and its form: "gpt2" or "llama".
function huggingface.options(config)
  local form = config.model_type
  local read = READERS[form]
  if not read then fail("config.json has 'model_type' = %s: only 'gpt2' and 'llama' have a counterpart here", tostring(form)) end
  local quantised = config.quantization_config
  if quantised then refuse("quantization_config", quantised, "its weights are no plain tensors") end
  return read(config), form
end

--- What nn.gpt makes of these options: those that a family or other options decide are filled in. Returns a new table.
function huggingface.complete(options)
  local is_llama = options.family == "llama"
  local o = {family = "gpt2", kv_heads = 0, head_dim = 0, ffn = 0, seq = 0, eps = 1e-5, dropout = 0, rope_base = 10000,
             norm = is_llama and "rmsnorm" or "layernorm", position = is_llama and "rotary" or "learned",
             activation = is_llama and "swiglu" or "gelu_tanh", bias = not is_llama, tied = not is_llama, causal = true}
  for key, value in pairs(options) do o[key] = value end
  if o.kv_heads == 0 then o.kv_heads = o.heads end
  if o.head_dim == 0 then o.head_dim = o.hidden / o.heads end
  if o.ffn == 0 then o.ffn = is_llama and math.ceil(math.floor(8 * o.hidden / 3) / 256) * 256 or 4 * o.hidden end
  return o
end

local function write_gpt2(o)
  return {
    architectures = {"GPT2LMHeadModel"}, model_type = "gpt2", vocab_size = o.vocab, n_positions = o.seq, n_embd = o.hidden,
    n_layer = o.layers, n_head = o.heads, n_inner = o.ffn, activation_function = WRITTEN_ACTIVATIONS[o.activation],
    layer_norm_epsilon = o.eps, resid_pdrop = o.dropout, embd_pdrop = o.dropout, attn_pdrop = o.dropout,
    tie_word_embeddings = o.tied,
  }
end

local function write_llama(o)
  return {
    architectures = {"LlamaForCausalLM"}, model_type = "llama", vocab_size = o.vocab, max_position_embeddings = o.seq,
    hidden_size = o.hidden, intermediate_size = o.ffn, num_hidden_layers = o.layers, num_attention_heads = o.heads,
    num_key_value_heads = o.kv_heads, head_dim = o.head_dim, hidden_act = "silu", rms_norm_eps = o.eps, rope_theta = o.rope_base,
    rope_parameters = {rope_type = "default", rope_theta = o.rope_base}, attention_bias = o.bias, mlp_bias = o.bias,
    tie_word_embeddings = o.tied,
  }
end

-- What options of nn.gpt must be for a form; true: any that is there.
local FORMS = {
  {"gpt2", write_gpt2, {norm = {layernorm = true}, position = {learned = true}, activation = WRITTEN_ACTIVATIONS,
                        bias = {[true] = true}}},
  {"llama", write_llama, {norm = {rmsnorm = true}, position = {rotary = true}, activation = {swiglu = true},
                          bias = {[true] = true, [false] = true}}},
}

local function fits(o, wanted)
  for key, values in pairs(wanted) do
    if not values[o[key]] then return false end
  end
  return true
end

--- config.json (a table) and form of a model made by nn.gpt with these options. An error if neither form is it, and for a Llama
-- without 'seq', which config.json has to name. A Llama's has no place for dropout, which only training has.
function huggingface.config(options)
  local o = huggingface.complete(options)
  for _, row in ipairs(FORMS) do
    local form, write, wanted = unpack(row)
    local has_heads = form == "llama" or (o.kv_heads == o.heads and o.head_dim * o.heads == o.hidden)
    if o.causal and has_heads and fits(o, wanted) then
      if o.seq == 0 then fail "config.json names the longest sequence: give nn.gpt's option 'seq'" end
      return write(o), form
    end
  end
  fail("norm = '%s', position = '%s', activation = '%s', bias = %s is no model of Hugging Face's that is known here: GPT-2 has "
    .. "layernorm, learned positions, gelu_tanh, gelu or relu, biases; Llama has rmsnorm, rotary positions, swiglu",
    o.norm, o.position, o.activation, tostring(o.bias))
end

return huggingface
