--- Keys of optimizer. values/result_optim.lua lists the parameters of each optimizer.

local infer = require "zt.deepspeed.values.infer"

local IMPLEMENTATION = "there is one implementation, and it gives PyTorch's numbers"

local function are_betas(value)
  if #value ~= 2 then return false end
  for _, beta in ipairs(value) do
    if type(beta) ~= "number" or beta < 0 or beta >= 1 then return false end
  end
  return true
end

return {
  {path = "optimizer", fate = "mapped", text = "`optimizer`; without it the script's own is used", rows = {
    {"type", "mapped", "string",
     "`optimizer.name`: Adam (with adam_w_mode) and AdamW are adamw; the others keep their names"},
    {"legacy_fusion", "refused", "boolean", "there is one fused form of every optimizer; remove the key", default = false},
  }},

  {path = "optimizer.params", fate = "mapped",
   text = "`optimizer.options`, with `decay_all = true`: DeepSpeed decays norms and biases too", rows = {
    {"lr", "mapped", "number",
     "`optimizer.options.lr`; when absent 0.001, 0.01 for Adafactor and Adagrad; for Muon see muon_lr and adam_lr", at_least = 0,
     auto = infer.option("optimizer", "lr", "the learning rate")},
    {"betas", "mapped", "list",
     "`optimizer.options.betas`; {0.9, 0.999} when absent, for Lion too; {0.9, 0.95} for Muon's AdamW", is_valid = are_betas,
     expected = "two numbers from 0 up to but not including 1", auto = infer.option("optimizer", "betas", "betas", {0.9, 0.999})},
    {"eps", "mapped", "number", "`optimizer.options.eps`; when absent 1e-8, 1e-10 for Adagrad and Muon's AdamW", above = 0,
     auto = infer.option("optimizer", "eps", "eps", 1e-8)},
    {"weight_decay", "mapped", "number", "`optimizer.options.weight_decay`; 0 when absent (AdamW with torch_adam: 0.01)",
     at_least = 0, auto = infer.option("optimizer", "weight_decay", "the weight decay", 0)},
    {"momentum", "mapped", "number", "`optimizer.options.momentum` of SGD, and of Muon, where it is 0.95 when absent",
     between = {0, 1}},
    {"dampening", "mapped", "number", "`optimizer.options.dampening` of SGD", between = {0, 1}},
    {"nesterov", "mapped", "boolean", "`optimizer.options.nesterov` of SGD"},
    {"adam_w_mode", "mapped", "boolean", "`optimizer.name` of Adam: adam if false, else adamw. AdamW is always adamw"},
    {"bias_correction", "always", "boolean", "Adam's averages are corrected for their start at 0", default = true},
    {"torch_adam", "always", "boolean", IMPLEMENTATION .. "; it sets AdamW's weight_decay to 0.01 when absent", agrees = "any"},
    {"fp32_optimizer_states", "always", "boolean", "optimizer states are fp32", default = true},
    {"set_grad_none", "always", "boolean", "the first backward of a step overwrites the gradients, so nothing is cleared",
     agrees = "any"},
    {"foreach", "always", "boolean", IMPLEMENTATION, agrees = "any"},
    {"fused", "always", "boolean", IMPLEMENTATION, agrees = "any"},
    {"capturable", "always", "boolean", IMPLEMENTATION, agrees = "any"},
    {"differentiable", "refused", "boolean", "a step is not part of a graph; remove the key", default = false},
    {"amsgrad", "refused", "boolean", "DeepSpeed's own Adam refuses it too; use AdamW, or write the rule in modules/optim",
     default = false},
    {"maximize", "refused", "boolean", "a loss is minimised; return its negative", default = false},
    {"max_grad_norm", "refused", "number", "DeepSpeed refuses it too; give gradient_clipping", default = 0},
    {"max_coeff", "mapped", "number", "`optimizer.options.max_coeff` of Lamb", above = 0},
    {"min_coeff", "mapped", "number", "`optimizer.options.min_coeff` of Lamb", above = 0},
    {"eps_inside_sqrt", "refused", "boolean", "eps is added to the root, as in the paper; remove the key", default = false},
    {"lr_decay", "mapped", "number", "`optimizer.options.lr_decay` of Adagrad", at_least = 0},
    {"initial_accumulator_value", "mapped", "number", "`optimizer.options.initial_accumulator_value` of Adagrad", at_least = 0},
    {"beta2_decay", "mapped", "number", "`optimizer.options.beta2_decay` of Adafactor", between = {-1, 0}},
    {"d", "mapped", "number", "`optimizer.options.d` of Adafactor", at_least = 1},
    {"muon_lr", "mapped", "number", "`optimizer.options.lr` of Muon; lr when absent, or else 0.02", at_least = 0},
    {"adam_lr", "mapped", "number", "`optimizer.options.adamw.lr` of Muon; lr when absent, or else 0.0003", at_least = 0},
    {"ns_method", "always", "string", "DeepSpeed's methods compute the same iteration, and so does this one", agrees = "any"},
  }},
}
