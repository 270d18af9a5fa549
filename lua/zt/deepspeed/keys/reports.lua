--- Keys of monitors, of the FLOPs profiler and of the communication logger.

local METRICS = "until then zt.run writes metrics.jsonl, one line per step, and a plot"

-- Returns the block of a monitor.
local function monitor(name, fate, text, inherit)
  table.insert(inherit, 1, {"enabled", "boolean", default = false})
  return {path = name, fate = fate, text = text, is_on = "enabled", inherit = inherit}
end

return {
  monitor("tensorboard", "not_yet", METRICS, {{"output_path", "string"}, {"job_name", "string"}}),
  monitor("csv_monitor", "not_yet", METRICS, {{"output_path", "string"}, {"job_name", "string"}}),
  monitor("wandb", "noted", "nothing is sent to Weights & Biases during the run: give the script a zt.run, whose record "
    .. "`ztoolkit export-run RUN --wandb-offline FOLDER` writes for `wandb sync`", {
    {"group", "string"}, {"team", "string"}, {"project", "string"},
  }),
  monitor("comet", "noted", "nothing is sent to Comet: zt.run writes metrics.jsonl, "
    .. "`ztoolkit export-run RUN --mlflow FOLDER` a folder that MLflow reads", {
    {"samples_log_interval", "integer"}, {"project", "string"}, {"workspace", "string"}, {"api_key", "string"},
    {"experiment_name", "string"}, {"experiment_key", "string"}, {"online", "boolean"}, {"mode", "string"},
  }),

  {path = "flops_profiler", fate = "not_yet", is_on = "enabled",
   text = "until then wall_clock_breakdown and the run's trace.json say where time goes",
   inherit = {
     {"enabled", "boolean", default = false}, {"recompute_fwd_factor", "number"}, {"profile_step", "integer"},
     {"module_depth", "integer"}, {"top_modules", "integer"}, {"detailed", "boolean"}, {"output_file", "string"},
   }},

  {path = "comms_logger", fate = "not_yet", is_on = "enabled",
   text = "until then the run's trace.json has every call with its time",
   inherit = {
     {"enabled", "boolean", default = false}, {"verbose", "boolean"}, {"prof_all", "boolean"}, {"debug", "boolean"},
     {"prof_ops", "list"},
   }},
}
