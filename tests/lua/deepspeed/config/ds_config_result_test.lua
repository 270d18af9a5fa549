-- Tests the result of zt.deepspeed.config: all its fields, "auto", and whole files.
local lu = require "luaunit"
local ds = require "zt.deepspeed.config"

local WORLD = 4

local function read(more, context)
  local full = {world = WORLD}
  for key, value in pairs(context or {}) do full[key] = value end
  return ds.read("{train_micro_batch_size_per_gpu: 1, " .. more .. "}", full)
end

local function assert_refused(expected, more, context) lu.assertErrorMsgContains(expected, read, more, context) end

local TestResult = {}

function TestResult:test_what_an_empty_configuration_is()
  local config = read ""
  lu.assertEquals(config.notes, {{key = "train_micro_batch_size_per_gpu", fate = "mapped",
                                  reason = "`batch.micro`: samples per micro-batch on one rank"}})
  config.notes = nil
  lu.assertEquals(config, {
    notices = {}, batch = {global = 4, micro = 1, accumulation = 1},
    precision = {name = "fp32", on_nonfinite = "skip", cast_inputs = false},
    zero = {stage = 0, reduce_every = "step"}, clip = 1, checkpoint = {tag_validation = "warn"},
    reports = {wall_clock_breakdown = false, memory_breakdown = false, dump_state = false},
  })
end

function TestResult:test_stages_and_how_often_they_reduce()
  for stage, every in pairs {[0] = "step", "step", "micro_batch", "micro_batch"} do
    lu.assertEquals(read(("zero_optimization: {stage: %d}"):format(stage)).zero, {stage = stage, reduce_every = every})
  end
  lu.assertEquals(read("zero_optimization: true, allgather_size: 10").zero,
                  {stage = 1, reduce_every = "step", gather_bucket_bytes = 40})
  lu.assertEquals(read("zero_optimization: false").zero.stage, 0)
end

function TestResult:test_buckets_are_bytes_at_the_type_that_travels()
  local block = "zero_optimization: {stage: 2, reduce_bucket_size: 5e8, allgather_bucket_size: 3e8}"
  local function bytes(more)
    local config = read(block .. more)
    return {config.zero.bucket_bytes, config.zero.gather_bucket_bytes, config.zero.reduce_dtype, config.zero.grad_dtype}
  end
  lu.assertEquals(bytes "", {2e9, 1.2e9})
  lu.assertEquals(bytes ", bf16: {enabled: true}", {2e9, 6e8})
  lu.assertEquals(bytes ', communication_data_type: "FP16"', {1e9, 1.2e9, "fp16"})
  lu.assertEquals(bytes ', data_types: {grad_accum_dtype: "bfloat16"}', {1e9, 1.2e9, nil, "bf16"})
  lu.assertEquals(bytes ', data_types: {grad_accum_dtype: "bf16"}, communication_data_type: "fp32"', {2e9, 1.2e9, "fp32", "bf16"})
end

function TestResult:test_what_only_stage_3_needs()
  local block = [[zero_optimization: {stage: %d, sub_group_size: 7, stage3_prefetch_bucket_size: 1, stage3_max_live_parameters: 2,
    stage3_param_persistence_threshold: 3, stage3_model_persistence_threshold: 4, max_reuse_distance: 5, mics_shard_size: 2}]]
  lu.assertEquals(read(block:format(3)).zero, {
    stage = 3, reduce_every = "micro_batch", sub_group_size = 7, prefetch_elements = 1, max_live = 2, persist_below = 3,
    persist_total = 4, max_reuse_distance = 5, replicate = 2,
  })
  local config = read(block:format(2))
  lu.assertEquals(config.zero, {stage = 2, reduce_every = "micro_batch", sub_group_size = 7, replicate = 2})
  for _, note in ipairs(config.notes) do
    if note.key:find "max_" then lu.assertEquals(note.reason, "no effect at stage 2: it is for stage 3") end
  end
  lu.assertNil(read("zero_optimization: {stage: 3, stage3_model_persistence_threshold: 9223372036854775807}").zero.persist_total)
  lu.assertNil(read("zero_optimization: {stage: 3, mics_shard_size: -1}").zero.replicate)
  assert_refused("mics_shard_size must divide the 4 ranks into equal groups, got 3", "zero_optimization: {mics_shard_size: 3}")
end

function TestResult:test_precision()
  lu.assertEquals(read("bf16: {enabled: true}").precision, {name = "bf16", on_nonfinite = "skip", cast_inputs = false})
  lu.assertEquals(read("bf16: {enabled: true, check_grad_overflow: false}").precision.on_nonfinite, "error")
  local text = "fp16: {enabled: true, auto_cast: true%s}"
  local scale = {loss_scale = 0, initial_scale_power = 16, loss_scale_window = 1000, hysteresis = 2,
                 consecutive_hysteresis = false, min_loss_scale = 1}
  lu.assertEquals(read(text:format "").precision, {name = "fp16", on_nonfinite = "skip", cast_inputs = true, loss_scale = scale})
  scale = {loss_scale = 0.5, initial_scale_power = 8, loss_scale_window = 5, hysteresis = 1, consecutive_hysteresis = true,
           min_loss_scale = 4}
  lu.assertEquals(read(text:format [[, loss_scale: 0.5, initial_scale_power: 8, loss_scale_window: 5, hysteresis: 1,
    consecutive_hysteresis: true, min_loss_scale: 4]]).precision.loss_scale, scale)
  assert_refused("fp16.enabled and bf16.enabled are both true", "fp16: {enabled: true}, bf16: {enabled: true}")
  assert_refused("data_types.param_dtype = 'fp16' contradicts the precision bf16",
                 'bf16: {enabled: true}, data_types: {param_dtype: "half"}')
end

function TestResult:test_reports_clipping_checkpoint_and_recompute()
  local config = read [[steps_per_print: 10, wall_clock_breakdown: true, memory_breakdown: true, dump_state: true,
    log_level: "warning", gradient_clipping: 0, checkpoint: {tag_validation: "Fail"},
    activation_checkpointing: {number_checkpoints: 4}]]
  lu.assertEquals(config.reports, {steps_per_print = 10, wall_clock_breakdown = true, memory_breakdown = true, dump_state = true,
                                   log_level = "warn"})
  lu.assertEquals({config.clip, config.checkpoint, config.recompute}, {nil, {tag_validation = "fail"}, {checkpoints = 4}})
  lu.assertEquals(read("pipeline: {activation_checkpoint_interval: 2}").recompute, {every = 2})
  lu.assertNil(read("pipeline: {activation_checkpoint_interval: 0}").recompute)
  assert_refused("both say what to recompute",
                 "pipeline: {activation_checkpoint_interval: 2}, activation_checkpointing: {number_checkpoints: 4}")
end

function TestResult:test_optimizers_with_deepspeeds_defaults()
  local adam = {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, decay_all = true}
  local function optimizer(name, params)
    return read(('optimizer: {type: "%s", params: {%s}}'):format(name, params or "")).optimizer
  end
  lu.assertEquals(optimizer "AdamW", {name = "adamw", options = adam})
  lu.assertEquals(optimizer "Adam", {name = "adamw", options = adam}) -- adam_w_mode is true when absent
  lu.assertEquals(optimizer("Adam", "adam_w_mode: false"), {name = "adam", options = adam})
  lu.assertEquals(optimizer("AdamW", "adam_w_mode: false").name, "adamw")
  lu.assertEquals(optimizer("adamw", "torch_adam: true").options.weight_decay, 0.01)
  lu.assertEquals(optimizer("adamw", "torch_adam: true, weight_decay: 0.2").options.weight_decay, 0.2)
  lu.assertEquals(optimizer("Lion", "lr: 1e-4").options, {lr = 1e-4, betas = {0.9, 0.999}, weight_decay = 0, decay_all = true})
  lu.assertEquals(optimizer("Muon", "lr: 0.1, adam_lr: 0.3").options, {
    lr = 0.1, momentum = 0.95, weight_decay = 0, decay_all = true, adamw = {lr = 0.3, betas = {0.9, 0.95}, eps = 1e-10},
  })
  lu.assertEquals(optimizer("Muon", "muon_lr: 0.2").options.lr, 0.2)
  lu.assertEquals(optimizer("Lamb", "max_coeff: 2").options.max_coeff, 2)
  lu.assertEquals(optimizer("Adagrad").options.lr, 0.01)
  lu.assertEquals(optimizer("SGD", "momentum: 0.9, nesterov: true"), {
    name = "sgd",
    options = {lr = 1e-3, momentum = 0.9, dampening = 0, nesterov = true, weight_decay = 0, decay_all = true},
  })
  assert_refused("optimizer.type is missing", "optimizer: {params: {lr: 1}}")
end

function TestResult:test_zt_optim_takes_the_optimizers()
  local optim = require "zt.optim"
  for _, name in ipairs {"Adafactor", "Adagrad", "Adam", "AdamW", "Lamb", "Lion", "Muon", "SGD"} do
    local config = read(('optimizer: {type: "%s", params: {lr: 0.5}}'):format(name)).optimizer
    lu.assertEquals(optim[config.name](config.options).lr, 0.5)
  end
end

local TestAuto = {}

function TestAuto:test_the_hidden_size()
  local block = [[zero_optimization: {stage: 3, reduce_bucket_size: "auto", stage3_prefetch_bucket_size: "auto",
    stage3_param_persistence_threshold: "auto"}]]
  local config = read(block, {model = {hidden_size = 48}})
  lu.assertEquals({config.zero.bucket_bytes, config.zero.prefetch_elements, config.zero.persist_below}, {4 * 48 * 48, 2073, 480})
  lu.assertStrContains(config.notes[3].reason, '"auto" is 2304: ')
  assert_refused('reduce_bucket_size = "auto" stands for hidden_size^2, which is not known here: give auto = {model =', block)
end

function TestAuto:test_what_cannot_be_inferred()
  assert_refused('zero_optimization.stage = "auto" cannot be inferred: give a value, or leave the key out',
                 'zero_optimization: {stage: "auto"}')
  assert_refused('lr = "auto" stands for the learning rate, which is not known here: give auto = {optimizer = {lr = ...}}',
                 'optimizer: {type: "AdamW", params: {lr: "auto"}}')
  assert_refused("give auto = {precision = 'fp32' | 'bf16' | 'fp16'}", 'bf16: {enabled: "auto"}')
  assert_refused("give auto = {schedule = {total = ",
                 'scheduler: {type: "WarmupDecayLR", params: {total_num_steps: "auto"}}')
  assert_refused("optimizer.params.lr must be at least 0", 'optimizer: {type: "AdamW", params: {lr: "auto"}}',
                 {optimizer = {lr = -1}})
  local options = read('optimizer: {type: "AdamW", params: {betas: "auto", eps: "auto", weight_decay: "auto"}}').optimizer.options
  lu.assertEquals({options.betas, options.eps, options.weight_decay}, {{0.9, 0.999}, 1e-8, 0})
  lu.assertEquals(read('gradient_clipping: "auto"').clip, 1)
  lu.assertEquals(read('gradient_clipping: "auto"', {clip = 0.5}).clip, 0.5)
end

-- A configuration like the ZeRO-3 example in Hugging Face's documentation.
local EXAMPLE_3 = [[{
  "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
           "min_loss_scale": 1},
  "bf16": {"enabled": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto",
                "total_num_steps": "auto"}},
  "zero_optimization": {
    "stage": 3, "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9, "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
    "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true
  },
  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000, "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false
}]]

function TestAuto:test_a_file_where_everything_is_auto()
  local config = ds.read(EXAMPLE_3, {
    world = 2, precision = "bf16", clip = 0.5, batch = {micro = 4, accumulation = 2}, schedule = {warmup = 10, total = 100},
    optimizer = {lr = 3e-4, betas = {0.9, 0.95}, eps = 1e-6, weight_decay = 0.1}, model = {hidden_size = 100},
  })
  lu.assertEquals(config.batch, {global = 16, micro = 4, accumulation = 2})
  lu.assertEquals(config.precision, {name = "bf16", on_nonfinite = "skip", cast_inputs = false})
  lu.assertEquals(config.optimizer.options, {lr = 3e-4, betas = {0.9, 0.95}, eps = 1e-6, weight_decay = 0.1, decay_all = true})
  lu.assertEquals(config.schedule.options, {warmup_min_lr = 0, warmup_max_lr = 3e-4, warmup_num_steps = 10, total_num_steps = 100,
                                            warmup_type = "log"})
  lu.assertEquals(config.zero, {
    stage = 3, reduce_every = "micro_batch", bucket_bytes = 40000, sub_group_size = 1e9, prefetch_elements = 9000,
    persist_below = 1000, max_live = 1e9, max_reuse_distance = 1e9, overlap = true,
  })
  lu.assertEquals({config.clip, config.reports.steps_per_print}, {0.5, 2000})
end

-- A typical ZeRO-2 file in fp16, with comments.
local EXAMPLE_2 = [[
# two nodes
{
  "train_batch_size": 64,
  "gradient_accumulation_steps": 4,          // micro-batch: 64 / (4 x 4)
  "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500},
  "optimizer": {"type": "Adam", "params": {"lr": 3e-5, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 3e-5, "warmup_num_steps": 500}},
  "zero_optimization": {
    "stage": 2, "allgather_partitions": true, "allgather_bucket_size": 2e8, "reduce_scatter": true, "reduce_bucket_size": 2e8,
    "overlap_comm": true, "contiguous_gradients": true,
  },
  "zero_allow_untested_optimizer": true,
}]]

function TestAuto:test_a_file_of_stage_2_in_fp16()
  local config = ds.read(EXAMPLE_2, {world = 4})
  lu.assertEquals(config.batch, {global = 64, micro = 4, accumulation = 4})
  lu.assertEquals({config.precision.name, config.precision.loss_scale.initial_scale_power}, {"fp16", 12})
  lu.assertEquals(config.zero, {stage = 2, reduce_every = "micro_batch", bucket_bytes = 8e8, gather_bucket_bytes = 4e8,
                                overlap = true})
  lu.assertEquals(config.optimizer.options.betas, {0.8, 0.999})
  local count = 0
  for _ in EXAMPLE_2:gmatch '"[%w_]+": *[^{ ]' do count = count + 1 end
  lu.assertEquals(#config.notes, count) -- every key has a note
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestResult", TestResult}, {"TestAuto", TestAuto}})
