--- Keys of the top level: batch sizes, steps, gradients, reports. (The form of a block and of a row: keys.lua.)

local infer = require "zt.deepspeed.values.infer"

local function is_power_of_two(value)
  local mantissa = math.frexp(value)
  return value > 0 and mantissa == 0.5
end

local function is_models_vocabulary(value, context)
  local vocab = context.model and context.model.vocab
  return not vocab or vocab == value
end

local function is_world(value, context) return value == context.world end

return {
  {path = "", rows = {
    -- global = micro x accumulation x world. One of them may be left out, or accumulation and one more (values/result.lua).
    {"train_batch_size", "mapped", "integer", "`batch.global`: samples per step, over all ranks", at_least = 1,
     auto = infer.batch "global"},
    {"train_micro_batch_size_per_gpu", "mapped", "integer", "`batch.micro`: samples per micro-batch on one rank", at_least = 1,
     auto = infer.batch "micro"},
    {"gradient_accumulation_steps", "mapped", "integer", "`batch.accumulation`: micro-batches per step", at_least = 1,
     auto = infer.batch "accumulation"},
    {"managed_gradient_accumulation", "always", "boolean",
     "the engine counts micro-batches; to end a step by hand, call forward, backward and step of the trainer", default = true},
    {"gradient_clipping", "mapped", "number", "`clip`: largest gradient norm, 1 when absent (DeepSpeed's default); 0: none",
     at_least = 0, auto = infer.clip, means = {[false] = 0}},
    {"prescale_gradients", "always", "boolean",
     "the backward pass is seeded with a power of two, so gradients are scaled before they are summed", agrees = "any"},
    {"gradient_predivide_factor", "always", "number",
     "the backward seed is a power of two already; another power of two changes no bit, any other number would",
     default = 1, agrees = is_power_of_two, expected = "a power of two"},
    {"gradient_allreduce_op", "always", "string",
     "gradients are those of the mean over the global batch; for a sum call trainer:finish_step{divisor = n}", default = "mean",
     one_of = {"mean", "sum"}, lower = true},
    {"communication_data_type", "mapped", "string",
     "`communication_data_type` and `zero.reduce_dtype`: the type in which gradients are reduced",
     one_of = {"fp32", "fp16", "bf16"}, lower = true, to = "communication_data_type"},
    {"seq_parallel_communication_data_type", "mapped", "string",
     "`zero.reduce_dtype` instead of `communication_data_type`, if sequence_parallel_size is above 1",
     one_of = {"fp32", "fp16", "bf16"}, lower = true},
    {"disable_allgather", "refused", "boolean", "updated parameters must reach every rank; remove the key", default = false},
    {"steps_per_print", "mapped", "integer", "`reports.steps_per_print`: steps between two progress lines; `Infinity`: none",
     at_least = 1, no_limit = math.huge, to = "reports.steps_per_print"},
    {"wall_clock_breakdown", "mapped", "boolean",
     "`reports.wall_clock_breakdown`: time of forward, backward, communication and step", to = "reports.wall_clock_breakdown"},
    {"memory_breakdown", "mapped", "boolean", "`reports.memory_breakdown`: memory by kind", to = "reports.memory_breakdown"},
    {"dump_state", "mapped", "boolean", "`reports.dump_state`: prints the engine's settings at the start",
     to = "reports.dump_state"},
    {"log_level", "mapped", "string", "`reports.log_level`, a level of `zt.log`: 'warning' is 'warn', 'critical' is 'error'",
     one_of = {"debug", "info", "warning", "error", "critical"}},
    {"disable_python_gc", "always", "boolean", "there is no Python, and Lua's collector is told the bytes of tensors",
     agrees = "any"},
    {"vocabulary_size", "always", "integer", "DeepSpeed only comments on its alignment; it must be the model's", at_least = 1,
     agrees = is_models_vocabulary, expected = "the model's vocabulary"},
    {"dataloader_drop_last", "always", "boolean",
     "no batch is incomplete: at the end of an epoch it takes samples of the next", agrees = "any"},
    {"zero_allow_untested_optimizer", "always", "boolean", "every optimizer updates flat shards, at every stage", agrees = "any"},
    {"zero_force_ds_cpu_optimizer", "always", "boolean", "an optimizer is one formula on every device, with equal bits",
     agrees = "any"},
    {"allgather_size", "mapped", "integer", "`zero.gather_bucket_bytes`; goes with `\"zero_optimization\": true` (deprecated)",
     at_least = 0},
    {"use_data_before_expert_parallelism", "mapped", "boolean",
     "`experts.data_first`: neighbouring ranks differ in dp, not in ep"},
    {"data_parallel_size", "always", "integer", "data parallelism takes every rank that no other axis takes", at_least = 1,
     agrees = is_world, expected = "the number of data-parallel ranks"},
    {"sequence_parallel_size", "mapped", "integer",
     "`context`: the ranks along the mesh's axis cp, which share the tokens of each sample by Ulysses; for "
     .. "`model = function(mesh, experts, cut)`", at_least = 1},
  }},

  {path = "timers", fate = "always", text = "times are taken in every step", rows = {}},
  {path = "timers.throughput", fate = "always", text = "every step returns `tokens_per_second`", rows = {
    {"enabled", "always", "boolean", "every step returns `tokens_per_second`; measuring costs nothing", agrees = "any"},
    {"synchronized", "always", "boolean", "the host waits for the device once per step and takes times there", agrees = "any"},
  }},

  {path = "data_types", fate = "mapped", text = "`zero.grad_dtype`, checks of `precision`", rows = {
    {"grad_accum_dtype", "mapped", "string", "`zero.grad_dtype`: the type gradients are added up in; fp32 when absent",
     is_dtype = true, to = "zero.grad_dtype"},
    {"param_dtype", "mapped", "string", "must agree with `precision.name`, which fp16.enabled and bf16.enabled choose",
     is_dtype = true},
    {"buffer_dtype", "always", "string", "buffers that are no parameters (rotary tables, statistics) stay fp32", is_dtype = true,
     agrees = {"fp32"}},
    {"keep_in_fp32_modules", "refused", "string|list",
     "layers that need it (norms, softmax, loss, rotary) compute in fp32 by themselves; leave the key out",
     default = "auto", off = {{}}},
  }},
}
