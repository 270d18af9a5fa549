--- Keys of checkpoints and of activation checkpointing.

local hjson = require "zt.deepspeed.hjson"

local WRITER = "writing a checkpoint during training; leave the block out"

return {
  {path = "checkpoint", fate = "mapped", text = "`checkpoint`", rows = {
    {"tag_validation", "mapped", "string",
     "`checkpoint.tag_validation`: \"warn\" (when absent), \"ignore\" or \"fail\" if ranks name different tags",
     one_of = {"warn", "ignore", "fail"}, lower = true, to = "checkpoint.tag_validation"},
    {"load_universal", "always", "boolean", "every checkpoint is universal: HDF5, by parameter, for any mesh and stage",
     agrees = "any"},
    {"use_node_local_storage", "not_yet", "boolean",
     "checkpoints on disks that the nodes do not share; give a folder that all nodes share", default = false},
    {"checkpoint_serialization", "always", "boolean", "a checkpoint is HDF5; there is no pickle in either form", default = true},
  }},
  {path = "checkpoint.parallel_write", fate = "always", text = "every rank writes what it owns", rows = {
    {"pipeline_stage", "always", "boolean", "every rank writes what it owns", agrees = "any"},
  }},
  {path = "checkpoint.writer", fate = "not_yet", text = WRITER, whole = true,
   inherit = {
     {"type", "string"}, {"io_buffer_size", "integer"}, {"io_buffer_double", "boolean", default = true},
     {"show_statistics", "boolean", default = false}, {"data_parallel", "string"}, {"decoupled", "boolean", default = false},
     {"io_multiplier", "integer", default = 1},
   }},
  {path = "", extends = true, rows = {
    {"datastates_ckpt", "refused", "any", "checkpoints are written by zt.ckpt; leave the key out", default = false},
  }},

  {path = "activation_checkpointing", fate = "mapped", text = "`recompute`, the pass zt.recompute", rows = {
    {"number_checkpoints", "mapped", "integer",
     "`recompute.checkpoints`: layers are recomputed, each from its own input, whatever the number (`zt.recompute{every = 1}`); "
     .. "`false`: as if absent",
     at_least = 1, means = {[false] = hjson.null}, to = "recompute.checkpoints"},
    {"partition_activations", "mapped", "boolean",
     "`tensor.sequence_parallel`: with tensor parallelism, each rank keeps its share of the tokens"},
    {"cpu_checkpointing", "mapped", "boolean",
     "`offload.activations` = \"host\": what is kept for the backward lies in host memory, where the device has another one"},
    {"contiguous_memory_optimization", "refused", "boolean",
     "a checkpoint is the layer's input as it is; copying it to a buffer would cost memory; remove the key", default = false},
    {"synchronize_checkpoint_boundary", "refused", "boolean",
     "an action waits for what it reads and for nothing else; remove the key", default = false},
    {"profile", "always", "boolean", "the run's trace has every recomputed layer, with its time", agrees = "any"},
  }},
}
