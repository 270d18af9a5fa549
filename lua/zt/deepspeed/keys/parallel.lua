--- Keys of pipelines, tensor and expert parallelism, and of the hybrid engine, which alternates training and generation.

local NO_GRAPHS = "programs are lists of actions and kernels are fused by hand: there is no graph to compile; remove the block"

local CUT_MESSAGES = "messages between stages that are cut over the ranks of tensor parallelism; leave the key out"
local TENSORS = "tensor parallelism; leave the block out"

local EXPERTS = {
  {"enabled", "boolean", default = false}, {"autoep_size", "integer"}, {"expert_tensor_parallel_size", "integer"},
  {"validate_folding_routing", "boolean"}, {"async_split_plan", "boolean"}, {"preset_model", "string"},
  {"moe_layer_pattern", "string"}, {"expert_pattern", "string"}, {"router_pattern", "string"}, {"use_grouped_mm", "boolean"},
  {"disable_triton_grouped_mm", "boolean"}, {"route_norm", "boolean"}, {"route_scale", "number"}, {"score_apply", "string"},
  {"combine_impl", "string"}, {"row_weighting_impl", "string"}, {"gate_up_impl", "string"}, {"comm_backend", "string"},
  {"comm_num_sm", "integer"}, {"comm_qp_margin", "integer"}, {"comm_max_tokens_per_rank", "integer"},
  {"num_expert_groups", "integer"}, {"num_limited_groups", "integer"}, {"score_func", "string"}, {"top_k", "integer|string"},
  {"load_balance_coeff", "number"}, {"routed_scaling_factor", "number|string"}, {"expert_w1", "string"}, {"expert_w2", "string"},
  {"expert_w3", "string"}, {"num_experts_attr", "string"}, {"top_k_attr", "string"}, {"has_shared_experts", "boolean"},
  {"shared_experts_pattern", "string"}, {"shared_experts_gate_pattern", "string"}, {"expert_activation", "string"},
}

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
     at_least = 1, auto = function() return nil end, to = "pipeline.stages"},
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

  {path = "expert_parallel", fate = "not_yet", text = "expert parallelism; leave the block out", is_on = "enabled",
   inherit = EXPERTS},

  {path = "hybrid_engine", fate = "not_yet", is_on = "enabled",
   text = "alternating training and generation; until then zt.generate runs on the trainer's model",
   inherit = {
     {"enabled", "boolean", default = false}, {"max_out_tokens", "integer"}, {"inference_tp_size", "integer"},
     {"release_inference_cache", "boolean"}, {"pin_parameters", "boolean"}, {"tp_gather_partition_size", "integer"},
     {"enable_cuda_graph", "boolean"},
   }},

  {path = "compile", fate = "refused", text = NO_GRAPHS, inherit = COMPILE},
}
