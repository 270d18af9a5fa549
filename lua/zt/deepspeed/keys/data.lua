--- Keys of data_efficiency, autotuning and quantised weights: refused as blocks.

local STREAM = "the script makes its batches: change sequences and their order where zt.data's streams are read"

-- Returns whether the block is on. In DeepSpeed the default of `enabled` is true.
local function quantises(block) return block.enabled ~= false and next(block) ~= nil end

return {
  {path = "data_efficiency", fate = "refused", text = STREAM, is_on = "enabled",
   inherit = {{"enabled", "boolean", default = false}, {"seed", "integer"}}},
  {path = "data_efficiency.data_sampling", fate = "refused", text = STREAM, is_on = "enabled",
   inherit = {{"enabled", "boolean", default = false}, {"num_epochs", "integer"}, {"num_workers", "integer"},
              {"pin_memory", "boolean"}}},
  {path = "data_efficiency.data_sampling.curriculum_learning", fate = "refused", text = STREAM, is_on = "enabled",
   inherit = {{"enabled", "boolean", default = false}, {"data_cluster_path", "string"}}},
  {path = "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics", fate = "refused", text = STREAM, inherit = {}},
  {path = "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*", fate = "refused", text = STREAM,
   inherit = {
     {"index_to_sample_path", "string"}, {"index_to_metric_path", "string"}, {"difficulty_type", "string"},
     {"clustering_type", "string"}, {"min_difficulty", "number"}, {"max_difficulty", "number"}, {"schedule_type", "string"},
   }},
  {path = "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config", fate = "refused",
   text = STREAM,
   inherit = {{"difficulty", "list"}, {"max_step", "list"}, {"total_curriculum_step", "integer"}, {"difficulty_step", "integer"},
              {"root_degree", "number"}}},
  {path = "data_efficiency.data_sampling.dynamic_batching", fate = "refused", text = STREAM, is_on = "enabled",
   inherit = {
     {"enabled", "boolean", default = false}, {"metrics_path", "string"}, {"lr_scaling_method", "string"},
     {"min_batch_size", "integer"}, {"max_batch_size", "integer"}, {"sequence_picking_order", "string"},
     {"max_tokens", "integer"}, {"verbose", "boolean"},
   }},
  {path = "data_efficiency.data_routing", fate = "refused", text = STREAM, is_on = "enabled",
   inherit = {{"enabled", "boolean", default = false}}},
  {path = "data_efficiency.data_routing.random_ltd", fate = "refused", is_on = "enabled",
   text = "layers see all tokens; a layer written in Lua may drop some",
   inherit = {
     {"enabled", "boolean", default = false}, {"total_layer_num", "integer"}, {"random_ltd_layer_num", "integer"},
     {"random_ltd_layer_id", "list"}, {"model_mask_name", "string"}, {"model_type", "string"}, {"hidden_state_order", "string"},
     {"micro_batch_size", "integer"}, {"global_batch_size", "integer"}, {"sample_idx", "any"}, {"attention_mask", "any"},
   }},
  {path = "data_efficiency.data_routing.random_ltd.random_ltd_schedule", fate = "refused", text = STREAM,
   inherit = {{"min_value", "integer"}, {"max_value", "integer"}, {"schedule_type", "string"}}},
  {path = "data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config", fate = "refused", text = STREAM,
   inherit = {{"require_steps", "integer"}, {"seq_per_step", "integer"}, {"root_degree", "number"}}},
  {path = "data_efficiency.data_routing.random_ltd.layer_token_lr_schedule", fate = "refused", text = STREAM, is_on = "enabled",
   inherit = {{"enabled", "boolean", default = false}, {"total_layer_tokens", "integer"}, {"warmup_type", "string"},
              {"warmup_layer_tokens", "integer"}}},

  {path = "autotuning", fate = "refused", is_on = "enabled",
   text = "memory and traffic are predicted, not tried: `ztoolkit plan exp.lua --ranks N`",
   inherit = {
     {"enabled", "boolean", default = false}, {"start_step", "integer"}, {"end_step", "integer"}, {"fast", "boolean"},
     {"results_dir", "string"}, {"exps_dir", "string"}, {"overwrite", "boolean"}, {"start_profile_step", "integer"},
     {"end_profile_step", "integer"}, {"metric", "string"}, {"metric_path", "string"}, {"tuner_type", "string"},
     {"tuner_early_stopping", "integer"}, {"tuner_num_trials", "integer"}, {"arg_mappings", "table"},
     {"model_info_path", "string"}, {"mp_size", "integer"}, {"max_train_batch_size", "integer"},
     {"min_train_batch_size", "integer"}, {"max_train_micro_batch_size_per_gpu", "integer"},
     {"min_train_micro_batch_size_per_gpu", "integer"}, {"num_tuning_micro_batch_sizes", "integer"},
   }},
  {path = "autotuning.model_info", fate = "refused", text = "part of autotuning",
   inherit = {{"profile", "boolean"}, {"num_params", "integer"}, {"hidden_size", "integer"}, {"num_layers", "integer"}}},

  {path = "weight_quantization", fate = "refused", is_on = quantises,
   text = "weights are trained in the types of `precision`; remove the block",
   inherit = {{"enabled", "boolean"}, {"num_bits", "integer"}, {"q_type", "string"}, {"q_groups", "integer"},
              {"quantized_initialization", "table", default = {}}, {"post_init_quant", "table", default = {}}}},
}
