--- Keys of scheduler. values/schedules.lua computes the rates, which equal DeepSpeed's at every step.

local infer = require "zt.deepspeed.values.infer"

local MOMENTUM = "an optimizer's betas do not change during a run; give \"cycle_momentum\": false"

-- Returns a row for a value that goes to `schedule.options` under its own name.
local function option(name, kind, text, more)
  local row = {name, "mapped", kind, "`schedule.options`: " .. text}
  for key, value in pairs(more or {}) do row[key] = value end
  return row
end

return {
  {path = "scheduler", fate = "mapped", text = "`schedule`; without it the script's own is used", rows = {
    {"type", "mapped", "string", "`schedule.name`: WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle or LRRangeTest; "
      .. "a scheduler of PyTorch: not built yet"},
  }},

  {path = "scheduler.params", fate = "mapped", text = "`schedule.options` and `schedule.rate`", rows = {
    option("warmup_min_lr", "number", "first rate of WarmupLR and WarmupDecayLR", {at_least = 0, auto = infer.zero}),
    option("warmup_max_lr", "number",
           "peak of WarmupLR (when absent the optimizer's rate) and of WarmupDecayLR (when absent 0.001)",
           {at_least = 0, auto = infer.peak}),
    option("warmup_num_steps", "integer", "steps of the warm-up; 1000 when absent",
           {at_least = 1, auto = infer.option("schedule", "warmup", "the steps of the warm-up")}),
    option("warmup_type", "string", "shape of the warm-up; 'log' when absent", {one_of = {"log", "linear"}}),
    option("total_num_steps", "integer", "total number of steps of WarmupDecayLR and WarmupCosineLR",
           {at_least = 1, auto = infer.option("schedule", "total", "the total number of steps")}),
    option("warmup_min_ratio", "number", "WarmupCosineLR starts at this fraction of the optimizer's rate", {between = {0, 1}}),
    option("cos_min_ratio", "number", "WarmupCosineLR ends at this fraction of the optimizer's rate", {between = {0, 1}}),
    option("lr_range_test_min_lr", "number", "first rate of LRRangeTest", {at_least = 0}),
    option("lr_range_test_step_size", "integer", "steps per interval of LRRangeTest", {at_least = 1}),
    option("lr_range_test_step_rate", "number", "growth per interval of LRRangeTest, as a multiple of its first rate",
           {at_least = 0}),
    option("lr_range_test_staircase", "boolean", "whether LRRangeTest changes the rate only between intervals"),
    option("cycle_min_lr", "number", "lowest rate of OneCycle", {at_least = 0}),
    option("cycle_max_lr", "number", "highest rate of OneCycle", {at_least = 0}),
    option("decay_lr_rate", "number", "decay of OneCycle after the cycle", {at_least = 0}),
    option("cycle_first_step_size", "number", "steps in which OneCycle rises", {above = 0}),
    option("cycle_second_step_size", "number", "steps in which OneCycle falls", {at_least = 0}),
    option("cycle_first_stair_count", "integer", "stairs in which OneCycle rises; 0: none", {at_least = 0}),
    option("cycle_second_stair_count", "integer", "stairs in which OneCycle falls; 0: none", {at_least = 0}),
    option("decay_step_size", "number", "steps per decay of OneCycle", {at_least = 0}),
    {"cycle_momentum", "not_yet", "boolean", MOMENTUM},
    {"cycle_min_mom", "not_yet", "number", MOMENTUM, default = 0.8},
    {"cycle_max_mom", "not_yet", "number", MOMENTUM, default = 0.9},
    {"decay_mom_rate", "not_yet", "number", MOMENTUM, default = 0},
    {"last_batch_iteration", "refused", "integer", "a resumed run knows its step; resume from a checkpoint", default = -1},
  }},
}
