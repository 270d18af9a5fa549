--- Keys of offloading to host memory and to files on NVMe: the options of offload.move (modules/offload/README.md).

local MOVES = "`offload`, the options of the pass offload.move"
local PLACES = "places in memory are counted from the program, so none is missing"
local PINNED = "places in memory are page-locked as far as the system's limit (`ulimit -l`) allows"
local OVERLAP = "slices are read and written beside the updates of other slices"
local QUEUE = "operations are submitted as soon as there is room for them, and only what needs a slice waits for it"

local function leaves_device(block) return type(block.device) == "string" and block.device ~= "none" end

return {
  {path = "zero_optimization.offload_optimizer", fate = "mapped", text = MOVES, is_on = leaves_device, rows = {
    {"device", "mapped", "string",
     "`offload.optimizer` and `offload.gradients`, at every stage: \"nvme\", or \"host\" for \"cpu\"; \"none\": the data stay",
     one_of = {"none", "cpu", "nvme"}},
    {"nvme_path", "mapped", "string",
     "`offload.folder`, which is made if it is missing; if the blocks name two folders, all data are striped over both"},
    {"ratio", "mapped", "number",
     "`offload.ratio`, at every stage: the share of the bytes that travels, with those of offload_param; 1 when absent",
     between = {0, 1}, to = "offload.ratio"},
    {"buffer_count", "always", "integer", PLACES, at_least = 0, agrees = "any"},
    {"pin_memory", "always", "boolean", PINNED, agrees = "any"},
    {"pipeline_read", "always", "boolean", OVERLAP, agrees = "any"},
    {"pipeline_write", "always", "boolean", OVERLAP, agrees = "any"},
    {"fast_init", "always", "boolean", "initial values are written slice by slice", agrees = "any"},
    {"super_offload", "refused", "boolean",
     "a second process would update before it is known that gradients are finite, and take updates back; remove the key",
     default = false},
    {"cpuadam_cores_perc", "always", "number", "it has an effect with super_offload only, which is refused", between = {0, 1},
     agrees = "any"},
  }},
  {path = "zero_optimization.offload_param", fate = "mapped", text = MOVES, is_on = leaves_device, rows = {
    {"device", "mapped", "string",
     "`offload.parameters`, needs stage 3: \"nvme\", or \"host\" for \"cpu\"; \"none\": the data stay, as units below "
     .. "stage3_param_persistence_threshold do",
     one_of = {"none", "cpu", "nvme"}},
    {"nvme_path", "mapped", "string", "as in offload_optimizer"},
    {"max_in_cpu", "mapped", "integer",
     "`offload.memory` if device is \"nvme\": elements x bytes of a compute parameter that may stay in memory, of all data that "
     .. "would travel; when absent all travel", at_least = 0},
    {"buffer_count", "always", "integer", PLACES, at_least = 0, agrees = "any"},
    {"buffer_size", "always", "integer", PLACES, at_least = 0, agrees = "any"},
    {"pin_memory", "always", "boolean", PINNED, agrees = "any"},
  }},
  {path = "zero_optimization", extends = true, rows = {
    {"cpu_offload", "mapped", "boolean", "deprecated: as device \"cpu\" in offload_optimizer; `false` as \"none\""},
    {"cpu_offload_param", "mapped", "boolean", "deprecated: as device \"cpu\" in offload_param; `false` as \"none\""},
    {"cpu_offload_use_pin_memory", "always", "boolean", PINNED, agrees = "any"},
  }},
  {path = "aio", fate = "mapped", text = "`offload`: how files are read and written", rows = {
    {"block_size", "mapped", "integer", "`offload.block`: most bytes of one operation; when absent that of offload.move",
     at_least = 1, is_valid = function(bytes) return bytes % 4096 == 0 end, expected = "a multiple of 4096 bytes",
     to = "offload.block"},
    {"queue_depth", "mapped", "integer",
     "`offload.depth`: operations under way; when absent as many as the places in memory need", between = {1, 4096},
     to = "offload.depth"},
    {"intra_op_parallelism", "always", "integer", "io_uring needs no threads of ours (`thread_count` in older versions of "
     .. "DeepSpeed): `queue_depth` says what is under way", at_least = 1, agrees = "any"},
    {"single_submit", "always", "boolean", QUEUE, agrees = "any"},
    {"overlap_events", "always", "boolean", QUEUE, agrees = "any"},
    {"use_gds", "refused", "boolean", "files are read to and written from host memory; remove the key", default = false},
  }},
}
