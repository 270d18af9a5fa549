--- Keys of offloading to host memory and NVMe.

local HOST = "optimizer states in host memory or on NVMe; stages 1 to 3 shard them over the ranks instead"
local PARAMETERS = "parameters in host memory or on NVMe; stage 3 shards them over the ranks instead"

local function leaves_device(block) return type(block.device) == "string" and block.device ~= "none" end

return {
  {path = "zero_optimization.offload_optimizer", fate = "not_yet", text = HOST, is_on = leaves_device,
   inherit = {
     {"device", "string", default = "none", one_of = {"none", "cpu", "nvme"}}, {"nvme_path", "string"},
     {"buffer_count", "integer", default = 4, at_least = 0}, {"pin_memory", "boolean", default = true},
     {"pipeline_read", "boolean", default = false}, {"pipeline_write", "boolean", default = false},
     {"fast_init", "boolean", default = false}, {"ratio", "number", default = 1, between = {0, 1}},
     {"super_offload", "boolean", default = false}, {"cpuadam_cores_perc", "number", default = 0.8, between = {0, 1}},
   }},
  {path = "zero_optimization.offload_param", fate = "not_yet", text = PARAMETERS, is_on = leaves_device,
   inherit = {
     {"device", "string", default = "none", one_of = {"none", "cpu", "nvme"}}, {"nvme_path", "string"},
     {"buffer_count", "integer", default = 5, at_least = 0}, {"buffer_size", "integer", default = 1e8, at_least = 0},
     {"max_in_cpu", "integer", default = 1e9, at_least = 0}, {"pin_memory", "boolean", default = true},
   }},
  {path = "zero_optimization", extends = true, rows = {
    {"cpu_offload", "not_yet", "boolean", HOST .. " (deprecated: offload_optimizer)", default = false},
    {"cpu_offload_param", "not_yet", "boolean", PARAMETERS .. " (deprecated: offload_param)", default = false},
    {"cpu_offload_use_pin_memory", "not_yet", "boolean", HOST .. " (deprecated: pin_memory of both blocks)", default = false},
  }},
  {path = "aio", fate = "not_yet", text = "reading and writing NVMe; leave the block out",
   inherit = {
     {"block_size", "integer", default = 1048576, at_least = 1}, {"queue_depth", "integer", default = 8, at_least = 1},
     {"intra_op_parallelism", "integer", default = 1, at_least = 1}, {"single_submit", "boolean", default = false},
     {"overlap_events", "boolean", default = true}, {"use_gds", "boolean", default = false},
   }},
}
