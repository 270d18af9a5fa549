--- Keys of monitors, of the FLOPs profiler and of the communication logger.

local METRICS = "until then zt.run writes metrics.jsonl, one line per step, and a plot"

local function monitor(name, inherit)
  table.insert(inherit, 1, {"enabled", "boolean", default = false})
  return {path = name, fate = "not_yet", text = METRICS, is_on = "enabled", inherit = inherit}
end

return {
  monitor("tensorboard", {{"output_path", "string"}, {"job_name", "string"}}),
  monitor("csv_monitor", {{"output_path", "string"}, {"job_name", "string"}}),
  monitor("wandb", {{"group", "string"}, {"team", "string"}, {"project", "string"}}),
  monitor("comet", {
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
