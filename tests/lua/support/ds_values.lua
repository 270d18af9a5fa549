-- Makes DeepSpeed configurations in which one key has a given value, for tests that visit all keys.
local keys = require "zt.deepspeed.keys"

local ds_values = {}

-- The keys that turn on blocks, with their values.
local SWITCHES = {enabled = true, device = "cpu", autotp_size = 2}

-- Returns {a = {b = value}} for the path "a.b". A "*" becomes some name. Turns on the blocks of the path that have a switch.
local function nested(path, value)
  local config = {}
  local at, block = config, keys.blocks[""]
  for name in path:gmatch "([^.]+)%." do
    block = block.by_name[name].block
    local inner = {}
    for key, switch in pairs(SWITCHES) do
      if block.is_on and block.by_name[key] then inner[key] = switch end
    end
    at[name == "*" and "seqlen" or name] = inner
    at = inner
  end
  at[path:match "[^.]+$"] = value
  return config
end

-- Adds what a key of offloading requires: files, their folders, and stage 3.
local function complete_offload(entry, config)
  local zero = config.zero_optimization
  local needs_files = entry.key == "max_in_cpu" or entry.key == "nvme_path"
  for _, name in ipairs(type(zero) == "table" and {"offload_optimizer", "offload_param"} or {}) do
    local block = zero[name]
    if type(block) == "table" then
      if needs_files then block.device = "nvme" end
      if entry.key ~= "nvme_path" and block.device == "nvme" then block.nvme_path = "folder" end
    end
  end
  if entry.main:find "^zero_optimization%.offload_param%." or entry.key == "cpu_offload_param" then zero.stage = 3 end
  if entry.main:find "^aio%." then
    config.zero_optimization = {offload_optimizer = {device = "nvme", nvme_path = "folder"}}
  end
end

-- Adds the other keys that the key of `entry` requires.
local OF_OPTIMIZER = {
  momentum = "SGD", dampening = "SGD", nesterov = "SGD", foreach = "SGD", fused = "SGD", max_coeff = "Lamb", min_coeff = "Lamb",
  eps_inside_sqrt = "Lamb", lr_decay = "Adagrad", initial_accumulator_value = "Adagrad", beta2_decay = "Adafactor",
  d = "Adafactor", muon_lr = "Muon", adam_lr = "Muon", ns_method = "Muon",
}
local function complete(entry, config)
  config.train_micro_batch_size_per_gpu = config.train_micro_batch_size_per_gpu or 2
  local name = entry.key
  if type(config.optimizer) == "table" then config.optimizer.type = config.optimizer.type or OF_OPTIMIZER[name] or "Adam" end
  if name == "nesterov" then config.optimizer.params.momentum = 0.5 end
  if entry.path:find "^scheduler%.params%." then
    local kind = name:find "^lr_range" and "LRRangeTest" or name:find "ratio" and "WarmupCosineLR" or "WarmupDecayLR"
    if name:find "cycle" or name:find "decay" then kind = "OneCycle" end
    local others = {
      WarmupDecayLR = {total_num_steps = 40, warmup_num_steps = 8},
      WarmupCosineLR = {total_num_steps = 40, warmup_num_steps = 8},
      OneCycle = {cycle_min_lr = 0.25, cycle_max_lr = 0.75, cycle_momentum = false, cycle_first_step_size = 5,
                  decay_step_size = 2, decay_lr_rate = 1},
      LRRangeTest = {lr_range_test_step_size = 3},
    }
    config.scheduler.type = kind
    for key, value in pairs(others[kind]) do
      if config.scheduler.params[key] == nil then config.scheduler.params[key] = value end
    end
  end
  if name == "num_limited_groups" then config.expert_parallel.num_expert_groups = 16 end
  if name == "use_data_before_expert_parallelism" then config.expert_parallel = {enabled = true} end
  if name == "tp_size" and entry.main:find "^tensor_parallel%.tp%." then
    config.tensor_parallel.autotp_size = nil -- two numbers for the same ranks contradict each other
  end
  local is_shared = name == "partition_activations" or name:find "_partitioned$"
  if is_shared then config.tensor_parallel = {autotp_size = 2} end
  if name == "seq_parallel_communication_data_type" then config.sequence_parallel_size = 2 end
  if name == "allgather_size" then config.zero_optimization = true end
  if name == "allgather_bucket_size" then config.zero_optimization.stage = 1 end
  complete_offload(entry, config)
  local zero = config.zero_optimization
  if type(zero) == "table" and entry.row.needs_stage then zero.stage = entry.row.needs_stage end
  return config
end

--- Returns the values to try: some of each type of the key, and those in its row.
function ds_values.candidates(entry)
  local row, out = entry.row, {}
  local by_type = {
    boolean = {true, false}, integer = {1, 2, 4, 8, 16, 4096}, number = {0.25, 0.5, 2, -0.5}, list = {{0.75, 0.875}, {"x"}},
    table = {{x = 1}},
    any = {true, {x = 1}}, string = {"x", "fp32", "bf16", "SGD", "Lion", "WarmupLR", "LRRangeTest"},
  }
  for name in entry.type:gmatch "%a+" do
    for _, value in ipairs(by_type[name]) do out[#out + 1] = value end
  end
  for _, list in ipairs {row.one_of or {}, type(row.agrees) == "table" and row.agrees or {}, {row.default}} do
    for _, value in ipairs(list) do out[#out + 1] = value end
  end
  return out
end

--- Returns a configuration in which the key of `entry` has `value`, with the other keys that it requires.
function ds_values.configuration(entry, value) return complete(entry, nested(entry.path, value)) end

return ds_values
