--- Keys of scheduler. The rates are in schedules.lua, step for step DeepSpeed's.

local infer = require "zt.deepspeed.values.infer"

local MOMENTUM = "an optimizer's betas do not change during a run; give \"cycle_momentum\": false"

-- A row of a number that goes to `schedule.options` under its own name.
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
    option("warmup_max_lr", "number", "their peak; when absent the optimizer's rate, 0.001 for WarmupDecayLR",
           {at_least = 0, auto = infer.peak}),
    option("warmup_num_steps", "integer", "steps on the way up; 1000 when absent",
           {at_least = 1, auto = infer.option("schedule", "warmup", "the steps of the warm-up")}),
    option("warmup_type", "string", "shape of the way up; 'log' when absent", {one_of = {"log", "linear"}}),
    option("total_num_steps", "integer", "steps in all, of WarmupDecayLR and WarmupCosineLR",
           {at_least = 1, auto = infer.option("schedule", "total", "the number of steps in all")}),
    option("warmup_min_ratio", "number", "WarmupCosineLR begins at that share of the optimizer's rate", {between = {0, 1}}),
    option("cos_min_ratio", "number", "and ends at that share", {between = {0, 1}}),
    option("lr_range_test_min_lr", "number", "first rate of LRRangeTest", {at_least = 0}),
    option("lr_range_test_step_size", "integer", "its steps between two rates", {at_least = 1}),
    option("lr_range_test_step_rate", "number", "its growth, in first rates", {at_least = 0}),
    option("lr_range_test_staircase", "boolean", "whether it grows in steps"),
    option("cycle_min_lr", "number", "lowest rate of OneCycle", {at_least = 0}),
    option("cycle_max_lr", "number", "its highest rate", {at_least = 0}),
    option("decay_lr_rate", "number", "its decay after the cycle", {at_least = 0}),
    option("cycle_first_step_size", "number", "its steps on the way up", {above = 0}),
    option("cycle_second_step_size", "number", "its steps on the way down", {at_least = 0}),
    option("cycle_first_stair_count", "integer", "its stairs on the way up", {at_least = 0}),
    option("cycle_second_stair_count", "integer", "its stairs on the way down", {at_least = 0}),
    option("decay_step_size", "number", "its steps between two decays", {at_least = 0}),
    {"cycle_momentum", "not_yet", "boolean", MOMENTUM},
    {"cycle_min_mom", "not_yet", "number", MOMENTUM, default = 0.8},
    {"cycle_max_mom", "not_yet", "number", MOMENTUM, default = 0.9},
    {"decay_mom_rate", "not_yet", "number", MOMENTUM, default = 0},
    {"last_batch_iteration", "refused", "integer", "a resumed run knows its step; resume from a checkpoint", default = -1},
  }},
}
