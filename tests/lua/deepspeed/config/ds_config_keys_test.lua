-- Tests zt.deepspeed.config: all keys of DeepSpeed 0.19.8 are known, and docs/deepspeed_keys.md equals the text that the code
-- writes.
local lu = require "luaunit"
local zt = require "zt"
local ds = require "zt.deepspeed.config"
local keys = require "zt.deepspeed.keys"

-- The keys by block, from the source of DeepSpeed 0.19.8: the fields of its configuration classes (runtime/config.py,
-- zero/config.py, offload_config.py, precision_config.py, monitor/config.py, ...) with their aliases, the names in its
-- constants.py files that are keys (not values or names of states), and the parameters of its optimizers and schedules.
local SCHEMA = {
  [""] = [[
    train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps managed_gradient_accumulation steps_per_print
    optimizer scheduler zero_allow_untested_optimizer zero_force_ds_cpu_optimizer bf16 bfloat16 fp16 torch_autocast
    gradient_clipping communication_data_type seq_parallel_communication_data_type prescale_gradients gradient_predivide_factor
    gradient_allreduce_op disable_allgather dump_state disable_python_gc vocabulary_size wall_clock_breakdown memory_breakdown
    checkpoint data_types dataloader_drop_last use_data_before_expert_parallelism log_level zero_optimization allgather_size
    activation_checkpointing comms_logger tensorboard wandb csv_monitor comet flops_profiler autotuning hybrid_engine pipeline
    data_efficiency aio datastates_ckpt weight_quantization compile timers tensor_parallel expert_parallel
    sequence_parallel_size data_parallel_size nebula compression_training amp quantize_training sparse_gradients eigenvalue
    sparse_attention elasticity graph_harvesting curriculum_learning progressive_layer_drop]],
  ["activation_checkpointing"] = [[
    partition_activations number_checkpoints contiguous_memory_optimization synchronize_checkpoint_boundary profile
    cpu_checkpointing]],
  ["aio"] = [[block_size queue_depth intra_op_parallelism single_submit overlap_events use_gds]],
  ["autotuning"] = [[
    enabled start_step end_step fast results_dir exps_dir overwrite start_profile_step end_profile_step metric_path tuner_type
    tuner_early_stopping tuner_num_trials arg_mappings max_train_batch_size min_train_batch_size
    max_train_micro_batch_size_per_gpu min_train_micro_batch_size_per_gpu num_tuning_micro_batch_sizes mp_size metric
    model_info_path model_info]],
  ["autotuning.model_info"] = [[profile num_params hidden_size num_layers]],
  ["bf16"] = [[
    enabled immediate_grad_update check_grad_overflow bf16_master_weights_and_grads bf16_optimizer_states check_overflow]],
  ["checkpoint"] = [[tag_validation load_universal use_node_local_storage parallel_write checkpoint_serialization writer]],
  ["checkpoint.parallel_write"] = [[pipeline_stage]],
  ["checkpoint.writer"] = [[type io_buffer_size io_buffer_double io_multiplier show_statistics data_parallel decoupled]],
  ["comet"] = [[enabled samples_log_interval project workspace api_key experiment_name experiment_key online mode]],
  ["comms_logger"] = [[enabled prof_all prof_ops verbose debug]],
  ["compile"] = [[
    deepcompile autoep_non_moe free_activation free_activation_threshold offload_activation offload_activation_pin_memory
    offload_opt_states double_buffer symmetric_memory debug_log offload_parameters sync_before_reduce sync_after_reduce
    sync_before_allgather sync_after_allgather keep_int_input_tensors keep_all_input_tensors passes]],
  ["csv_monitor"] = [[enabled output_path job_name]],
  ["data_efficiency"] = [[enabled seed data_sampling data_routing]],
  ["data_efficiency.data_routing"] = [[enabled random_ltd]],
  ["data_efficiency.data_routing.random_ltd"] = [[
    enabled model_mask_name model_type micro_batch_size global_batch_size sample_idx attention_mask hidden_state_order
    random_ltd_layer_num random_ltd_layer_id total_layer_num random_ltd_schedule layer_token_lr_schedule]],
  ["data_efficiency.data_routing.random_ltd.layer_token_lr_schedule"] = [[
    enabled total_layer_tokens warmup_type warmup_layer_tokens]],
  ["data_efficiency.data_routing.random_ltd.random_ltd_schedule"] = [[max_value min_value schedule_config schedule_type]],
  ["data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config"] = [[seq_per_step require_steps]],
  ["data_efficiency.data_sampling"] = [[enabled num_epochs num_workers pin_memory curriculum_learning dynamic_batching]],
  ["data_efficiency.data_sampling.curriculum_learning"] = [[enabled data_cluster_path curriculum_metrics]],
  ["data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*"] = [[
    index_to_sample_path index_to_metric_path clustering_type difficulty_type min_difficulty max_difficulty schedule_type
    schedule_config]],
  ["data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config"] = [[
    difficulty max_step total_curriculum_step difficulty_step root_degree]],
  ["data_efficiency.data_sampling.dynamic_batching"] = [[
    enabled metrics_path lr_scaling_method min_batch_size max_batch_size sequence_picking_order max_tokens verbose]],
  ["data_types"] = [[grad_accum_dtype param_dtype buffer_dtype keep_in_fp32_modules]],
  ["expert_parallel"] = [[
    enabled autoep_size expert_tensor_parallel_size validate_folding_routing async_split_plan preset_model moe_layer_pattern
    expert_pattern router_pattern use_grouped_mm disable_triton_grouped_mm route_norm route_scale score_apply combine_impl
    row_weighting_impl gate_up_impl comm_backend comm_num_sm comm_qp_margin comm_max_tokens_per_rank num_expert_groups
    num_limited_groups score_func top_k load_balance_coeff routed_scaling_factor expert_w1 expert_w2 expert_w3 num_experts_attr
    top_k_attr has_shared_experts shared_experts_pattern shared_experts_gate_pattern expert_activation]],
  ["flops_profiler"] = [[enabled recompute_fwd_factor profile_step module_depth top_modules detailed output_file]],
  ["fp16"] = [[
    enabled auto_cast loss_scale initial_scale_power loss_scale_window hysteresis consecutive_hysteresis min_loss_scale
    fp16_master_weights_and_grads]],
  ["hybrid_engine"] = [[
    enabled max_out_tokens inference_tp_size release_inference_cache pin_parameters tp_gather_partition_size enable_cuda_graph]],
  ["optimizer"] = [[type params legacy_fusion]],
  ["optimizer.params"] = [[
    max_grad_norm torch_adam adam_w_mode fp32_optimizer_states foreach lr betas eps weight_decay bias_correction amsgrad
    set_grad_none eps_inside_sqrt max_coeff min_coeff momentum ns_method muon_lr adam_lr]],
  ["pipeline"] = [[
    stages partition seed_layers activation_checkpoint_interval pipe_partitioned grad_partitioned use_reentrant]],
  ["scheduler"] = [[type params]],
  ["scheduler.params"] = [[
    lr_range_test_min_lr lr_range_test_step_rate lr_range_test_step_size lr_range_test_staircase cycle_first_step_size
    cycle_first_stair_count cycle_second_step_size cycle_second_stair_count decay_step_size cycle_min_lr cycle_max_lr
    decay_lr_rate cycle_momentum cycle_min_mom cycle_max_mom decay_mom_rate warmup_min_lr warmup_max_lr warmup_num_steps
    warmup_type warmup_min_ratio cos_min_ratio total_num_steps last_batch_iteration]],
  ["tensor_parallel"] = [[
    dtype autotp_size tp_overlap_comm vocab_parallel_lm_head vocab_parallel_ce_backend tensor_parallel tp injection_policy_tuple
    partition_config preset_model keep_module_on_host replace_with_kernel_inject kernel_inject]],
  ["tensor_parallel.partition_config"] = [[
    tp_size layer_specs embedding_partition_dim lm_head_patterns use_default_specs strict_mode]],
  ["tensor_parallel.tp"] = [[tp_size tp_grain_size mpu tp_group]],
  ["tensorboard"] = [[enabled output_path job_name]],
  ["timers"] = [[throughput]],
  ["timers.throughput"] = [[enabled synchronized]],
  ["torch_autocast"] = [[enabled dtype lower_precision_safe_modules]],
  ["wandb"] = [[enabled group team project]],
  ["weight_quantization"] = [[enabled quantized_initialization post_init_quant num_bits q_type q_groups]],
  ["zero_optimization"] = [[
    stage contiguous_gradients reduce_scatter reduce_bucket_size use_multi_rank_bucket_allreduce allgather_partitions
    allgather_bucket_size overlap_comm compute_grad_norm load_from_fp32_weights elastic_checkpoint offload_param
    offload_optimizer zenflow sub_group_size cpu_offload_param cpu_offload_use_pin_memory cpu_offload prefetch_bucket_size
    stage3_prefetch_bucket_size param_persistence_threshold stage3_param_persistence_threshold model_persistence_threshold
    stage3_model_persistence_threshold max_live_parameters stage3_max_live_parameters max_reuse_distance
    stage3_max_reuse_distance gather_16bit_weights_on_model_save stage3_gather_16bit_weights_on_model_save
    module_granularity_threshold stage3_module_granularity_threshold use_all_reduce_for_fetch_params
    stage3_use_all_reduce_for_fetch_params allgather_sequential stage3_allgather_sequential
    stage3_gather_fp16_weights_on_model_save ignore_unused_parameters legacy_stage1 round_robin_gradients parameter_alignment
    zero_hpz_partition_size zero_quantized_weights zero_quantized_nontrainable_weights zero_quantized_gradients
    memory_efficient_linear pipeline_loading_checkpoint override_module_apply log_trace_cache_warnings enable_sanity_checks
    save_muon_momentum_buffer_in_memory leaf_module mics_shard_size mics_hierarchical_params_gather zeropp_loco_param]],
  ["zero_optimization.leaf_module"] = [[classes names name_suffixes]],
  ["zero_optimization.offload_optimizer"] = [[
    device nvme_path buffer_count pin_memory pipeline_read pipeline_write fast_init ratio super_offload cpuadam_cores_perc]],
  ["zero_optimization.offload_param"] = [[device nvme_path buffer_count buffer_size max_in_cpu pin_memory]],
  ["zero_optimization.zenflow"] = [[
    topk_ratio select_strategy select_interval update_interval overlap_step offload auto_ratio full_warm_up_rounds
    pt_reserved_cores_perc steps_per_epoch]],
}

local function words(text)
  local out = {}
  for word in text:gmatch "%S+" do out[#out + 1] = word end
  return out
end

local TestKeys = {}

function TestKeys:test_every_key_of_deepspeed_is_known()
  local known, count = {}, 0
  for _, key in ipairs(ds.keys()) do
    lu.assertNil(known[key.path], key.path)
    known[key.path] = key
  end
  for path, names in pairs(SCHEMA) do
    for _, name in ipairs(words(names)) do
      local full = path == "" and name or path .. "." .. name
      lu.assertNotNil(known[full], full)
      count = count + 1
    end
  end
  lu.assertTrue(count > 400)
end

function TestKeys:test_every_key_has_a_fate_and_says_what_becomes_of_it()
  local counts = {mapped = 0, always = 0, refused = 0, not_yet = 0, noted = 0}
  for _, key in ipairs(ds.keys()) do
    counts[key.fate] = counts[key.fate] + 1
    lu.assertTrue(#key.text >= 4, key.path)
  end
  counts.all = #ds.keys()
  lu.assertEquals(ds.counts(), counts)
end

function TestKeys:test_the_table_names_every_key_once()
  local count, lines = {}, 0
  for line in ds.table():gmatch "[^\n]+" do
    local names, parent = line:match "^| (`.-`) | %a+ ?%a* | .+ |$", nil
    local is_block = names and names:find " with " ~= nil
    for name in (names or ""):gmatch "`([^`]+)`" do -- the first key has its path, the others only their names
      local path = parent and parent .. name or name
      parent = parent or is_block and name .. "." or name:match "^(.*%.)" or ""
      count[path] = (count[path] or 0) + 1
    end
    lines = lines + (names and 0 or 1)
  end
  lu.assertEquals(lines, 2) -- the two lines of the table's head
  for _, key in ipairs(ds.keys()) do lu.assertEquals(count[key.path], 1, key.path) end
end

function TestKeys:test_the_document_is_the_codes()
  local folder = arg[0]:match "^(.*)tests/lua/" or ""
  local document = zt.fs.read(folder .. "docs/deepspeed_keys.md")
  lu.assertTrue(document == keys.document(), "docs/deepspeed_keys.md is out of date: run scripts/dev/deepspeed_keys.lua")
  lu.assertStrContains(document, ds.table())
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestKeys", TestKeys}})
