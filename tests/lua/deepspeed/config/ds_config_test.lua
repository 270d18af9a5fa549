-- Tests zt.deepspeed.config: how configurations are read, and which are refused. ds_config_keys_test.lua tests all keys.
local lu = require "luaunit"
local zt = require "zt"
local ds = require "zt.deepspeed.config"

local WORLD = 4

local function read(source, context)
  local full = {world = WORLD}
  for key, value in pairs(context or {}) do full[key] = value end
  return ds.read(source, full)
end

-- Reads a configuration with a batch size and `more`.
local function with(more, context) return read("{train_batch_size: 8, " .. more .. "}", context) end

local function assert_refused(expected, source, context) lu.assertErrorMsgContains(expected, read, source, context) end

local function reason_of(config, key)
  for _, note in ipairs(config.notes) do
    if note.key == key then return note.reason, note.fate end
  end
end

local TestSources = {}

function TestSources:test_a_file_a_text_and_a_table_are_read_alike()
  local text = "# comment\n{train_batch_size: 16, 'x'}"
  assert_refused("json:2:24: a key or '}' is expected", text)
  text = text:gsub(", 'x'", ",")
  local path = os.tmpname()
  zt.write_file(path, text)
  local expected = read{train_batch_size = 16}
  lu.assertEquals(read(text), expected)
  lu.assertEquals(read(path), expected)
  zt.write_file(path, "[1]")
  assert_refused(path .. ": a configuration is a table in braces { }, got a list", path)
  zt.write_file(path, "{a}")
  assert_refused(path .. ":1:3: ':' is expected", path)
  os.remove(path)
  assert_refused("cannot read " .. path, path)
  assert_refused("a DeepSpeed configuration is a file's name, JSON text or a table, got an integer", 3)
end

function TestSources:test_the_callers_table_is_left_alone()
  local config = {train_batch_size = 8, zero_optimization = true, optimizer = {type = "Adam", params = {adam_w_mode = false}}}
  read(config)
  lu.assertEquals(config.zero_optimization, true)
  lu.assertEquals(config.optimizer, {type = "Adam", params = {adam_w_mode = false}})
end

function TestSources:test_the_context_is_checked()
  lu.assertErrorMsgContains("deepspeed.config.read: option 'world' is missing", ds.read, "{train_batch_size: 8}", {})
  assert_refused("deepspeed.config.read.precision must be one of", "{train_batch_size: 8}", {precision = "fp8"})
end

function TestSources:test_errors_point_to_this_file()
  local _, message = pcall(read, "{stage: 1}")
  lu.assertStrContains(message, "ds_config_test.lua:")
end

local TestBatch = {}

-- DeepSpeed 0.19.8's rule on 4 ranks: the given keys and the resulting {global, micro, accumulation}.
function TestBatch:test_every_combination()
  for given, expected in pairs {
    ["train_batch_size: 48, train_micro_batch_size_per_gpu: 3, gradient_accumulation_steps: 4"] = {48, 3, 4},
    ["train_batch_size: 48, train_micro_batch_size_per_gpu: 3"] = {48, 3, 4},
    ["train_batch_size: 48, gradient_accumulation_steps: 4"] = {48, 3, 4},
    ["train_micro_batch_size_per_gpu: 3, gradient_accumulation_steps: 4"] = {48, 3, 4},
    ["train_batch_size: 48"] = {48, 12, 1},
    ["train_micro_batch_size_per_gpu: 3"] = {12, 3, 1},
    ['train_batch_size: "auto", train_micro_batch_size_per_gpu: 3, gradient_accumulation_steps: "auto"'] = {12, 3, 1},
    ['train_batch_size: 48, train_micro_batch_size_per_gpu: null, gradient_accumulation_steps: "auto"'] = {48, 12, 1},
  } do
    local batch = read("{" .. given .. "}").batch
    lu.assertEquals({batch.global, batch.micro, batch.accumulation}, expected, given)
  end
end

function TestBatch:test_what_does_not_divide_shows_the_arithmetic()
  for given, expected in pairs {
    ["train_batch_size: 33, train_micro_batch_size_per_gpu: 4, gradient_accumulation_steps: 2"] =
      "train_batch_size = 33, but train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks = 4 x 2 x 4 = 32",
    ["train_batch_size: 30, train_micro_batch_size_per_gpu: 4"] =
      "train_batch_size = 30 gives no whole gradient_accumulation_steps: 30 / (4 x 4 ranks) = 1.875; give a multiple of 16",
    ["train_batch_size: 30, gradient_accumulation_steps: 5"] =
      "train_batch_size = 30 gives no whole train_micro_batch_size_per_gpu: 30 / (5 x 4 ranks) = 1.5; give a multiple of 20",
    ["train_batch_size: 6"] = "no whole train_micro_batch_size_per_gpu: 6 / (1 x 4 ranks) = 1.5",
    ["gradient_accumulation_steps: 4"] = "train_batch_size and train_micro_batch_size_per_gpu are both missing",
    ["steps_per_print: 1"] = "are both missing: give one of them",
    ['train_batch_size: "auto"'] = "are both missing",
    ["train_batch_size: 0"] = "train_batch_size must be at least 1, got 0",
    ["train_batch_size: 4.5"] = "train_batch_size must be an integer, got 4.5",
  } do
    assert_refused(expected, "{" .. given .. "}")
  end
end

function TestBatch:test_auto_is_the_callers()
  local text = '{train_batch_size: "auto", train_micro_batch_size_per_gpu: "auto", gradient_accumulation_steps: "auto"}'
  local expected = {global = 24, micro = 2, accumulation = 3}
  lu.assertEquals(read(text, {batch = {micro = 2, accumulation = 3}}).batch, expected)
  lu.assertEquals(read(text, {batch = {global = 24, micro = 2}}).batch, expected)
end

local TestFates = {}

function TestFates:test_unknown_keys_name_the_nearest()
  assert_refused("the configuration: unknown key 'train_batchsize': did you mean 'train_batch_size'?", "{train_batchsize: 8}")
  assert_refused("zero_optimization: unknown key 'stge': did you mean 'stage'?", "{zero_optimization: {stge: 2}}")
  assert_refused("fp16: unknown key 'loss_scal'", "{fp16: {enabled: false, loss_scal: 2}}")
  assert_refused("optimizer.params.momentum is no parameter of AdamW",
                 '{train_batch_size: 8, optimizer: {type: "AdamW", params: {momentum: 0.9}}}')
end

function TestFates:test_types_and_ranges_name_the_path()
  for more, expected in pairs {
    ["zero_optimization: {stage: 7}"] = "zero_optimization.stage must be 0, 1, 2 or 3, got 7",
    ["zero_optimization: {stage: '2'}"] = "json:1:",
    ['zero_optimization: {stage: "2"}'] = "zero_optimization.stage must be an integer, got '2'",
    ["zero_optimization: 2"] = "zero_optimization must be a table of options, got 2",
    ["fp16: true"] = "fp16 must be a table of options, got true",
    ["steps_per_print: true"] = "steps_per_print must be an integer, got true",
    ["gradient_clipping: -1"] = "gradient_clipping must be at least 0, got -1",
    ['communication_data_type: "fp8"'] = "communication_data_type must be 'fp32', 'fp16' or 'bf16', got 'fp8'",
    ['data_types: {grad_accum_dtype: "int8"}'] = "data_types.grad_accum_dtype must be 'fp32', 'fp16' or 'bf16', got 'int8'",
    ['optimizer: {type: "Adam", params: {betas: [0.9, 1]}}'] = "optimizer.params.betas must be two numbers from 0 up to",
    ["fp16: {enabled: true, loss_scale_window: 0}"] = "fp16.loss_scale_window must be at least 1, got 0: the loss scale is dyn",
    ["zero_optimization: {reduce_bucket_size: 1.5}"] = "zero_optimization.reduce_bucket_size must be an integer, got 1.5",
  } do
    lu.assertErrorMsgContains(expected, with, more)
  end
  lu.assertEquals(with("fp16: {enabled: true, loss_scale: 128, loss_scale_window: 0}").precision.loss_scale.loss_scale, 128)
end

function TestFates:test_always_so()
  local config = with "zero_optimization: {stage: 2, contiguous_gradients: true, overlap_comm: null}, prescale_gradients: true"
  lu.assertEquals({reason_of(config, "zero_optimization.contiguous_gradients")},
                  {"gradients lie in one flat buffer per unit", "always"})
  lu.assertEquals(reason_of(config, "zero_optimization.overlap_comm"), "null: as if absent")
  lu.assertStrContains(reason_of(config, "prescale_gradients"), "seeded with a power of two")
  lu.assertErrorMsgContains("zero_optimization.reduce_scatter must be true, got false: each rank receives", with,
                            "zero_optimization: {reduce_scatter: false}")
end

function TestFates:test_predivide_factors()
  for _, factor in ipairs {"1", "2", "0.5", "1024", "0.03125"} do
    local _, fate = reason_of(with("gradient_predivide_factor: " .. factor), "gradient_predivide_factor")
    lu.assertEquals(fate, "always")
  end
  for _, factor in ipairs {"3", "0", "-2", "1.5", "10"} do
    lu.assertErrorMsgContains("gradient_predivide_factor must be a power of two, got " .. factor, with,
                              "gradient_predivide_factor: " .. factor)
  end
end

function TestFates:test_refused_with_what_to_use_instead()
  for more, expected in pairs {
    ["torch_autocast: {enabled: true}"] = "torch_autocast.enabled = true is refused: layers choose their types by themselves",
    ["elasticity: {enabled: true}"] = "elasticity = a table is refused: removed from DeepSpeed; give the batch sizes",
    ["zero_optimization: {zenflow: {}}"] = "zero_optimization.zenflow is refused: it applies most gradients late",
    ['optimizer: {type: "Adam", params: {max_grad_norm: 1}}'] =
      "optimizer.params.max_grad_norm = 1 is refused: DeepSpeed refuses it too; give gradient_clipping",
    ['tensor_parallel: {autotp_size: 2, preset_model: "llama"}'] =
      "tensor_parallel.preset_model = 'llama' is refused: layers say how they are cut: `tensor = mesh.tp` of nn.gpt",
    ['tensor_parallel: {autotp_size: 2, injection_policy_tuple: ["o_proj"]}'] =
      "tensor_parallel.injection_policy_tuple = a list is refused: layers say how they are cut",
    ["tensor_parallel: {autotp_size: 2, partition_config: {use_default_specs: true}}"] =
      "tensor_parallel.partition_config.use_default_specs = true is refused: layers say how they are cut",
    ["tensor_parallel: {autotp_size: 2, kernel_inject: true}"] = "kernel_inject = true is refused: layers have their fused loops",
    ['tensor_parallel: {autotp_size: 2, tp: {tp_group: "x"}}'] = "tp_group = 'x' is refused: give `zt.initialize{mesh =",
    ["tensor_parallel: {autotp_size: -1}"] = "tensor_parallel.autotp_size must be at least 0, got -1",
    ["tensor_parallel: {tp: {tp_size: 0}}"] = "tensor_parallel.tp.tp_size must be at least 1, got 0",
    ['gradient_allreduce_op: "sum"'] = "gradient_allreduce_op must be 'mean', got 'sum'",
  } do
    lu.assertErrorMsgContains(expected, with, more)
  end
end

function TestFates:test_keys_that_contradict_each_other()
  for more, expected in pairs {
    ["tensor_parallel: {autotp_size: 2, tp: {tp_size: 4}}"] =
      "autotp_size = 2 and tensor_parallel.tp.tp_size = 4 are two numbers for the ranks that share matrices: give one of them",
    ['tensor_parallel: {autotp_size: 2, dtype: "bf16"}'] = "tensor_parallel.dtype = 'bf16' contradicts the precision fp32",
    ["tensor_parallel: {autotp_size: 2}, pipeline: {pipe_partitioned: true, grad_partitioned: false}"] =
      "pipeline.pipe_partitioned = true and pipeline.grad_partitioned = false contradict each other: both mean sequence",
    [ [[tensor_parallel: {autotp_size: 2}, pipeline: {pipe_partitioned: false},
        activation_checkpointing: {partition_activations: true}]] ] =
      "activation_checkpointing.partition_activations = true and pipeline.pipe_partitioned = false contradict each other",
  } do
    lu.assertErrorMsgContains(expected, with, more)
  end
end

-- Without several ranks along an axis, keys of its sharing have no effect, and their notes say so.
function TestFates:test_keys_without_their_feature()
  local config = with [[pipeline: {pipe_partitioned: true}, seq_parallel_communication_data_type: "bf16",
    activation_checkpointing: {partition_activations: true}]]
  lu.assertNil(config.tensor)
  lu.assertNil(config.zero.reduce_dtype)
  lu.assertEquals({reason_of(config, "pipeline.pipe_partitioned")}, {"no effect without tensor_parallel", "mapped"})
  lu.assertEquals({reason_of(config, "activation_checkpointing.partition_activations")},
                  {"no effect without tensor_parallel", "mapped"})
  lu.assertEquals({reason_of(config, "seq_parallel_communication_data_type")},
                  {"no effect without sequence_parallel_size", "mapped"})
  local off = with "activation_checkpointing: {partition_activations: false}"
  lu.assertNotStrContains(reason_of(off, "activation_checkpointing.partition_activations") or "", "no effect")
end

function TestFates:test_not_built_yet()
  for more, expected in pairs {
    ["checkpoint: {writer: {}}"] = "checkpoint.writer is not built yet",
    ['optimizer: {type: "OneBitAdam"}'] = "optimizer.type = 'OneBitAdam' is not built yet: give Adafactor, Adagrad, Adam",
    ['scheduler: {type: "StepLR", params: null}'] = "scheduler.type = 'StepLR' is not built yet: give one of DeepSpeed's own",
    ['scheduler: {type: "OneCycle", params: {cycle_min_lr: 0, cycle_max_lr: 1}}'] =
      "cycle_momentum is true when absent, and changing momentum is not built yet: give \"cycle_momentum\": false",
  } do
    lu.assertErrorMsgContains(expected, with, more)
  end
  lu.assertErrorMsgContains("optimizer.type = 'AdamWW' is unknown: did you mean 'AdamW'?", with, 'optimizer: {type: "AdamWW"}')
end

function TestFates:test_what_is_off_is_accepted()
  local config = with [[
    fp16: {enabled: false, loss_scale: 128}, flops_profiler: {enabled: false, top_modules: 3}, wandb: {project: "x"},
    zero_optimization: {stage: 1, offload_optimizer: {device: "none", pin_memory: false}, offload_param: null, zenflow: false},
    torch_autocast: {enabled: false, dtype: "bfloat16"}, elasticity: {enabled: false, max_train_batch_size: 4}, amp: {},
    pipeline: {stages: "auto", seed_layers: false}, tensor_parallel: {autotp_size: 1, preset_model: "llama"}, nebula: null]]
  lu.assertEquals(config.precision, {name = "fp32", on_nonfinite = "skip", cast_inputs = false})
  lu.assertEquals({reason_of(config, "flops_profiler.top_modules")}, {"off", "mapped"})
  lu.assertEquals({reason_of(config, "zero_optimization.offload_optimizer.pin_memory")}, {"off", "always"})
  lu.assertErrorMsgContains("flops_profiler.top_modules must be an integer, got 'x'", with, 'flops_profiler: {top_modules: "x"}')
end

function TestFates:test_two_names_of_one_key()
  local more = "zero_optimization: {stage: 3, prefetch_bucket_size: 10%s}"
  lu.assertEquals(with(more:format("")).zero.prefetch_elements, 10)
  lu.assertErrorMsgContains("is given twice", with, more:format(", stage3_prefetch_bucket_size: 20"))
  lu.assertEquals(with("bfloat16: {enabled: true}").precision.name, "bf16")
  lu.assertErrorMsgContains("bfloat16.enabled is given twice: bf16.enabled is another name", with,
                            "bf16: {enabled: true}, bfloat16: {enabled: true}")
end

local TestMistakes = {}

local function message_of(config)
  local is_done, message = pcall(read, config)
  lu.assertFalse(is_done)
  return message
end

function TestMistakes:test_the_type_is_judged_before_its_parameters()
  local config = {train_batch_size = 8, optimizer = {type = "OneBitAdam", params = {comm_backend_name = "nccl"}}}
  local message = message_of(config)
  lu.assertStrContains(message, "optimizer.type = 'OneBitAdam' is not built yet")
  lu.assertNil(message:find("comm_backend_name", 1, true), message)
end

function TestMistakes:test_all_are_listed()
  local message = message_of{
    train_batch_sise = 8, steps_per_print = "ten", optimizer = {type = "OneBitLamb", params = {max_coeff = 1}},
    zero_optimization = {stage = 7, bucket = 1},
  }
  for _, part in ipairs {"5 mistakes", "unknown key 'train_batch_sise'", "steps_per_print must be",
                         "optimizer.type = 'OneBitLamb'", "zero_optimization.stage must",
                         "zero_optimization: unknown key 'bucket'"} do
    lu.assertStrContains(message, part)
  end
end

-- Mistakes in two keys together, or in a parameter of the optimizer or schedule, are listed with all others.
function TestMistakes:test_those_of_two_keys_are_listed_too()
  local message = message_of{
    train_batch_size = 10, train_micro_batch_size_per_gpu = 4, gradient_accumulation_steps = 1, steps_per_print = "ten",
    fp16 = {enabled = true}, bf16 = {enabled = true},
    optimizer = {type = "Lion", params = {eps = 1e-8, momentum = 0.5}},
    scheduler = {type = "WarmupDecayLR", params = {cycle_min_lr = 1}},
  }
  for _, part in ipairs {"7 mistakes", "train_batch_size = 10, but", "steps_per_print must be", "are both true",
                         "optimizer.params.eps is no parameter of Lion", "optimizer.params.momentum is no parameter of Lion",
                         "scheduler.params.cycle_min_lr is no parameter of WarmupDecayLR"} do
    lu.assertStrContains(message, part)
  end
end

function TestMistakes:test_a_missing_parameter_of_a_schedule()
  local message = message_of{train_batch_size = 8, scheduler = {type = "OneCycle", params = {}}}
  for _, part in ipairs {"2 mistakes", "needs scheduler.params.cycle_max_lr", "needs scheduler.params.cycle_min_lr"} do
    lu.assertStrContains(message, part)
  end
end

-- A misspelt batch size, or one of a wrong type, is one mistake and is not reported as missing too.
function TestMistakes:test_no_consequences_of_a_mistake()
  for _, config in ipairs {{train_batch_sise = 8}, {train_batch_size = "8"}} do
    local message = message_of(config)
    lu.assertNil(message:find("mistakes", 1, true), message)
    lu.assertNil(message:find("missing", 1, true), message)
  end
  -- The precision, which sizes of buckets need, is unknown then.
  local message = message_of{train_batch_size = 8, tensor_parallel = {auto_tp_size = 2},
                             zero_optimization = {stage = 1, allgather_bucket_size = 5e8}}
  lu.assertStrContains(message, "tensor_parallel: unknown key 'auto_tp_size': did you mean 'autotp_size'?")
  lu.assertNil(message:find("mistakes", 1, true), message)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{
  {"TestSources", TestSources}, {"TestBatch", TestBatch}, {"TestFates", TestFates},
  {"TestMistakes", TestMistakes},
})
