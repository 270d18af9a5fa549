--- Keys of optimizer. values/result_optim.lua lists the parameters of each optimizer.

local infer = require "zt.deepspeed.values.infer"

local LAMB = "Lamb; give Adam, AdamW, Lion or SGD"
local ADAGRAD = "Adagrad; give Adam, AdamW, Lion or SGD"
local MUON = "Muon; give Adam, AdamW, Lion or SGD"
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
     "`optimizer.name`: Adam (with adam_w_mode) and AdamW are adamw, Lion lion, SGD sgd; Adagrad, Lamb, Muon: not built yet"},
    {"legacy_fusion", "refused", "boolean", "there is one fused form of every optimizer; remove the key", default = false},
  }},

  {path = "optimizer.params", fate = "mapped",
   text = "`optimizer.options`, with `decay_all = true`: DeepSpeed decays norms and biases too", rows = {
    {"lr", "mapped", "number", "`optimizer.options.lr`; 0.001 when absent", at_least = 0,
     auto = infer.option("optimizer", "lr", "the learning rate")},
    {"betas", "mapped", "list", "`optimizer.options.betas`; {0.9, 0.999} when absent, for Lion too", is_valid = are_betas,
     expected = "two numbers from 0 up to but not including 1", auto = infer.option("optimizer", "betas", "betas", {0.9, 0.999})},
    {"eps", "mapped", "number", "`optimizer.options.eps`; 1e-8 when absent", above = 0,
     auto = infer.option("optimizer", "eps", "eps", 1e-8)},
    {"weight_decay", "mapped", "number", "`optimizer.options.weight_decay`; 0 when absent (AdamW with torch_adam: 0.01)",
     at_least = 0, auto = infer.option("optimizer", "weight_decay", "the weight decay", 0)},
    {"momentum", "mapped", "number", "`optimizer.options.momentum` of SGD", between = {0, 1}},
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
    {"max_coeff", "not_yet", "number", LAMB},
    {"min_coeff", "not_yet", "number", LAMB},
    {"eps_inside_sqrt", "not_yet", "boolean", LAMB},
    {"lr_decay", "not_yet", "number", ADAGRAD},
    {"initial_accumulator_value", "not_yet", "number", ADAGRAD},
    {"muon_lr", "not_yet", "number", MUON},
    {"adam_lr", "not_yet", "number", MUON},
    {"ns_method", "not_yet", "string", MUON},
  }},
}
