--- Converts between Hugging Face's config.json of Mixtral and Qwen3-MoE and the table `moe` of moe.gpt's options.

local Reader = require "zt.ckpt.config_reader"
local fail = require "zt.fail"
local windows = require "zt.ckpt.config.windows"

local mixtures = {}

local MOST_EXPERTS = 2 ^ 16

--- Returns the set of blocks, from 0, that have experts.
function mixtures.sparse_blocks(options)
  local set, moe = {}, options.moe
  if moe and moe.blocks then
    for _, block in ipairs(moe.blocks) do set[block] = true end
  elseif moe then
    for block = 0, options.layers - 1 do set[block] = true end
  end
  return set
end

-- Returns the router's balancing loss, or nil. transformers adds `router_aux_loss_coef` * experts * sum of f P, where f sums to
-- top_k, and f and P are means over all layers. Ours adds one term per layer, with an f that sums to 1: the weight is such that
-- both losses are equal for equal layers.
local function losses_of(reader, top_k, layers)
  local weight = reader:at_least_zero("router_aux_loss_coef", 0.001)
  if not reader:truth("output_router_logits", false) or weight == 0 then return nil end
  return {balance = weight * top_k / layers, per = "micro_batch"}
end

-- Returns the table `moe` for the experts that a config.json describes. key: that of the number of experts.
local function experts_of(reader, key, layers)
  local experts = reader:size(key, MOST_EXPERTS)
  local top_k = reader:size("num_experts_per_tok", MOST_EXPERTS)
  if top_k > experts then
    fail("%s has 'num_experts_per_tok' = %d, but '%s' = %d: one of them is wrong", reader.path, top_k, key, experts)
  end
  return {experts = experts, top_k = top_k, activation = "swiglu", bias = false,
          router = {normalise = "selected", losses = losses_of(reader, top_k, layers)}}
end

--- Adds the experts of a Mixtral to `options`, those of its other parts. Returns the options.
function mixtures.read_mixtral(reader, options)
  options.window = windows.of_all(reader, options.seq)
  local moe = experts_of(reader, "num_local_experts", options.layers)
  moe.ffn = options.ffn
  local jitter = reader:rate("router_jitter_noise", 0)
  if jitter > 0 then moe.router.noise, moe.router.jitter = "jitter", jitter end
  options.moe = moe
  return options
end

-- transformers 4 writes num_experts, version 5 num_local_experts.
local function experts_key(reader)
  local config = reader.config
  if config.num_experts ~= nil and config.num_local_experts ~= nil and config.num_experts ~= config.num_local_experts then
    fail("%s has 'num_experts' = %s and 'num_local_experts' = %s, two names of one number: remove the wrong one", reader.path,
      tostring(config.num_experts), tostring(config.num_local_experts))
  end
  return config.num_experts == nil and config.num_local_experts ~= nil and "num_local_experts" or "num_experts"
end

-- Returns the list of blocks that have experts, and whether they are all blocks.
local function blocks_of(reader, layers)
  local step, is_dense, blocks = reader:size("decoder_sparse_step", Reader.MOST_LAYERS, 1), {}, {}
  for _, layer in ipairs(reader:numbers "mlp_only_layers") do is_dense[layer] = true end
  for layer = 0, layers - 1 do
    if not is_dense[layer] and (layer + 1) % step == 0 then blocks[#blocks + 1] = layer end
  end
  return blocks, #blocks == layers
end

--- Adds the experts of a Qwen3-MoE to `options`, those of its other parts. Returns the options.
function mixtures.read_qwen3_moe(reader, options)
  reader:check_fixed{{"attention_bias", false, Reader.NO_MLP_BIAS}}
  if reader:truth("use_sliding_window", false) then
    if reader.config.sliding_window == nil then
      reader:refuse("use_sliding_window", true, "'sliding_window' is missing: get the file again or correct it")
    end
    options.window = windows.of_all(reader, options.seq)
    local first = reader:get("max_window_layers", "number", "a whole number", 0)
    if options.window and first > 0 then
      reader:refuse("max_window_layers", first, "versions of transformers differ in whether layers below it have the window")
    end
  end
  options.qk_norm = true
  local blocks, is_all = blocks_of(reader, options.layers)
  local moe = experts_of(reader, experts_key(reader), math.max(1, #blocks))
  moe.ffn = reader:size("moe_intermediate_size", Reader.MOST_COLUMNS)
  moe.router.normalise = reader:truth("norm_topk_prob", false) and "selected" or "none"
  if not is_all then moe.blocks = blocks end
  options.moe = moe
  return options
end

--- Returns a new table `moe` of these options, with defaults filled in as moe.gpt does. Requires complete options of nn.gpt.
function mixtures.complete(options)
  local moe = {top_k = 2, activation = options.activation, bias = options.bias}
  for key, value in pairs(options.moe) do moe[key] = value end
  moe.router = {softmax_after = false, normalise = "none", noise = "none", losses = {}}
  for key, value in pairs(options.moe.router or {}) do moe.router[key] = value end
  return moe
end

local ANY = {} -- of an option: any value

--- Returns `values`, {option = its only value}, with further options, which may have any value.
function mixtures.known(options, values)
  for option in options:gmatch "%S+" do values[option] = ANY end
  return values
end

--- Calls refuse(prefix .. option, value as a text) for each given option that is not known or has another value.
function mixtures.check_known(given, known, prefix, refuse)
  for option, value in pairs(given) do
    local is_known = known[option] == ANY or known[option] == value
    if not is_known then refuse(prefix .. option, type(value) == "table" and "{...}" or tostring(value)) end
  end
end

-- All options that a mixture may have. Those with any value are in config.json, or have no effect in evaluation.
local OF_MOE = mixtures.known("blocks experts ffn hidden router top_k "
  .. "axis dispatcher grouped_gemm overlap planned_rows residual_std std transport", {activation = "swiglu", bias = false})
local OF_ROUTER = mixtures.known("experts hidden losses normalise softmax_after top_k batch_axes bias_rate jitter mask noise std",
  {score = "softmax", scale = 1, groups = 1, top_groups = 1, choice = "token", bias = false, routes = "", draw_always = false})

local function refuse(what, value)
  fail("%s = %s is in no mixture of Hugging Face's that is supported: Mixtral and Qwen3-MoE have rmsnorm, rotary positions, "
    .. "one window in all blocks or none, no biases, experts that are MLPs with swiglu, and softmax scores; they have no groups, "
    .. "no bias of the router, no capacity, no shared expert", what, tostring(value))
end

-- An error unless the weights and the options say all that the model computes in evaluation.
local function check(o)
  for option, only in pairs{norm = "rmsnorm", position = "rotary", activation = "swiglu", bias = false, qkv_bias = false,
                            causal = true} do
    if o[option] ~= only then refuse(option, o[option]) end
  end
  local kind = windows.kind(o)
  if kind ~= "none" and kind ~= "all" then refuse("window", "{...}") end
  mixtures.check_known(o.moe, OF_MOE, "moe.", refuse)
  mixtures.check_known(o.moe.router, OF_ROUTER, "moe.router.", refuse)
  if o.moe.router.noise == "noisy_top_k" then refuse("moe.router.noise", "noisy_top_k") end
end

local function write_mixtral(o, config, dense, is_normalised)
  if #dense > 0 then
    fail "a Mixtral has experts in all blocks, but moe.blocks names only some, which a Qwen3-MoE can have: that needs qk_norm"
  end
  if not is_normalised then
    fail "a Mixtral divides weights by the sum of those selected: give moe.router.normalise = 'selected', or qk_norm (Qwen3-MoE)"
  end
  local router = o.moe.router
  config.architectures, config.model_type = {"MixtralForCausalLM"}, "mixtral"
  windows.write_of_all(config, o)
  config.num_local_experts, config.intermediate_size = o.moe.experts, o.moe.ffn
  config.router_jitter_noise = router.noise == "jitter" and (router.jitter or 0.01) or nil
end

local function write_qwen3_moe(o, config, dense, is_normalised)
  config.architectures, config.model_type, config.attention_bias = {"Qwen3MoeForCausalLM"}, "qwen3_moe", false
  config.num_experts, config.moe_intermediate_size, config.norm_topk_prob = o.moe.experts, o.moe.ffn, is_normalised
  config.decoder_sparse_step = 1
  windows.write_of_all(config, o)
  config.use_sliding_window = config.sliding_window ~= nil
  config.max_window_layers = config.sliding_window and 0 or nil
  if #dense > 0 then config.mlp_only_layers = dense end
end

--- Returns config.json (a table) and the form of a model made by moe.gpt. o: complete options. config: what config.json has
-- in common with a Llama's. An error for a model that is neither a Mixtral nor a Qwen3-MoE.
function mixtures.config(o, config)
  check(o)
  local sparse, dense, router = mixtures.sparse_blocks(o), {}, o.moe.router
  for block = 0, o.layers - 1 do
    if not sparse[block] then dense[#dense + 1] = block end
  end
  local balance, top_k = router.losses.balance or 0, o.moe.top_k
  config.num_experts_per_tok, config.output_router_logits = top_k, balance > 0
  config.router_aux_loss_coef = balance > 0 and balance * (o.layers - #dense) / top_k or nil
  local is_normalised = router.softmax_after or router.normalise ~= "none"
  local write = o.qk_norm and write_qwen3_moe or write_mixtral
  write(o, config, dense, is_normalised)
  return config, config.model_type
end

return mixtures
