--- Keys of monitors, of the FLOPs profiler and of the communication logger.

local LOGGED = "the choice has no effect: every exchange is recorded, by kind of action"

-- Returns the block of a monitor whose files the engine writes.
local function written(name, files)
  return {path = name, fate = "mapped", text = ("`reports.%s`: %s"):format(name, files), is_on = "enabled", rows = {
    {"enabled", "mapped", "boolean", "rank 0 writes DeepSpeed's numbers after every step, by samples", default = false},
    {"output_path", "mapped", "string", "the folder of `job_name`; when absent, the current folder"},
    {"job_name", "mapped", "string", "the folder of the files, `DeepSpeedJobName` when absent"},
  }}
end

-- Returns the block of a monitor that sends its numbers to a server.
local function noted(name, text, inherit)
  table.insert(inherit, 1, {"enabled", "boolean", default = false})
  return {path = name, fate = "noted", text = text, is_on = "enabled", inherit = inherit}
end

return {
  written("tensorboard", "event files for TensorBoard, a new one per start"),
  written("csv_monitor", "a CSV file per number, such as `Train_Samples_lr.csv`; a later start appends"),
  noted("wandb", "nothing is sent to Weights & Biases during the run: give the script a zt.run, whose record "
    .. "`ztoolkit export-run RUN --wandb-offline FOLDER` writes for `wandb sync`", {
    {"group", "string"}, {"team", "string"}, {"project", "string"},
  }),
  noted("comet", "nothing is sent to Comet: zt.run writes metrics.jsonl, "
    .. "`ztoolkit export-run RUN --mlflow FOLDER` a folder that MLflow reads", {
    {"samples_log_interval", "integer"}, {"project", "string"}, {"workspace", "string"}, {"api_key", "string"},
    {"experiment_name", "string"}, {"experiment_key", "string"}, {"online", "boolean"}, {"mode", "string"},
  }),

  {path = "flops_profiler", fate = "mapped", is_on = "enabled",
   text = "`reports.flops_profiler`: operations of one step, counted without running it, and their times, by pass and layer",
   rows = {
     {"enabled", "mapped", "boolean", "prints the operations and times of one step of rank 0", default = false},
     {"profile_step", "mapped", "integer", "`step`: the number of steps before the one that is profiled; 1 when absent",
      at_least = 0},
     {"top_modules", "mapped", "integer", "`top`: the number of layers with most operations, if not `detailed`; 1 when absent",
      at_least = 1},
     {"detailed", "mapped", "boolean", "`detailed`: all layers in the model's order, true when absent"},
     {"output_file", "mapped", "string", "`file`: where the report goes instead of standard output"},
     {"recompute_fwd_factor", "always", "number", "recomputing is counted and not estimated", agrees = "any"},
     {"module_depth", "always", "integer", "the layers of the model's list are one level", agrees = "any"},
   }},

  {path = "comms_logger", fate = "mapped", is_on = "enabled",
   text = "`reports.comms_logger`: calls, times and bytes of rank 0, with progress lines and by `engine:log_summary()`",
   rows = {
     {"enabled", "mapped", "boolean", "records the exchanges of rank 0 with other ranks", default = false},
     {"verbose", "mapped", "boolean", "`verbose`: one line per step"},
     {"debug", "always", "boolean", "a record has the kind of the action that made the exchange", agrees = "any"},
     {"prof_all", "noted", "boolean", LOGGED, default = true},
     {"prof_ops", "noted", "list", LOGGED, default = {}},
   }},
}
