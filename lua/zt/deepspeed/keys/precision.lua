--- Keys of fp16, bf16 (its old name is bfloat16) and torch_autocast. `precision.loss_scale` keeps DeepSpeed's names.

local infer = require "zt.deepspeed.values.infer"

local MASTER = "master weights and optimizer states are fp32; data_types.grad_accum_dtype makes the gradients 16 bits"

return {
  {path = "fp16", fate = "mapped", text = "`precision`", is_on = "enabled", rows = {
    {"enabled", "mapped", "boolean", "`precision.name` = \"fp16\"", auto = infer.precision "fp16"},
    {"auto_cast", "mapped", "boolean", "`precision.cast_inputs`: batch fields of floats are cast to the compute type",
     to = "precision.cast_inputs"},
    {"loss_scale", "mapped", "number", "`precision.loss_scale.loss_scale`: 0 is dynamic", at_least = 0},
    {"initial_scale_power", "mapped", "integer", "`precision.loss_scale.initial_scale_power`: the first scale is 2^n",
     between = {0, 127}},
    {"loss_scale_window", "mapped", "integer", "`precision.loss_scale.loss_scale_window`: good steps before the scale doubles"},
    {"hysteresis", "mapped", "integer", "`precision.loss_scale.hysteresis`: overflows before the scale is halved", at_least = 1},
    {"consecutive_hysteresis", "mapped", "boolean",
     "`precision.loss_scale.consecutive_hysteresis`: a good step restores the hysteresis"},
    {"min_loss_scale", "mapped", "integer", "`precision.loss_scale.min_loss_scale`: the scale never falls below"},
    {"fp16_master_weights_and_grads", "refused", "boolean", MASTER, default = false},
  }},

  {path = "bf16", fate = "mapped", text = "`precision`", is_on = "enabled", same = {"bfloat16"}, rows = {
    {"enabled", "mapped", "boolean", "`precision.name` = \"bf16\"", auto = infer.precision "bf16"},
    {"immediate_grad_update", "always", "boolean", "a layer's gradients join the sum when its backward ends", agrees = "any"},
    {"check_grad_overflow", "mapped", "boolean",
     "`precision.on_nonfinite`: \"skip\"; \"error\" if false, because an update with nan would silently spoil the run"},
    {"check_overflow", "refused", "boolean", "a former name; give check_grad_overflow"},
    {"bf16_master_weights_and_grads", "refused", "boolean", MASTER, default = false},
    {"bf16_optimizer_states", "refused", "boolean", MASTER, default = false},
  }},

  {path = "torch_autocast", fate = "refused", is_on = "enabled",
   text = "layers choose their types by themselves; for 16-bit training give \"bf16\": {\"enabled\": true} (or fp16)",
   inherit = {{"enabled", "boolean", default = false}, {"dtype", "string", is_dtype = true},
              {"lower_precision_safe_modules", "list"}}},
}
