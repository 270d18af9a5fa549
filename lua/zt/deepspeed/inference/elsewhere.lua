--- Says where a key belongs that zt.init_inference does not have: keys of deepspeed.initialize, which people give for
-- ZeRO-Inference, keys of another block, and arguments of generate.

local generation_keys = require "zt.deepspeed.inference.generation_keys"
local training = require "zt.deepspeed.keys"

local elsewhere = {}

local REPORTS = "an engine writes no reports of steps: leave the key out; engine:profile_model_time(), engine:model_times() and "
  .. "engine.engine:stats() measure"
local BATCH = "an engine answers any number of samples: leave the key out; the options token_budget and max_sequences of "
  .. "zt.init_inference limit a step"
local GRADIENTS = "an engine has no gradients: leave the key out"
local DTYPE = "give dtype = '%s' instead"
local PLAIN = "an engine does not train: leave the key out"
local MESH = "give tensor_parallel = {tp_size = n}, moe = {ep_size = n} or the option mesh instead"

-- By key of deepspeed.initialize: what to do in inference.
local OF_TRAINING = {
  zero_optimization = "give it as `zero`, with the same keys: zero = {stage = 3, offload_param = {device = 'cpu'}}. "
    .. "offload_param becomes the option offload of infer.engine, and offload_optimizer has no effect",
  fp16 = DTYPE:format "fp16", bf16 = DTYPE:format "bf16", bfloat16 = DTYPE:format "bf16", amp = DTYPE:format "fp16",
  torch_autocast = DTYPE:format "bf16", data_types = "give dtype instead",
  aio = "how files are read is not set by keys: leave the key out",
  hybrid_engine = "it joins training and generation in one engine, that of zt.initialize: call engine:generator(). "
    .. "zt.init_inference{model = this engine} reads the parameters in place, so that it generates between steps",
  quantize_training = "give dtype = 'int8' or quant instead", compression_training = "give dtype = 'int8' or quant instead",
  pipeline = "call infer.engine, which has the option pipeline", expert_parallel = "give moe = {ep_size = n} instead",
  activation_checkpointing = GRADIENTS, data_parallel_size = MESH, sequence_parallel_size = MESH,
  use_data_before_expert_parallelism = MESH, compile = "kernels are compiled and fused by hand: leave the key out",
  vocabulary_size = "the model has its vocabulary: leave the key out", log_level = "set it by zt.log.set_level",
}
for text, names in pairs {
  [BATCH] = "train_batch_size train_micro_batch_size_per_gpu dataloader_drop_last",
  [GRADIENTS] = [[gradient_accumulation_steps managed_gradient_accumulation gradient_clipping prescale_gradients sparse_gradients
    gradient_predivide_factor gradient_allreduce_op communication_data_type seq_parallel_communication_data_type]],
  [REPORTS] = [[steps_per_print wall_clock_breakdown memory_breakdown dump_state timers tensorboard csv_monitor wandb comet
    flops_profiler comms_logger]],
} do
  for name in names:gmatch "%S+" do OF_TRAINING[name] = text end
end

-- Returns the paths of blocks that have the key, the shortest first.
local function paths_of(key, schemas)
  local paths = {}
  for _, schema in ipairs(schemas) do
    for _, entry in ipairs(schema.list) do
      local is_name = entry.key == key or entry.row.same and generation_keys.is_among(key, entry.row.same)
      if is_name and entry.path == entry.main and entry.path ~= key then paths[#paths + 1] = entry.path end
    end
  end
  table.sort(paths, function(a, b) return #a < #b or #a == #b and a < b end)
  return paths
end

-- Returns a path as a table of options: "a.b" is "a = {b = ...}".
local function as_table(path)
  local block, key = path:match "^([^.]+)%.(.+)$"
  return block and ("%s = {%s}"):format(block, as_table(key)) or path .. " = ..."
end

-- Options of zt.init_inference that are no keys of DeepSpeed.
local OF_CALL = {}
for name in ([[model config mesh tokenizer chat_template weights token_budget max_sequences cache numerics speculative
    stop_tokens]]):gmatch "%S+" do OF_CALL[name] = true end

--- Returns a sentence that says where a key belongs that the top level of `schemas` (of keys.schema) does not have. Returns nil
-- if it is no key of DeepSpeed and no argument. The key is a text.
function elsewhere.text(key, schemas)
  if OF_CALL[key] then
    return ("it is no key of DeepSpeed but an option; give zt.init_inference{config = ..., %s = ...}"):format(key)
  end
  if training.blocks[""].by_name[key] then
    return "it is a key of deepspeed.initialize, for training; " .. (OF_TRAINING[key] or PLAIN)
  end
  local paths = paths_of(key, schemas)
  if #paths > 0 then return ("it is a key of a block; give %s"):format(as_table(paths[1])) end
  if generation_keys.is_of_call(key) then return "it is an argument of engine:generate" end
end

return elsewhere
