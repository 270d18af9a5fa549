--- Keys of pipelines, tensor and expert parallelism, and of the hybrid engine: generation between training steps.

local NO_GRAPHS = "programs are lists of actions and kernels are fused by hand: there is no graph to compile; remove the block"

local CUT_MESSAGES = "`tensor.sequence_parallel`: with tensor parallelism, messages of stages have a rank's share of the tokens"
local LAYERS_SAY = "layers say how they are cut: `tensor = mesh.tp` of nn.gpt and nn's layers, `cut` of nn.layer's parameters"
local GIVE_MESH = "give `zt.initialize{mesh = comm.mesh{...}}`, with an axis tp"

local SEARCH = "the model's list names its experts (`moe.layers`), so nothing is searched for"
local KERNELS = "the experts' MLPs are one grouped matmul; this choice changes no number"
local DEEPEP = "it has an effect with DeepEP only, which `comm_backend` refuses"

local function none() return nil end

local EXPERTS = {
  {"enabled", "mapped", "boolean", "`experts`, for the mesh and for `model = function(mesh, experts)`"},
  {"autoep_size", "mapped", "integer", "`experts.size`: the ranks along the mesh's axis ep; 1 when absent", at_least = 1},
  {"top_k", "mapped", "integer", "`experts.top_k`, of `moe.layers`", at_least = 1, auto = none},
  {"score_func", "mapped", "string", "`experts.router.score`", one_of = {"softmax", "sigmoid"}, auto = none},
  {"route_norm", "mapped", "boolean", "`experts.router.normalise`: \"selected\" or \"none\""},
  {"route_scale", "mapped", "number", "`experts.router.scale`", above = 0},
  {"num_expert_groups", "mapped", "integer", "`experts.router.groups`", at_least = 1},
  {"num_limited_groups", "mapped", "integer", "`experts.router.top_groups`", at_least = 1},
  {"score_apply", "always", "string", "the result of an expert is multiplied by the route's weight", default = "auto",
   agrees = {"post"}},
  {"routed_scaling_factor", "refused", "number|string", "the model's file is not read; give route_scale", default = "auto"},
  {"load_balance_coeff", "refused", "number",
   "DeepSpeed refuses it too; give `moe.layers{router = {bias = true, bias_rate = x}}`"},
  {"expert_activation", "refused", "string", "give `moe.layers{activation = name}`"},
  {"expert_tensor_parallel_size", "mapped", "integer",
   "`experts.tensor_size`: 1 (when absent), or the ranks that share matrices; then `experts.tensor` of "
   .. "`model = function(mesh, experts)` is the axis tp, for `moe.layers`", at_least = 1},
  {"async_split_plan", "refused", "boolean", "give `moe.layers{overlap = true}`", default = false},
  {"comm_backend", "refused", "string", "rows are sent by the backend of the mesh (`comm.mesh`); leave the key out",
   default = "comm"},
  {"comm_num_sm", "always", "integer", DEEPEP, agrees = "any"},
  {"comm_qp_margin", "always", "integer", DEEPEP, agrees = "any"},
  {"comm_max_tokens_per_rank", "always", "integer", DEEPEP, agrees = "any"},
  {"validate_folding_routing", "always", "boolean", "each token has one router, on one rank", agrees = "any"},
  {"use_grouped_mm", "always", "boolean", KERNELS, agrees = "any"},
  {"disable_triton_grouped_mm", "always", "boolean", KERNELS, agrees = "any"},
  {"combine_impl", "always", "string", KERNELS, agrees = "any"},
  {"row_weighting_impl", "always", "string", KERNELS, agrees = "any"},
  {"gate_up_impl", "always", "string", KERNELS, agrees = "any"},
}
for name in ("preset_model moe_layer_pattern expert_pattern router_pattern expert_w1 expert_w2 expert_w3 num_experts_attr "
  .. "top_k_attr shared_experts_pattern shared_experts_gate_pattern"):gmatch "%S+" do
  EXPERTS[#EXPERTS + 1] = {name, "always", "string", SEARCH, agrees = "any"}
end
EXPERTS[#EXPERTS + 1] = {"has_shared_experts", "always", "boolean", SEARCH, agrees = "any"}

local COMPILE = {
  {"deepcompile", "boolean", default = false}, {"autoep_non_moe", "boolean", default = false},
  {"free_activation", "boolean", default = false}, {"free_activation_threshold", "integer", default = 10 * 2^20},
  {"offload_activation", "boolean", default = false}, {"offload_activation_pin_memory", "boolean", default = true},
  {"offload_opt_states", "boolean", default = false}, {"double_buffer", "boolean", default = true},
  {"symmetric_memory", "boolean", default = false}, {"debug_log", "boolean", default = false},
  {"offload_parameters", "boolean", default = false}, {"sync_before_reduce", "boolean", default = false},
  {"sync_after_reduce", "boolean", default = false}, {"sync_before_allgather", "boolean", default = false},
  {"sync_after_allgather", "boolean", default = false}, {"keep_int_input_tensors", "boolean", default = true},
  {"keep_all_input_tensors", "boolean", default = false}, {"passes", "list", default = {}},
}

-- Returns whether the block has an effect. A size that is neither that of no axis nor a legal one is refused with the block.
local function cuts_tensors(block, context)
  local tp = block.tp or block.tensor_parallel
  local function is_given(size, absent) return type(size) == "number" and size ~= 1 and size ~= absent end
  if context.ranks and (context.ranks.tp or 1) > 1 then return true end
  return is_given(block.autotp_size, 0) or type(tp) == "table" and is_given(tp.tp_size)
end

return {
  {path = "pipeline", fate = "mapped", text = "`pipe.split`, unless the script gives `pipeline`", rows = {
    {"stages", "mapped", "integer", "`pipe.split`: the number of ranks in each pipeline; 1 or \"auto\": no pipeline",
     at_least = 1, auto = none, to = "pipeline.stages"},
    {"partition", "mapped", "string", "`pipe.split.partition`: \"best\" and \"parameters\" (stages of equal size), \"uniform\", "
      .. "\"type:REGEX\"", to = "pipeline.partition"},
    {"seed_layers", "always", "boolean", "a layer's random numbers depend on its position, on any mesh", agrees = "any"},
    {"activation_checkpoint_interval", "mapped", "integer", "`recompute.every`: layers are recomputed, each from its "
      .. "own input, whatever the number (`zt.recompute{every = 1}`); 0: none", at_least = 0},
    {"pipe_partitioned", "mapped", "boolean", CUT_MESSAGES},
    {"grad_partitioned", "mapped", "boolean", CUT_MESSAGES},
    {"use_reentrant", "always", "boolean", "a layer is recomputed by an action of its own, not within autograd", agrees = "any"},
  }},

  {path = "tensor_parallel", fate = "mapped", text = "`tensor`, for the mesh and for `model = function(mesh, experts, cut)`",
   is_on = cuts_tensors, rows = {
     {"autotp_size", "mapped", "integer", "`tensor.size`: the ranks along the mesh's axis tp; 0 or 1: none", at_least = 0},
     {"tp_overlap_comm", "mapped", "boolean", "`tensor.overlap`, the option `overlap` of nn.gpt"},
     {"dtype", "mapped", "string", "must agree with `precision.name`, which fp16.enabled and bf16.enabled choose",
      is_dtype = true},
     {"vocab_parallel_lm_head", "always", "boolean",
      "the head and the embedding are cut as other matrices, and the loss gathers no logits", agrees = {true}},
     {"vocab_parallel_ce_backend", "always", "string", "there is one loss of a cut vocabulary", one_of = {"torch", "liger"},
      agrees = "any"},
     {"preset_model", "refused", "string", LAYERS_SAY},
     {"injection_policy_tuple", "refused", "list", LAYERS_SAY},
     {"replace_with_kernel_inject", "refused", "boolean", "layers have their fused loops already; leave the key out",
      default = false, same = {"kernel_inject"}},
     {"keep_module_on_host", "always", "boolean", "each rank makes or loads its share of a parameter, never a whole model",
      agrees = "any"},
   }},
  {path = "tensor_parallel.tp", fate = "mapped", text = "`tensor`", same = {"tensor_parallel.tensor_parallel"}, rows = {
    {"tp_size", "mapped", "integer", "`tensor.size`, if `autotp_size` is absent; else 1 or the same number", at_least = 1},
    {"tp_grain_size", "always", "integer", "shares are of any size; DeepSpeed's training does not read the key either",
     agrees = "any"},
    {"mpu", "refused", "any", GIVE_MESH}, {"tp_group", "refused", "any", GIVE_MESH},
  }},
  {path = "tensor_parallel.partition_config", fate = "refused", text = LAYERS_SAY,
   inherit = {
     {"tp_size", "integer", default = 1}, {"layer_specs", "list"}, {"embedding_partition_dim", "integer"},
     {"lm_head_patterns", "list"}, {"use_default_specs", "boolean"}, {"strict_mode", "boolean"},
   }},

  {path = "expert_parallel", fate = "mapped", text = "`experts`", is_on = "enabled", rows = EXPERTS},

  {path = "hybrid_engine", fate = "mapped", is_on = "enabled", text = "`generator`, for `engine:generator()`", rows = {
    {"enabled", "mapped", "boolean", "`generator`: the engine has the methods `generator` and `generate`"},
    {"max_out_tokens", "mapped", "integer", "`generator.max_context`: most tokens of a prompt and its answer; the model's `seq` "
      .. "when absent, where DeepSpeed takes 512", at_least = 1},
    {"inference_tp_size", "mapped", "integer", "`generator.tensor`: the ranks that share matrices in generation, at every stage, "
      .. "on a mesh of their own; 1 when absent: each rank computes alone", at_least = 1},
    {"release_inference_cache", "mapped", "boolean", "`generator.release`: after each phase, the generator's memory is freed: "
      .. "keys and values, and its parameters if it has its own"},
    {"pin_parameters", "mapped", "boolean", "`generator.gathered`: true (when absent): once per phase, ranks gather whole "
      .. "parameters; false: in each step, each layer, from the parts that they train", needs_stage = 3},
    {"tp_gather_partition_size", "always", "integer", "`engine:update` of zt.infer moves the weights, and decides how "
      .. "many are under way at once", at_least = 1, agrees = "any"},
    {"enable_cuda_graph", "always", "boolean", "a step is a list of actions that is made once; nothing is captured",
     agrees = "any"},
  }},

  {path = "compile", fate = "refused", text = NO_GRAPHS, inherit = COMPILE},
}
