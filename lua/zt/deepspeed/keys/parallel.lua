--- Keys of pipelines, tensor and expert parallelism, and of the hybrid engine, which alternates training and generation.

local NO_GRAPHS = "programs are lists of actions and kernels are fused by hand: there is no graph to compile; remove the block"

local CUT_MESSAGES = "messages between stages that are cut over the ranks of tensor parallelism; leave the key out"
local TENSORS = "tensor parallelism; leave the block out"

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
  {"expert_tensor_parallel_size", "not_yet", "integer", "tensor parallelism within an expert; leave the key out", default = 1},
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

local function cuts_tensors(block) return type(block.autotp_size) == "number" and block.autotp_size > 1 end

return {
  {path = "pipeline", fate = "mapped", text = "`pipe.split`, unless the script gives `pipeline`", rows = {
    {"stages", "mapped", "integer", "`pipe.split`: the number of ranks in each pipeline; 1 or \"auto\": no pipeline",
     at_least = 1, auto = none, to = "pipeline.stages"},
    {"partition", "mapped", "string", "`pipe.split.partition`: \"best\" and \"parameters\" (stages of equal size), \"uniform\", "
      .. "\"type:REGEX\"", to = "pipeline.partition"},
    {"seed_layers", "always", "boolean", "a layer's random numbers depend on its position, on any mesh", agrees = "any"},
    {"activation_checkpoint_interval", "mapped", "integer", "`recompute.every`: layers are recomputed, each from its "
      .. "own input, whatever the number (`zt.recompute{every = 1}`); 0: none", at_least = 0},
    {"pipe_partitioned", "not_yet", "boolean", CUT_MESSAGES, default = true},
    {"grad_partitioned", "not_yet", "boolean", CUT_MESSAGES, default = true},
    {"use_reentrant", "always", "boolean", "a layer is recomputed by an action of its own, not within autograd", agrees = "any"},
  }},

  {path = "tensor_parallel", fate = "not_yet", text = TENSORS, is_on = cuts_tensors,
   inherit = {
     {"autotp_size", "integer", default = 0, off = {1}, at_least = 0}, {"dtype", "string"}, {"tp_overlap_comm", "boolean"},
     {"vocab_parallel_lm_head", "boolean"}, {"vocab_parallel_ce_backend", "string"}, {"injection_policy_tuple", "list"},
     {"preset_model", "string"}, {"keep_module_on_host", "boolean"},
     {"replace_with_kernel_inject", "boolean", same = {"kernel_inject"}},
   }},
  {path = "tensor_parallel.tp", fate = "not_yet", text = TENSORS, same = {"tensor_parallel.tensor_parallel"},
   inherit = {{"tp_size", "integer", default = 1}, {"tp_grain_size", "integer", default = 1}, {"mpu", "any"},
              {"tp_group", "any"}}},
  {path = "tensor_parallel.partition_config", fate = "not_yet", text = TENSORS,
   inherit = {
     {"tp_size", "integer", default = 1}, {"layer_specs", "list"}, {"embedding_partition_dim", "integer"},
     {"lm_head_patterns", "list"}, {"use_default_specs", "boolean"}, {"strict_mode", "boolean"},
   }},

  {path = "expert_parallel", fate = "mapped", text = "`experts`", is_on = "enabled", rows = EXPERTS},

  {path = "hybrid_engine", fate = "not_yet", is_on = "enabled",
   text = "alternating training and generation; until then zt.generate runs on the trainer's model",
   inherit = {
     {"enabled", "boolean", default = false}, {"max_out_tokens", "integer"}, {"inference_tp_size", "integer"},
     {"release_inference_cache", "boolean"}, {"pin_parameters", "boolean"}, {"tp_gather_partition_size", "integer"},
     {"enable_cuda_graph", "boolean"},
   }},

  {path = "compile", fate = "refused", text = NO_GRAPHS, inherit = COMPILE},
}
