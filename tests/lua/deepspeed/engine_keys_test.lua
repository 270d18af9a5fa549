-- Tests zt.initialize: every mapped key of a configuration changes the parts of the engine or its behaviour.
-- engine_reports_test.lua tests the keys of reports.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local keys = require "zt.deepspeed.keys"
local optim = require "zt.optim"
local stand_ins = require "support.stand_ins"
local values = require "support.ds_values"

-- Keys without an effect here: param_dtype is only checked against other keys, tag_validation only matters for checkpoints, and
-- engine_pipeline_test.lua tests pipelines, engine_experts_test.lua experts, engine_cut_test.lua cut matrices and tokens, and
-- hybrid/engine_generation_test.lua the hybrid engine.
local ELSEWHERE = {
  ["data_types.param_dtype"] = true, ["checkpoint.tag_validation"] = true, ["pipeline.stages"] = true,
  ["pipeline.partition"] = true, use_data_before_expert_parallelism = true, sequence_parallel_size = true,
  seq_parallel_communication_data_type = true, ["activation_checkpointing.partition_activations"] = true,
  ["pipeline.pipe_partitioned"] = true, ["pipeline.grad_partitioned"] = true,
}
local function is_elsewhere(entry)
  return ELSEWHERE[entry.main] or entry.main:find "^expert_parallel%." or entry.main:find "^tensor_parallel%."
    or entry.main:find "^hybrid_engine%."
end

local REPORTS = {tensorboard = true, csv_monitor = true, flops_profiler = true, comms_logger = true}
local function is_report(entry) return (entry.row.to or ""):find "^reports%." or REPORTS[entry.main:match "^[^.]+"] end

local function recorder(name)
  return function(options) return {kind = name, lr = options.lr, options = options} end
end

-- Returns the parts and the behaviour of an engine as text, to compare engines.
local function behaviour(engine, given)
  engine:train_batch{x = zt.zeros{engine:train_micro_batch_size_per_gpu() * engine:gradient_accumulation_steps(), 1}}
  local rates = {}
  for updates = 0, engine.rate and 30 or -1 do rates[#rates + 1] = engine.rate(updates) end
  return zt.json.encode{
    given = given, rates = rates, input = engine.trainer.batch.x:dtype(), batch = engine:train_batch_size(),
    micro = engine:train_micro_batch_size_per_gpu(), stage = engine:zero_optimization_stage(),
  }
end

-- Returns the engine's behaviour if the key of `entry` has `value`; nil if the configuration is refused.
local function try(entry, value)
  local level
  local stubs = {{zt.log, "set_level", function(name) level = name end}, {zt.world, "size", 4}}
  for _, name in ipairs {"adafactor", "adagrad", "adam", "adamw", "lamb", "lion", "muon", "sgd"} do
    stubs[#stubs + 1] = {optim, name, recorder(name)}
  end
  local undo = stand_ins.replace(stubs)
  local is_done, engine, given = pcall(stand_ins.build, values.configuration(entry, value), {auto = {optimizer = {lr = 1}}})
  undo()
  if not is_done then return nil end
  given.level = level
  return behaviour(engine, given)
end

local TestKeys = {}

function TestKeys:test_every_mapped_key_reaches_the_engine()
  local tried = 0
  for _, entry in ipairs(keys.list) do
    if entry.fate == "mapped" and not entry.block and not is_report(entry) and not is_elsewhere(entry) then
      local seen, count = {}, 0
      local function add(value)
        local result = try(entry, value)
        if result and not seen[result] then seen[result], count = true, count + 1 end
      end
      add(nil)
      for _, value in ipairs(values.candidates(entry)) do add(value) end
      lu.assertTrue(count >= 2, entry.path)
      tried = tried + 1
    end
  end
  lu.assertTrue(tried > 60)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestKeys", TestKeys}})
