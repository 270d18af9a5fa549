-- Tests zt.deepspeed.config: the keys of reports, features that are noted, and values of other types that DeepSpeed takes.
local lu = require "luaunit"
local ds = require "zt.deepspeed.config"

local function read(source, context)
  local full = {world = 4}
  for key, value in pairs(context or {}) do full[key] = value end
  return ds.read(source, full)
end

-- Reads a configuration with a batch size and `more`.
local function with(more, context) return read("{train_batch_size: 8, " .. more .. "}", context) end

local TestReports = {}

function TestReports:test_what_is_noted_does_not_stop_a_run()
  local more = 'wandb: {enabled: true, project: "x"}, comet: {enabled: true, online: false}'
  local config = with(more)
  lu.assertEquals(#config.notices, 2)
  lu.assertEquals(config.notices[1].key, "wandb")
  lu.assertStrContains(config.notices[1].text, "`ztoolkit export-run RUN --wandb-offline FOLDER`")
  lu.assertEquals(config.notices[2].key, "comet")
  for _, note in ipairs(config.notes) do lu.assertEquals(note.fate, note.key:find "^train" and "mapped" or "noted") end
  for _, off in ipairs{'wandb: {project: "x"}', "wandb: {enabled: false}", "wandb: null", "wandb: false"} do
    lu.assertEquals(with(off, {strict = true}).notices, {}, off)
  end
  lu.assertErrorMsgContains("wandb.team must be a string, got 1", with, "wandb: {enabled: true, team: 1}")
  local logger = "comms_logger: {enabled: true, prof_all: %s, prof_ops: [%s]}"
  lu.assertEquals(with(logger:format("true", "")).notices, {})
  config = with(logger:format("false", '"all_reduce"'))
  lu.assertEquals({#config.notices, config.notices[1].key, config.notices[2].key},
                  {2, "comms_logger.prof_all", "comms_logger.prof_ops"})
  lu.assertErrorMsgContains("comms_logger.prof_all is not done", with, logger:format("false", ""), {strict = true})
  for _, part in ipairs{"2 mistakes", "wandb is not done, and strict = true refuses that: nothing is sent", "comet is not"} do
    lu.assertErrorMsgContains(part, with, more, {strict = true})
  end
end

function TestReports:test_reports()
  local function reports(more) return with(more).reports end
  lu.assertEquals(reports('csv_monitor: {enabled: true}').csv_monitor, {folder = "DeepSpeedJobName"})
  lu.assertEquals(reports('tensorboard: {enabled: true, output_path: "out/", job_name: "j"}').tensorboard, {folder = "out/j"})
  lu.assertEquals(reports('csv_monitor: {enabled: true, output_path: "out", job_name: "/j"}').csv_monitor, {folder = "/j"})
  lu.assertNil(reports('csv_monitor: {output_path: "out"}').csv_monitor)
  lu.assertEquals(reports("flops_profiler: {enabled: true}").flops_profiler, {step = 1, top = 1, detailed = true})
  local given = 'flops_profiler: {enabled: true, profile_step: 0, top_modules: 3, detailed: false, output_file: "%s"}'
  lu.assertEquals(reports(given:format "f").flops_profiler, {step = 0, top = 3, detailed = false, file = "f"})
  lu.assertNil(reports(given:format "").flops_profiler.file)
  lu.assertEquals(reports("comms_logger: {enabled: true}").comms_logger, {verbose = false})
end

-- DeepSpeed's users write these values of other types, and DeepSpeed takes them.
function TestReports:test_values_of_other_types()
  lu.assertNil(with("steps_per_print: Infinity").reports.steps_per_print)
  lu.assertNil(read{train_batch_size = 8, steps_per_print = math.huge}.reports.steps_per_print)
  lu.assertEquals(with("steps_per_print: 1e9").reports.steps_per_print, 1e9)
  lu.assertErrorMsgContains("steps_per_print must be an integer, got -inf", read,
                            {train_batch_size = 8, steps_per_print = -math.huge})
  lu.assertErrorMsgContains("gradient_accumulation_steps must be an integer, got inf", with,
                            "gradient_accumulation_steps: Infinity")
  lu.assertNil(with("activation_checkpointing: {number_checkpoints: false}").recompute)
  lu.assertErrorMsgContains("number_checkpoints must be an integer, got true", with,
                            "activation_checkpointing: {number_checkpoints: true}")
  lu.assertNil(with("gradient_clipping: false").clip)
  lu.assertEquals(with("zero_optimization: {stage: 2, reduce_bucket_size: 5e8}").zero.bucket_bytes, 2e9)
  local persist = "zero_optimization: {stage: 3, model_persistence_threshold: %s}"
  for _, none in ipairs{"9223372036854775807", "Infinity"} do lu.assertNil(with(persist:format(none)).zero.persist_total) end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestReports", TestReports}})
