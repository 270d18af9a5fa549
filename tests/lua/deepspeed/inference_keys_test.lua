-- Tests zt.deepspeed.inference.config: all keys of deepspeed.init_inference and of FastGen of DeepSpeed 0.19.8 are known, and
-- each has the effect of its fate.
local lu = require "luaunit"
local zt = require "zt"
local config = require "zt.deepspeed.inference.config"
local ds = require "zt.deepspeed.config"
local keys = require "zt.deepspeed.inference.keys"
local ragged_keys = require "zt.deepspeed.inference.ragged_keys"

-- By block: the class of DeepSpeed, and its fields with their aliases.
local SCHEMA = {
  [""] = {"DeepSpeedInferenceConfig", [[
    replace_with_kernel_inject kernel_inject dtype tensor_parallel tp enable_cuda_graph use_triton triton_autotune zero
    triangular_masking tm moe keep_module_on_host quant checkpoint base_dir set_empty_params save_mp_checkpoint_path
    checkpoint_config ckpt_config return_tuple training_mp_size replace_method injection_policy injection_dict
    injection_policy_tuple config args max_out_tokens max_tokens min_out_tokens min_tokens transposed_mode mp_size mpu ep_size
    ep_group expert_group ep_mp_group expert_mp_group moe_experts moe_type]]},
  tensor_parallel = {"DeepSpeedTPConfig", "enabled tp_size tp_grain_size mpu tp_group"},
  moe = {"DeepSpeedMoEConfig", "enabled ep_size moe_experts num_experts type ep_mp_group ep_group expert_group"},
  quant = {"QuantizationConfig", "enabled activation weight qkv"},
  ["quant.weight"] = {"WeightQuantConfig", "enabled num_bits q_type q_groups quantized_initialization post_init_quant"},
  ["quant.activation"] = {"ActivationQuantConfig", "enabled num_bits q_type q_groups"},
  ["quant.qkv"] = {"QKVQuantConfig", "enabled"},
  checkpoint_config = {"InferenceCheckpointConfig", "checkpoint_dir save_mp_checkpoint_path base_dir"},
}
local ZERO = {
  zero = {"DeepSpeedZeroConfig", [[
    stage contiguous_gradients reduce_scatter reduce_bucket_size use_multi_rank_bucket_allreduce allgather_partitions
    allgather_bucket_size overlap_comm compute_grad_norm load_from_fp32_weights elastic_checkpoint offload_param
    offload_optimizer zenflow sub_group_size cpu_offload_param cpu_offload_use_pin_memory cpu_offload prefetch_bucket_size
    stage3_prefetch_bucket_size param_persistence_threshold stage3_param_persistence_threshold model_persistence_threshold
    max_live_parameters stage3_model_persistence_threshold stage3_max_live_parameters max_reuse_distance
    stage3_max_reuse_distance gather_16bit_weights_on_model_save stage3_gather_16bit_weights_on_model_save
    module_granularity_threshold stage3_module_granularity_threshold use_all_reduce_for_fetch_params
    stage3_use_all_reduce_for_fetch_params allgather_sequential stage3_allgather_sequential
    stage3_gather_fp16_weights_on_model_save ignore_unused_parameters legacy_stage1 round_robin_gradients parameter_alignment
    zero_hpz_partition_size zero_quantized_weights zero_quantized_nontrainable_weights zero_quantized_gradients
    memory_efficient_linear pipeline_loading_checkpoint override_module_apply log_trace_cache_warnings enable_sanity_checks
    save_muon_momentum_buffer_in_memory leaf_module]]},
  ["zero.offload_param"] = {"DeepSpeedZeroOffloadParamConfig",
                            "device nvme_path buffer_count buffer_size max_in_cpu pin_memory"},
  ["zero.offload_optimizer"] = {"DeepSpeedZeroOffloadOptimizerConfig", [[
    device nvme_path buffer_count pin_memory pipeline_read pipeline_write fast_init ratio super_offload cpuadam_cores_perc]]},
}
local RAGGED = {
  [""] = {"RaggedInferenceEngineConfig", "tensor_parallel tp state_manager manager quantization"},
  tensor_parallel = {"DeepSpeedTPConfig", "tp_size"},
  state_manager = {"DSStateManagerConfig", [[
    max_tracked_sequences max_ragged_batch_size max_ragged_sequence_count max_context memory_config offload]]},
  ["state_manager.memory_config"] = {"MemoryConfig", "mode size"},
  quantization = {"QuantizationConfig", "quantization_mode"},
}

local function set_of(text)
  local out = {}
  for word in text:gmatch "%S+" do out[word] = true end
  return out
end

local TestKeys = {}

-- Keys that are known, too.
local OURS = {[""] = {weight_quantization = true}}

function TestKeys:test_the_keys_are_those_of_deepspeed()
  for schema, blocks in pairs {[keys] = SCHEMA, [ragged_keys] = RAGGED} do
    for path, of in pairs(blocks) do
      local known, wanted = {}, set_of(of[2])
      for _, entry in ipairs(schema.blocks[path].entries) do known[entry.key] = true end
      for name in pairs(schema == keys and OURS[path] or {}) do wanted[name] = true end
      lu.assertEquals(known, wanted, path)
    end
  end
  for path, of in pairs(ZERO) do -- some keys of earlier versions of DeepSpeed are known, too
    for name in pairs(set_of(of[2])) do lu.assertNotNil(keys.blocks[path].by_name[name], path .. "." .. name) end
  end
end

-- Returns the fields of the classes in a file of DeepSpeed by class, as sets of names and aliases.
local function classes_of(text)
  local classes, fields, is_open = {}, nil, false
  for line in (text .. "\n"):gmatch "(.-)\n" do
    local class, base = line:match "^class (%w+)%((.-)%)"
    if class then
      fields = {}
      for name in pairs(classes[base] or {}) do fields[name] = true end
      classes[class] = fields
    end
    local name = line:match "^    (%l[%w_]*): " -- not NOTE:, within a docstring
    if name and fields then
      fields[name], is_open = true, true
    elseif line:match "^    %S" and not line:match "^    %)" then
      is_open = false
    end
    local alias = is_open and line:match 'alias="([%w_]+)"'
    if alias then fields[alias] = true end
  end
  return classes
end

function TestKeys:test_the_list_is_that_of_the_package()
  local root = arg[0]:match "^(.*)tests/lua/" or ""
  local pipe = io.popen("ls -d " .. root .. ".venv-oracle/lib/python3*/site-packages/deepspeed 2>/dev/null")
  local package_path = pipe:read "*l"
  pipe:close()
  if not package_path then return end
  local function read(name) return zt.fs.read(package_path .. "/" .. name) end
  local files = {
    [read "inference/config.py"] = SCHEMA,
    [read "inference/v2/config_v2.py" .. read "inference/v2/ragged/manager_configs.py"] = RAGGED,
    [read "runtime/zero/config.py" .. read "runtime/zero/offload_config.py"] = ZERO,
  }
  for text, blocks in pairs(files) do
    local classes = classes_of(text)
    for path, of in pairs(blocks) do lu.assertEquals(set_of(of[2]), classes[of[1]], path) end
  end
end

-- Fates -----------------------------------------------------------------------------------------------------------------------

-- By key: a value, the field of the result that it gives, that field's value, the keys that it needs, and another value if it may
-- not be absent.
local INT8, STAGE_3, NVME = {dtype = "int8"}, {zero = {stage = 3}}, {zero = {stage = 3, offload_param = {device = "nvme",
                                                                                                   nvme_path = "/f"}}}
local GROUP = {num_bits = 4, group_size = 32, group_dim = 1, symmetric = true}
local EXAMPLES = {
  dtype = {"torch.float16", "dtype", "fp16"}, max_out_tokens = {9, "max_context", 9}, min_out_tokens = {9, "least_context", 9},
  checkpoint = {"a", "folder", "a"}, base_dir = {"b/", "folder", "b/a", {checkpoint = "a"}}, mp_size = {2, "tensor", 2},
  ep_size = {2, "experts", 2}, moe_experts = {{4}, "expert_counts.1", 4}, ["moe.moe_experts"] = {{4, 4}, "expert_counts.2", 4},
  ["tensor_parallel.enabled"] = {false, "tensor", nil, {tensor_parallel = {tp_size = 2}, tp = {tp_size = 2}}},
  ["tensor_parallel.tp_size"] = {2, "tensor", 2}, ["moe.enabled"] = {false, "experts", nil, {moe = {ep_size = 2}}},
  ["moe.ep_size"] = {2, "experts", 2}, ["quant.enabled"] = {true, "weights.format", "int8"},
  ["quant.weight.enabled"] = {true, "weights.format", "int8"}, ["quant.weight.num_bits"] = {4, "weights.format", "int4"},
  ["quant.weight.q_type"] = {"asymmetric", "weights.symmetric", nil, {quant = {weight = {num_bits = 4}},
                                                                     weight_quantization = {num_bits = 4}}},
  ["quant.weight.quantized_initialization"] = {GROUP, "weights.group", 32},
  ["quant.weight.post_init_quant"] = {{["mlp.up"] = GROUP}, "weights.keep.1", "^(?!.*(?:mlp\\.up))"},
  ["quant.activation.enabled"] = {true, "weights.activations", "int8", INT8},
  ["quant.activation.num_bits"] = {8, "weights.activations", "int8", INT8},
  ["quant.qkv.enabled"] = {false, "weights.keep.1", "\\.attention\\.qkv\\.", INT8},
  ["checkpoint_config.checkpoint_dir"] = {"a", "folder", "a"},
  ["checkpoint_config.base_dir"] = {"b", "folder", "b/a", {checkpoint = "a"}},
  ["zero.stage"] = {3, "zero", {}}, ["zero.overlap_comm"] = {true, "zero.overlap", true, STAGE_3},
  ["zero.stage3_prefetch_bucket_size"] = {7, "zero.prefetch_elements", 7, STAGE_3},
  ["zero.stage3_param_persistence_threshold"] = {7, "zero.persist_below", 7, STAGE_3},
  ["zero.stage3_model_persistence_threshold"] = {7, "zero.persist_total", 7, STAGE_3},
  ["zero.stage3_max_live_parameters"] = {7, "zero.max_live", 7, STAGE_3},
  ["zero.stage3_max_reuse_distance"] = {7, "zero.max_reuse_distance", 7, STAGE_3},
  ["zero.cpu_offload_param"] = {true, "zero.offload.parameters", "host", STAGE_3},
  ["zero.offload_param.device"] = {"cpu", "zero.offload.parameters", "host", STAGE_3},
  ["zero.offload_param.nvme_path"] = {"/x", "zero.offload.folder", "/x", NVME, "/f"},
  ["zero.offload_param.max_in_cpu"] = {7, "zero.offload.elements", 7, NVME},
  ["state_manager.max_ragged_batch_size"] = {96, "token_budget", 96},
  ["state_manager.max_ragged_sequence_count"] = {9, "max_sequences", 9},
  ["state_manager.max_context"] = {9, "max_context", 9},
}
-- Mapped keys that are only compared: a value that is refused, and the keys that it needs.
local COMPARED = {
  moe_type = {"residual"}, ["moe.type"] = {"residual"},
  ["state_manager.max_tracked_sequences"] = {8, {state_manager = {max_ragged_sequence_count = 9},
                                                 manager = {max_ragged_sequence_count = 9}}},
}

local function copy(value)
  if type(value) ~= "table" or value == ds.null then return value end
  local out = {}
  for key, each in pairs(value) do out[key] = copy(each) end
  return out
end

-- Returns the needed keys, and `value` at the path of the entry. Of the needed blocks, those that are other names stay away.
local function configuration(entry, value, needs)
  local out, first = {}, entry.path:match "^[^.]+"
  for key, each in pairs(needs or {}) do
    local is_block = type(each) == "table"
    if not is_block or key == first or key ~= entry.main:match "^[^.]+" and key == "zero" then out[key] = copy(each) end
  end
  local at = out
  for name in entry.path:gmatch "([^.]+)%." do
    at[name] = at[name] or {}
    at = at[name]
  end
  at[entry.path:match "[^.]+$"] = value
  return out
end

local function field(result, path)
  for name in path:gmatch "[^.]+" do result = type(result) == "table" and result[tonumber(name) or name] or nil end
  return result
end

local function read(schema, given) return config.read(schema == ragged_keys and {inference_v2 = given} or given, {}) end

local function each_entry(fate, fn)
  local count = 0
  for _, schema in ipairs {keys, ragged_keys} do
    for _, entry in ipairs(schema.list) do
      if entry.fate == fate and not entry.block then
        fn(schema, entry)
        count = count + 1
      end
    end
  end
  return count
end

local TestFates = {}

function TestFates:test_every_mapped_key_gives_its_option()
  lu.assertTrue(each_entry("mapped", function(schema, entry)
    local example, compared = EXAMPLES[entry.main], COMPARED[entry.main]
    if compared then
      lu.assertError(read, schema, configuration(entry, compared[1], compared[2]))
      return
    end
    lu.assertNotNil(example, entry.main)
    local got = field(read(schema, configuration(entry, example[1], example[4])), example[2])
    lu.assertEquals(got, example[3], entry.path)
    local without = field(read(schema, configuration(entry, example[5], example[4])), example[2])
    lu.assertNotEquals(got, without, entry.path)
  end) > 60)
end

local VALUES = {
  boolean = {true, false}, integer = {1, 2, 4096}, number = {0.5, 1}, list = {{"x"}}, table = {{x = 1}}, any = {{x = 1}},
  string = {"x", "reserve", "auto", "symmetric"},
}

local function candidates(entry)
  local out = {entry.row.default}
  for name in entry.type:gmatch "%a+" do
    for _, value in ipairs(VALUES[name]) do out[#out + 1] = value end
  end
  return out
end

local function text_of(result)
  result.notes = nil
  return zt.json.encode(result)
end

function TestFates:test_every_key_that_is_always_so_changes_nothing()
  lu.assertTrue(each_entry("always", function(schema, entry)
    local without, accepted = text_of(read(schema, configuration(entry, nil))), 0
    for _, value in ipairs(candidates(entry)) do
      local is_done, result = pcall(read, schema, configuration(entry, value))
      if is_done then
        accepted = accepted + 1
        lu.assertEquals(text_of(result), without, entry.path)
      end
    end
    lu.assertTrue(accepted > 0, entry.path)
  end) > 70)
end

function TestFates:test_every_refused_key_is_refused_and_off_by_null()
  lu.assertTrue(each_entry("refused", function(schema, entry)
    local refused = 0
    for _, value in ipairs(candidates(entry)) do
      local is_done, message = pcall(read, schema, configuration(entry, value))
      if not is_done and message:find(" is refused: ", 1, true) and message:find(entry.path .. " = ", 1, true) then
        refused = refused + 1
      end
    end
    lu.assertTrue(refused > 0, entry.path)
    read(schema, configuration(entry, ds.null))
  end) > 25)
end

function TestFates:test_a_wrong_type_is_an_error_with_the_path()
  for _, fate in ipairs {"mapped", "always", "refused"} do
    each_entry(fate, function(schema, entry)
      if entry.type == "any" then return end
      lu.assertErrorMsgContains(entry.path .. " must be ", read, schema, configuration(entry, function() end))
    end)
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestKeys", TestKeys}, {"TestFates", TestFates}})
