--- zt.deepspeed.config: reads the JSON configuration of DeepSpeed 0.19.
--
--   local ds = require "zt.deepspeed.config"
--   local config = ds.read("ds_config.json", {world = mesh.dp.size, model = {hidden_size = 512}})
--
-- Every key of DeepSpeed's schema is known and has one fate: mapped into the result, accepted because ztoolkit always works so,
-- refused with what to use instead, refused as not built yet, or noted: not done, but the run goes on. A key without effect gives
-- an error or a note.

local check = require "zt.check"
local fail = require "zt.fail"
local fs = require "zt.fs"
local hjson = require "zt.deepspeed.hjson"
local judge = require "zt.deepspeed.values.judge"
local keys = require "zt.deepspeed.keys"
local new_mistakes = require("zt.deepspeed.values.mistakes").new
local result = require "zt.deepspeed.values.result"
local result_offload = require "zt.deepspeed.values.result_offload"
local result_optim = require "zt.deepspeed.values.result_optim"

local CONTEXT = {
  {"world", "integer", "number of data-parallel ranks", required = true, at_least = 1},
  {"batch", "table", "{global =, micro =, accumulation =} for \"auto\""},
  {"optimizer", "table", "{lr =, betas =, eps =, weight_decay =} for \"auto\"; schedules may need lr"},
  {"schedule", "table", "{warmup =, total =}, in steps, for \"auto\""},
  {"clip", "number", "largest gradient norm, for \"auto\"", at_least = 0},
  {"precision", "string", "for \"auto\"", one_of = {"fp32", "bf16", "fp16"}},
  {"model", "table", "{hidden_size =, vocab =} for \"auto\" and checks"},
  {"ranks", "table", "{tp =, cp =}: ranks that share matrices and tokens, on the script's own mesh"},
  {"strict", "boolean", "refuse the keys whose fate is noted", default = false},
  {"own_optimizer", "table", "{name =, options = {lr =}} of the script's own optimizer; schedules use its rate"},
}

local BATCH_KEYS = {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", ""}
local LOG_LEVELS = {debug = "debug", info = "info", warning = "warn", error = "error", critical = "error"}

local ds = {}

--- Stands for null if the configuration is a Lua table.
ds.null = hjson.null

--- Returns the configuration as a table. `source` is as of ds.read, which also takes this table.
function ds.load(source)
  if type(source) == "table" then return source end
  if type(source) ~= "string" then
    fail("a DeepSpeed configuration is a file's name, JSON text or a table, got %s", check.type_name(source))
  end
  if hjson.is_table(source) then return hjson.decode(source, "json") end
  local config = hjson.decode(fs.read(source), source)
  if type(config) ~= "table" or #config > 0 or config == hjson.null then
    fail("%s: a configuration is a table in braces { }, got %s", source, check.type_name(config))
  end
  return config
end

-- Returns a copy in which the deprecated `"zero_optimization": true` or `false` is a block.
local function normalised(config)
  local out = {}
  for key, value in pairs(config) do out[key] = value end
  if type(out.zero_optimization) == "boolean" then out.zero_optimization = {stage = out.zero_optimization and 1 or 0} end
  return out
end

-- Sets the field `place` of `out`: "name" or "group.name".
local function put(out, place, value)
  local group, key = place:match("^(.-)%.(.+)$")
  if not group then
    out[place] = value
    return
  end
  out[group] = out[group] or {}
  out[group][key] = value
end

-- Keys without an effect if a feature is off: its name, and whether it is on.
local function has_experts(given) return given["expert_parallel.enabled"] end
local function has_tensors(given, context) return result.tensor_size(given, context) > 1 end
local OPTIMIZER_IN_FILES = {"device 'nvme'", result_offload.optimizer_in_files}
local PARAMETERS_IN_FILES = {"device 'nvme'", result_offload.parameters_in_files}
local IN_FILES = {"device 'nvme' in offload_optimizer or offload_param", function(given)
  return result_offload.optimizer_in_files(given) or result_offload.parameters_in_files(given)
end}
local NEEDS = {
  use_data_before_expert_parallelism = {"expert_parallel", has_experts},
  ["activation_checkpointing.partition_activations"] = {"tensor_parallel", has_tensors},
  ["pipeline.pipe_partitioned"] = {"tensor_parallel", has_tensors},
  ["pipeline.grad_partitioned"] = {"tensor_parallel", has_tensors},
  seq_parallel_communication_data_type = {"sequence_parallel_size", result.has_cut_tokens},
  ["zero_optimization.offload_optimizer.nvme_path"] = OPTIMIZER_IN_FILES,
  ["zero_optimization.offload_param.nvme_path"] = PARAMETERS_IN_FILES,
  ["zero_optimization.offload_param.max_in_cpu"] = PARAMETERS_IN_FILES,
  ["aio.block_size"] = IN_FILES, ["aio.queue_depth"] = IN_FILES,
}

-- Copies given values into the result where a row has `to`. Leaves out keys that have no effect at `stage` or without a feature,
-- and says so in their notes.
local function put_given(out, given, notes, stage, context)
  local idle = {}
  for _, entry in ipairs(keys.list) do
    local row, value = entry.row, given[entry.main]
    if row.needs_stage and stage < row.needs_stage then
      idle[entry.path] = ("no effect at stage %d: it is for stage %d"):format(stage, row.needs_stage)
    elseif NEEDS[entry.main] and not NEEDS[entry.main][2](given, context) then
      if value then idle[entry.path] = "no effect without " .. NEEDS[entry.main][1] end
    elseif row.to and value ~= nil then
      put(out, row.to, value)
    end
  end
  for _, note in ipairs(notes) do note.reason = idle[note.key] or note.reason end
end

--- Reads `source`: a file's name, JSON text (comments, keys without quotes and a comma at the end are allowed), or a table.
-- `context` holds `world`, the number of data-parallel ranks, and the values for "auto": {batch = {global =, micro =,
-- accumulation =}, optimizer = {lr =, betas =, eps =, weight_decay =}, schedule = {warmup =, total =}, clip =, precision =,
-- model = {hidden_size =, vocab =}}. context.own_optimizer = {name =, options = {lr =}} is the script's own optimizer: schedules
-- use its rate, not the rate of the file's optimizer. context.ranks = {tp =, cp =} are those of the script's own mesh, for keys
-- that have an effect only where ranks share matrices or tokens. context.strict = true refuses the keys that are noted.
-- Returns a table. Fields marked with ? are absent unless given; then the engine uses its own default:
--
--   batch = {global, micro, accumulation}          samples per step; samples per rank's micro-batch; micro-batches per step
--   precision = {name = "fp32" | "bf16" | "fp16", on_nonfinite = "skip" | "error", cast_inputs = boolean,
--                loss_scale? = {loss_scale, initial_scale_power, loss_scale_window, hysteresis, consecutive_hysteresis,
--                               min_loss_scale}}  fp16 only; loss_scale 0 is dynamic
--   zero = {stage, reduce_every = "step" | "micro_batch", bucket_bytes?, gather_bucket_bytes?, grad_dtype?, reduce_dtype?,
--           overlap?, sub_group_size?, replicate?,  replicate: copies of the shards; ranks / replicate ranks share one copy
--           prefetch_elements?, persist_below?, persist_total?, max_live?, max_reuse_distance?}    stage 3 only; in elements
--   offload? = {optimizer?, gradients?, parameters?, folder?, ratio? or memory?, block?, depth?}  options of offload.move; the
--                                                  first three are "host" or "nvme"; absent: the device's memory
--   optimizer? = {name, options}                   for zt.optim[name](options); the names are those of zt.optim
--   schedule? = {name, options, rate}              DeepSpeed's names; rate(updates) is the learning rate after that many updates
--   clip?                                          largest gradient norm; absent: no clipping
--   communication_data_type? = "fp32" | "bf16" | "fp16"
--   recompute? = {every} or {checkpoints}          as given; both forms mean that layers are recomputed
--   pipeline? = {stages?, partition?}              as given; partition as DeepSpeed names it
--   experts? = {size, data_first, tensor_size, top_k?, router}  ranks along axis ep; its place in the mesh; ranks that share the
--                                                  matrices of an expert; options of moe.layers
--   tensor? = {size, sequence_parallel?, overlap?}  ranks along axis tp; options of nn.gpt. Absent with one rank
--   context? = {size, method = "ulysses"}          ranks along axis cp; options of nn.gpt. Absent with one rank
--   generator? = {tensor, max_context?, gathered, release}  ranks that share matrices in generation; an option of infer.engine;
--                                                  whether a rank has whole parameters; whether memory is freed after a phase
--   checkpoint = {tag_validation = "warn" | "ignore" | "fail"}
--   reports = {wall_clock_breakdown, memory_breakdown, dump_state, steps_per_print?, log_level?, csv_monitor? = {folder},
--              tensorboard? = {folder}, flops_profiler? = {step, top, detailed, file?}, comms_logger? = {verbose}}
--   notes = {{key, fate, reason}, ...}             every key that was given, in the order of ds.keys()
--   notices = {{key, text}, ...}                   what is not done, although the configuration asks for it; empty with strict
--
-- Fails for unknown keys (the message suggests the nearest one), keys given twice, wrong types, values out of range, and refused
-- keys. One error lists the mistakes of all keys with their paths. If the type of the optimizer or of the schedule is unknown,
-- the rest of its block is not judged. Values that change a run's numbers have DeepSpeed's defaults (clip 1, learning rate 0.001,
-- no weight decay).
function ds.read(source, context)
  context = check.options("deepspeed.config.read", CONTEXT, context)
  local config = normalised(ds.load(source))
  local mistakes = new_mistakes()
  for _, name in ipairs {"optimizer", "scheduler"} do -- the parameters cannot be judged if the type is unknown
    if not mistakes:try(name .. ".type", result_optim.check_type, config, name) then config[name] = nil end
  end
  local given, notes, notices = judge.run(keys.blocks, config, context, mistakes)
  local out = {
    batch = mistakes:try_with(BATCH_KEYS, result.batch, given, context),
    precision = mistakes:try_with({"fp16", "bf16", "data_types", "tensor_parallel"}, result.precision, given),
    checkpoint = {tag_validation = "warn"},
    reports = {wall_clock_breakdown = false, memory_breakdown = false, dump_state = false},
    notes = notes, notices = notices,
  }
  put_given(out, given, notes, given["zero_optimization.stage"] or 0, context)
  out.tensor = mistakes:try_with({"tensor_parallel", "pipeline", "activation_checkpointing"}, result.tensor, given, context)
  out.context = result.context(given)
  local typed = {"zero_optimization", "fp16", "bf16", "data_types", "tensor_parallel"}
  out.zero = mistakes:try_with(typed, result.zero, given, context, out)
  out.offload = mistakes:try_with({"aio", unpack(typed)}, result_offload.offload, given, config, out)
  out.optimizer = mistakes:try_with({"optimizer.type", "optimizer"}, result_optim.optimizer, given, config, mistakes)
  out.schedule = mistakes:try_with({"scheduler", "optimizer.type", "optimizer.params.lr"}, result_optim.schedule, given, config,
                                   context, context.own_optimizer or out.optimizer, mistakes)
  out.experts = mistakes:try_with({"expert_parallel"}, result.experts, given, context)
  out.generator = mistakes:try_with({"hybrid_engine", "zero_optimization"}, result.generator, given)
  out.recompute = mistakes:try_with({"activation_checkpointing", "pipeline"}, result.recompute, given, out)
  mistakes:raise()
  out.clip = given.gradient_clipping or 1
  if out.clip == 0 then out.clip = nil end
  out.reports.log_level = LOG_LEVELS[given.log_level]
  for name, report in pairs(result.reports(given)) do out.reports[name] = report end
  return out
end

-- Returns the size of an axis at `path` of the configuration, or nil. A value that ds.read refuses counts as absent.
local function axis_size(config, path)
  local at = config
  for name in path:gmatch "[^.]+" do at = type(at) == "table" and at[name] or nil end
  return type(at) == "number" and at == math.floor(at) and at >= 1 and at or nil
end

--- Returns the numbers of ranks along the axes that the configuration names beside data parallelism: {pp =, tp =, cp =}, of
-- pipeline.stages, tensor_parallel.autotp_size (or tp.tp_size) and sequence_parallel_size. `config` is the table that ds.load
-- returned. They are needed before ds.read, whose context has the number of data-parallel ranks.
function ds.sizes(config)
  check.argument("deepspeed.config.sizes", "the configuration", "table", config)
  local function size(path) return axis_size(config, path) end
  return {pp = size "pipeline.stages", cp = size "sequence_parallel_size",
          tp = size "tensor_parallel.autotp_size" or size "tensor_parallel.tp.tp_size"
            or size "tensor_parallel.tensor_parallel.tp_size"}
end

--- Returns all keys: {{path =, fate = "mapped" | "always" | "refused" | "not_yet" | "noted", text =}, ...}. A block is a key too.
function ds.keys()
  local out = {}
  for index, entry in ipairs(keys.list) do out[index] = {path = entry.path, fate = entry.fate, text = entry.text} end
  return out
end

--- Returns the keys with their fates as a Markdown table.
ds.table = keys.markdown

--- Returns the number of keys per fate: {mapped =, always =, refused =, not_yet =, noted =, all =}.
ds.counts = keys.counts

return ds
