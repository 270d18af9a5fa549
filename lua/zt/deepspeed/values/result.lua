--- Makes the fields of the result of ds.read from `given`, the values of mapped keys by path. The fields `optimizer` and
-- `schedule` are in result_optim.lua, `offload` is in result_offload.lua.

local fail = require "zt.fail"

local result = {}

--- Bytes of an element, by type.
result.BYTES = {fp32 = 4, fp16 = 2, bf16 = 2}

--- Returns {global, micro, accumulation}, with global = micro x accumulation x ranks. DeepSpeed's rule: any two determine the
-- third. If only global or only micro is given, accumulation is 1. Fails if both are missing.
function result.batch(given, context)
  local world = context.world
  local global, micro = given.train_batch_size, given.train_micro_batch_size_per_gpu
  local accumulation = given.gradient_accumulation_steps
  if not global and not micro then
    fail("train_batch_size and train_micro_batch_size_per_gpu are both missing: give one of them, or batch = {micro = ...}")
  end
  if not accumulation and not (global and micro) then accumulation = 1 end
  local divisor = world * (micro or accumulation)
  local product = micro and accumulation and micro * accumulation * world
  if product and global and product ~= global then
    fail("train_batch_size = %.14g, but train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks = "
      .. "%.14g x %.14g x %d = %.14g: change one of them, or leave one out", global, micro, accumulation, world, product)
  elseif not product and global % divisor ~= 0 then
    local missing = micro and "gradient_accumulation_steps" or "train_micro_batch_size_per_gpu"
    fail("train_batch_size = %.14g gives no whole %s: %.14g / (%.14g x %d ranks) = %.5g; give a multiple of %.14g", global,
         missing, global, micro or accumulation, world, global / divisor, divisor)
  end
  return {global = global or product, micro = micro or global / divisor, accumulation = accumulation or global / divisor}
end

-- Returns the loss scale's options with DeepSpeed's names and defaults. The window and the minimum must be at least 1 only if the
-- scale is dynamic.
local function loss_scale(given)
  local out = {}
  for name, default in pairs {loss_scale = 0, initial_scale_power = 16, loss_scale_window = 1000, hysteresis = 2,
                              consecutive_hysteresis = false, min_loss_scale = 1} do
    local value = given["fp16." .. name]
    if value == nil then value = default end
    out[name] = value
  end
  for _, name in ipairs {"loss_scale_window", "min_loss_scale"} do
    if out.loss_scale == 0 and out[name] < 1 then
      fail("fp16.%s must be at least 1, got %g: the loss scale is dynamic (fp16.loss_scale = 0)", name, out[name])
    end
  end
  return out
end

--- Returns the field `precision`. Fails if the keys contradict each other.
function result.precision(given)
  local is_fp16, is_bf16 = given["fp16.enabled"], given["bf16.enabled"]
  if is_fp16 and is_bf16 then
    fail("fp16.enabled and bf16.enabled are both true: compute parameters have one type, choose one")
  end
  local out = {name = is_fp16 and "fp16" or is_bf16 and "bf16" or "fp32", on_nonfinite = "skip", cast_inputs = false}
  if is_fp16 then
    out.loss_scale, out.cast_inputs = loss_scale(given), given["fp16.auto_cast"] == true
  elseif is_bf16 and given["bf16.check_grad_overflow"] == false then
    out.on_nonfinite = "error"
  end
  for _, key in ipairs {"data_types.param_dtype", "tensor_parallel.dtype"} do
    local params = given[key]
    if params and params ~= out.name then
      fail("%s = '%s' contradicts the precision %s, which fp16.enabled and bf16.enabled choose: leave it out", key, params,
           out.name)
    end
  end
  return out
end

-- Returns the number of ranks along an axis of the script's own mesh, 1 without one.
local function own_ranks(context, axis) return context.ranks and context.ranks[axis] or 1 end

--- Returns the number of ranks that share matrices, 1 without tensor parallelism.
function result.tensor_size(given, context)
  return given["tensor_parallel.autotp_size"] or given["tensor_parallel.tp.tp_size"] or own_ranks(context, "tp")
end

--- Returns whether ranks share the tokens of samples.
function result.has_cut_tokens(given, context)
  return (given.sequence_parallel_size or own_ranks(context, "cp")) > 1
end

-- The keys that share what one rank would hold whole: kept inputs, the messages of a pipeline, and their gradients.
local SHARED = {"activation_checkpointing.partition_activations", "pipeline.pipe_partitioned", "pipeline.grad_partitioned"}

--- Returns the field `tensor`; nil without tensor parallelism. Fails if two keys say different things.
function result.tensor(given, context)
  local size, other = result.tensor_size(given, context), given["tensor_parallel.tp.tp_size"]
  if other and other ~= 1 and other ~= size then
    fail("tensor_parallel.autotp_size = %d and tensor_parallel.tp.tp_size = %d are two numbers for the ranks that share "
      .. "matrices: give one of them", size, other)
  end
  if size <= 1 then return nil end
  local by_value = {}
  for _, key in ipairs(SHARED) do
    local value = given[key]
    if value ~= nil then by_value[value] = by_value[value] or key end
  end
  if by_value[true] and by_value[false] then
    fail("%s = true and %s = false contradict each other: both mean sequence parallelism, which shares kept inputs, messages and "
      .. "their gradients alike; leave one of them out", by_value[true], by_value[false])
  end
  return {size = size, sequence_parallel = by_value[true] and true or nil, overlap = given["tensor_parallel.tp_overlap_comm"]}
end

--- Returns the field `context`; nil if no ranks share samples.
function result.context(given)
  local size = given.sequence_parallel_size or 1
  return size > 1 and {size = size, method = "ulysses"} or nil
end

--- Returns the field `zero`. DeepSpeed gives bucket sizes in elements, the result gives bytes: elements x bytes of the type in
-- which gradients are reduced, or of the compute parameters.
function result.zero(given, context, out)
  local zero = out.zero or {}
  zero.stage = given["zero_optimization.stage"] or 0
  zero.reduce_every = zero.stage < 2 and "step" or "micro_batch"
  -- With sequence parallelism, DeepSpeed reads the type of its own key.
  local of_cut_tokens = result.has_cut_tokens(given, context) and given.seq_parallel_communication_data_type
  zero.reduce_dtype = of_cut_tokens or out.communication_data_type
  local bucket = given["zero_optimization.reduce_bucket_size"]
  zero.bucket_bytes = bucket and bucket * result.BYTES[zero.reduce_dtype or zero.grad_dtype or "fp32"]
  local gather = given["zero_optimization.allgather_bucket_size"] or given.allgather_size
  zero.gather_bucket_bytes = gather and gather * result.BYTES[out.precision.name]
  local shard = given["zero_optimization.mics_shard_size"]
  if shard and shard ~= -1 then
    if shard < 1 or context.world % shard ~= 0 then
      fail("zero_optimization.mics_shard_size must divide the %d ranks into equal groups, got %d", context.world, shard)
    end
    zero.replicate = context.world / shard
  end
  return zero
end

--- Returns the field `experts`; nil if expert_parallel is off. Fails if the ranks cannot be divided into groups of that size.
function result.experts(given, context)
  if not given["expert_parallel.enabled"] then return nil end
  local function of(key) return given["expert_parallel." .. key] end
  local size, norm = of "autoep_size" or 1, of "route_norm"
  if context.world % size ~= 0 then
    fail("expert_parallel.autoep_size = %d does not divide the %d data-parallel ranks: give a divisor", size, context.world)
  end
  if of "num_limited_groups" and not of "num_expert_groups" then
    fail "expert_parallel.num_limited_groups needs num_expert_groups, the number of groups of experts"
  end
  local router = {score = of "score_func", scale = of "route_scale", groups = of "num_expert_groups",
                  top_groups = of "num_limited_groups"}
  if norm ~= nil then router.normalise = norm and "selected" or "none" end
  return {size = size, data_first = given.use_data_before_expert_parallelism or false, top_k = of "top_k", router = router,
          tensor_size = of "expert_tensor_parallel_size" or 1}
end

--- Returns the field `generator`; nil if hybrid_engine is off. Fails if two keys say different things about how parameters are
-- held at stage 3.
function result.generator(given)
  if not given["hybrid_engine.enabled"] then return nil end
  local function of(key) return given["hybrid_engine." .. key] end
  local tensor, gathered = of "inference_tp_size" or 1, of "pin_parameters" ~= false
  if tensor > 1 and not gathered and (given["zero_optimization.stage"] or 0) == 3 then
    fail("hybrid_engine.pin_parameters = false leaves each rank the part of the parameters that it has in training, and "
      .. "inference_tp_size = %d gives it a share of each matrix: leave one of them out", tensor)
  end
  return {tensor = tensor, max_context = of "max_out_tokens", gathered = gathered,
          release = of "release_inference_cache" == true}
end

--- Returns the field `recompute`. Fails if both keys for it are given.
function result.recompute(given, out)
  local every = given["pipeline.activation_checkpoint_interval"]
  if not every or every == 0 then return out.recompute end
  if out.recompute then
    fail("activation_checkpointing.number_checkpoints and pipeline.activation_checkpoint_interval both say what to recompute: "
      .. "leave one of them out")
  end
  return {every = every}
end

-- Returns the folder of a monitor: output_path/job_name, with DeepSpeed's defaults.
local function monitor_folder(given, name)
  local path, job = given[name .. ".output_path"] or "", given[name .. ".job_name"] or "DeepSpeedJobName"
  if path == "" or job:sub(1, 1) == "/" then return job end
  return path:gsub("/+$", "") .. "/" .. job
end

--- Returns the parts of the field `reports` that are tables, for features that are on: tensorboard, csv_monitor, flops_profiler,
-- comms_logger.
function result.reports(given)
  local out = {}
  for _, name in ipairs {"tensorboard", "csv_monitor"} do
    if given[name .. ".enabled"] then out[name] = {folder = monitor_folder(given, name)} end
  end
  if given["flops_profiler.enabled"] then
    local function of(key, default)
      local value = given["flops_profiler." .. key]
      if value == nil then return default end
      return value
    end
    local file = of("output_file", "")
    out.flops_profiler = {step = of("profile_step", 1), top = of("top_modules", 1), detailed = of("detailed", true),
                          file = file ~= "" and file or nil}
  end
  if given["comms_logger.enabled"] then out.comms_logger = {verbose = given["comms_logger.verbose"] or false} end
  return out
end

return result
