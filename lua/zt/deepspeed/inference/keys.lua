--- The keys of deepspeed.init_inference of DeepSpeed 0.19.8 (DeepSpeedInferenceConfig) with their fates, as blocks of
-- zt.deepspeed.keys. Options that the text of a key names are those of infer.engine.

local keys = require "zt.deepspeed.keys"
local zero_keys = require "zt.deepspeed.inference.zero_keys"

local KERNELS = "every kernel is compiled and fused by hand, and chosen by the processor; there is nothing to turn on"
local GIVE_MESH = "give zt.init_inference{mesh = comm.mesh{...}}, with an axis tp, ep or dp"
local CUTS = "layers say by themselves how they are cut over ranks; leave the key out"
local ANY_RANKS = "a folder loads on any number of ranks, whatever wrote it"
local FORMATS = "; `int8` has symmetric codes, `int4` is symmetric if the key says so"

local DTYPES = {}
for name, aliases in pairs {
  fp32 = {"float32", "float", "torch.float32", "torch.float"}, fp16 = {"float16", "half", "torch.float16", "torch.half"},
  bf16 = {"bfloat16", "bfloat", "torch.bfloat16"}, int8 = {"torch.int8"},
} do
  for _, alias in ipairs(aliases) do DTYPES[alias] = name end
end

-- Returns a function that tells whether a block is on: unless it says "enabled": false, as DeepSpeed's default is true.
local function unless_disabled(block) return block.enabled ~= false end

local TOP = {path = "", rows = {
  {"dtype", "mapped", "string",
   "`dtype`; the type of the folder or trainer when absent, where DeepSpeed takes fp16. \"int8\": `weights = {format = "
   .. "\"int8\"}`, and the rest has the type of the folder", one_of = {"fp32", "fp16", "bf16", "int8"}, means = DTYPES},
  {"max_out_tokens", "mapped", "integer", "`max_context`: most tokens of a prompt and its answer; the model's `seq` when "
   .. "absent, where DeepSpeed takes 1024", same = {"max_tokens"}, at_least = 1},
  {"min_out_tokens", "mapped", "integer", "an error if fewer tokens than that are `max_context`: memory for them is taken at "
   .. "the start", same = {"min_tokens"}, at_least = 1},
  {"checkpoint", "mapped", "string|table", "`model`: the folder with the parameters, if the option `model` is absent"},
  {"base_dir", "mapped", "string", "the folder in which `checkpoint` lies; \"\": it is a path by itself"},
  {"replace_with_kernel_inject", "always", "boolean", KERNELS, same = {"kernel_inject"}, agrees = "any"},
  {"enable_cuda_graph", "always", "boolean", "a step is a list of actions that is made once; nothing is captured",
   agrees = "any"},
  {"use_triton", "always", "boolean", KERNELS, agrees = "any"},
  {"triton_autotune", "always", "boolean", KERNELS, agrees = "any"},
  {"triangular_masking", "always", "boolean", "attention of an engine is causal, or keys could not be kept", same = {"tm"},
   default = true},
  {"return_tuple", "always", "boolean", "outputs of layers have names", agrees = "any"},
  {"keep_module_on_host", "always", "boolean", "one parameter at a time is read, packed in host memory and moved; to keep "
   .. "parameters there give zero.offload_param", agrees = "any"},
  {"set_empty_params", "always", "boolean", "parameters are allocated once, and no values are drawn before they are read",
   agrees = "any"},
  {"training_mp_size", "always", "integer", ANY_RANKS, agrees = "any", at_least = 1},
  {"replace_method", "always", "string", "deprecated: it has no effect in DeepSpeed either", default = "auto", agrees = "any"},
  {"save_mp_checkpoint_path", "refused", "string", ANY_RANKS .. ": there is nothing to write; leave the key out"},
  {"transposed_mode", "refused", "boolean", "matrices lie as [outputs, inputs]; convert the folder", default = false},
  {"injection_policy", "refused", "any", CUTS, same = {"injection_dict"}},
  {"injection_policy_tuple", "refused", "any", CUTS},
  {"config", "refused", "any", "the folder of a model has its configuration; leave the key out", same = {"args"}},
  {"mp_size", "mapped", "integer", "deprecated: `tensor_parallel.tp_size`", at_least = 1},
  {"mpu", "refused", "any", GIVE_MESH},
  {"ep_size", "mapped", "integer", "deprecated: `moe.ep_size`", at_least = 1},
  {"ep_group", "refused", "any", GIVE_MESH, same = {"expert_group"}},
  {"ep_mp_group", "refused", "any", GIVE_MESH, same = {"expert_mp_group"}},
  {"moe_experts", "mapped", "list", "deprecated: `moe.moe_experts`"},
  {"moe_type", "mapped", "string", "deprecated: `moe.type`", one_of = {"standard", "residual"}},
}}

local TENSOR = {path = "tensor_parallel", fate = "mapped", same = {"tp"}, is_on = unless_disabled,
                text = "`mesh` and `tensor`: the ranks that share matrices", rows = {
  {"enabled", "mapped", "boolean", "false: the block has no effect"},
  {"tp_size", "mapped", "integer", "the ranks of the axis `tensor` of the mesh; the other ranks are copies of the model, with "
   .. "requests of their own", at_least = 1},
  {"tp_grain_size", "always", "integer", "heads, and rows and columns of MLPs, are shared evenly; the kernels need no grain",
   agrees = "any", at_least = 1},
  {"mpu", "refused", "any", GIVE_MESH},
  {"tp_group", "refused", "any", GIVE_MESH},
}}

local MOE = {path = "moe", fate = "mapped", is_on = unless_disabled,
             text = "`experts`; true and false are `enabled`", rows = {
  {"enabled", "mapped", "boolean", "false: the block has no effect"},
  {"ep_size", "mapped", "integer", "the ranks of the axis `experts` of the mesh, over which experts are divided", at_least = 1},
  {"moe_experts", "mapped", "list", "the numbers of experts must be those of the model's layers; `[1]` says nothing",
   same = {"num_experts"}},
  {"type", "mapped", "string", "\"residual\" is an error: the layers of a model have either an MLP or experts, with shared "
   .. "experts beside them", one_of = {"standard", "residual"}},
  {"ep_mp_group", "refused", "any", GIVE_MESH},
  {"ep_group", "refused", "any", GIVE_MESH, same = {"expert_group"}},
}}

local QUANT = {path = "quant", fate = "mapped", is_on = unless_disabled,
               text = "`weights`, also if dtype is not \"int8\", where DeepSpeed takes no notice of the block", rows = {
  {"enabled", "mapped", "boolean", "true: `weights = {format = \"int8\"}`, or what the blocks below say; false: none"},
}}

local GROUP_WISE = "{num_bits = 4 or 8, group_size = 32, 64 or 128, group_dim = 1, symmetric =}"

local WEIGHT = {path = "quant.weight", fate = "mapped", same = {"weight_quantization"}, is_on = unless_disabled,
                text = "`weights`: how matrices are packed; embeddings and routers stay plain, the head takes 8 bits", rows = {
  {"enabled", "mapped", "boolean", "true: `weights`; false: matrices stay plain"},
  {"num_bits", "mapped", "integer", "`weights.format`: 8 is `int8`, 4 is `int4`; 8 when absent", one_of = {4, 8}},
  {"q_type", "mapped", "string", "`weights.symmetric`, with 4 bits; 8 bits are symmetric, so \"asymmetric\" is an error with "
   .. "them", one_of = {"symmetric", "asymmetric"}},
  {"q_groups", "always", "integer", "each row has a scale for 64 of its columns; for another number give the option `weights = "
   .. "{format =, group =}`", agrees = "any", at_least = 1},
  {"quantized_initialization", "mapped", "table", "`weights`, for all matrices: " .. GROUP_WISE .. FORMATS},
  {"post_init_quant", "mapped", "table", "`weights`, for matrices whose name contains a key: {[\"mlp\"] = " .. GROUP_WISE
   .. "}; others stay plain. All keys have the same format" .. FORMATS},
}}

local ACTIVATION = {path = "quant.activation", fate = "mapped", is_on = unless_disabled, text = "`weights.activations`", rows = {
  {"enabled", "mapped", "boolean", "true: `weights.activations = \"int8\"`; false or absent: not rounded"},
  {"num_bits", "mapped", "integer", "8: `weights.activations = \"int8\"`", one_of = {8}},
  {"q_type", "always", "string", "a group of 8-bit activations has one scale and no offset", default = "symmetric"},
  {"q_groups", "always", "integer", "activations have the groups of the matrix", agrees = "any", at_least = 1},
}}

local QKV = {path = "quant.qkv", fate = "mapped", text = "`weights.keep`", rows = {
  {"enabled", "mapped", "boolean", "false: `weights.keep = {\"\\\\.attention\\\\.qkv\\\\.\"}`, these matrices stay plain"},
}}

local CHECKPOINT = {path = "checkpoint_config", fate = "mapped", text = "`model`", same = {"ckpt_config"}, rows = {
  {"checkpoint_dir", "mapped", "string", "as `checkpoint`"},
  {"base_dir", "mapped", "string", "as `base_dir`"},
  {"save_mp_checkpoint_path", "refused", "string", ANY_RANKS .. ": there is nothing to write; leave the key out"},
}}

local specs = {TOP, TENSOR, MOE, QUANT, WEIGHT, ACTIVATION, QKV, CHECKPOINT}
for _, spec in ipairs(zero_keys) do specs[#specs + 1] = spec end

return keys.schema(specs)
