--- The keys of FastGen of DeepSpeed 0.19.8 (RaggedInferenceEngineConfig) with their fates, as blocks of zt.deepspeed.keys.
-- Options that the text of a key names are those of infer.engine.

local keys = require "zt.deepspeed.keys"

local CACHE = "give the option cache = {memory = bytes, or a share up to 1 of what is free, block = tokens}, which says how much "
  .. "is taken"

local specs = {
  {path = "", rows = {}},
  {path = "tensor_parallel", fate = "mapped", same = {"tp"}, text = "`mesh` and `tensor`: the ranks that share matrices", rows = {
    {"tp_size", "mapped", "integer", "the ranks of the axis `tensor` of the mesh; the other ranks are copies of the model, with "
     .. "requests of their own", at_least = 1},
  }},
  {path = "state_manager", fate = "mapped", same = {"manager"}, text = "options of the schedule and of the cache", rows = {
    {"max_tracked_sequences", "mapped", "integer", "must be at least `max_ragged_sequence_count`; requests that wait hold no "
     .. "memory, so their number has no limit", at_least = 1},
    {"max_ragged_batch_size", "mapped", "integer", "`token_budget`: most tokens of a step; 512 when absent, where DeepSpeed "
     .. "takes 768", at_least = 1},
    {"max_ragged_sequence_count", "mapped", "integer", "`max_sequences`: most answers of a step; 64, or `token_budget` if "
     .. "that is less, when absent, where DeepSpeed takes 512", at_least = 1},
    {"max_context", "mapped", "integer", "`max_context`: most tokens of a prompt and its answer; the model's `seq` when absent, "
     .. "where DeepSpeed takes 8192", at_least = 1},
    {"offload", "refused", "boolean", "DeepSpeed refuses it too: the cache stays in memory, and a sequence that lacks room is "
     .. "computed again", default = false},
  }},
  {path = "state_manager.memory_config", fate = "always", same = {"manager.memory_config"}, text = "the cache takes "
    .. "`cache.memory`, by default half of what is free and no more than the longest answers need", rows = {
    {"mode", "refused", "string", CACHE, default = "reserve"},
    {"size", "refused", "integer", CACHE, default = 1000000000, at_least = 1},
  }},
  {path = "quantization", fate = "mapped", text = "`weights`", rows = {
    {"quantization_mode", "refused", "string",
     "there are no weights of 6 bits; give the option weights = {format = \"int8\", \"int4\" or \"nf4\"}"},
  }},
}

return keys.schema(specs)
