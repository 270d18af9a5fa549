--- Makes the fields `optimizer` and `schedule` of the result of ds.read.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local hjson = require "zt.deepspeed.hjson"
local schedules = require "zt.deepspeed.values.schedules"

local result_optim = {}

-- DeepSpeed's optimizers that modules/optim has: the name in zt.optim, DeepSpeed's defaults, the names of other parameters that
-- are accepted, and a function that makes the options from DeepSpeed's where these have other names.
local ADAM_ONLY = "bias_correction adam_w_mode torch_adam fp32_optimizer_states set_grad_none amsgrad foreach fused capturable "
  .. "differentiable maximize max_grad_norm"
-- DeepSpeed gives embeddings, heads and what is no matrix to AdamW, with rates of its own.
local function muon_options(given)
  return {
    lr = given.muon_lr or given.lr or 0.02, momentum = given.momentum, weight_decay = given.weight_decay,
    adamw = {lr = given.adam_lr or given.lr or 3e-4, betas = given.betas, eps = given.eps},
  }
end

local OPTIMIZERS = {
  adam = {name = "adamw", defaults = {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0}, others = ADAM_ONLY},
  adamw = {name = "adamw", defaults = {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0}, others = ADAM_ONLY},
  lion = {name = "lion", defaults = {lr = 1e-3, betas = {0.9, 0.999}, weight_decay = 0},
          others = "set_grad_none fp32_optimizer_states max_grad_norm"},
  sgd = {name = "sgd", defaults = {lr = 1e-3, momentum = 0, dampening = 0, nesterov = false, weight_decay = 0},
         others = "maximize foreach differentiable fused max_grad_norm"},
  adagrad = {name = "adagrad", defaults = {lr = 1e-2, lr_decay = 0, initial_accumulator_value = 0, eps = 1e-10, weight_decay = 0},
             others = "maximize foreach differentiable fused max_grad_norm"},
  adafactor = {name = "adafactor", defaults = {lr = 1e-2, beta2_decay = -0.8, d = 1, weight_decay = 0},
               others = "maximize foreach max_grad_norm"},
  lamb = {name = "lamb",
          defaults = {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, min_coeff = 0.01, max_coeff = 10, weight_decay = 0},
          others = "bias_correction eps_inside_sqrt amsgrad max_grad_norm"},
  muon = {name = "muon", defaults = {momentum = 0.95, weight_decay = 0, betas = {0.9, 0.95}, eps = 1e-10},
          others = "lr muon_lr adam_lr ns_method max_grad_norm", options = muon_options},
}
local NAMES = {"Adafactor", "Adagrad", "Adam", "AdamW", "Lamb", "Lion", "Muon", "SGD"}

-- DeepSpeed's other optimizers and schedules, and those of PyTorch that DeepSpeed accepts by name.
local OTHER_OPTIMIZERS = {
  "OneBitAdam", "OneBitLamb", "ZeroOneAdam", "MuAdam", "MuAdamW", "MuSGD", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam",
  "ASGD", "Rprop", "LBFGS", "SparseAdam",
}
local OTHER_SCHEDULES = {
  "LambdaLR", "MultiplicativeLR", "StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR", "CosineAnnealingLR",
  "ReduceLROnPlateau", "CyclicLR", "OneCycleLR", "CosineAnnealingWarmRestarts", "PolynomialLR", "SequentialLR",
  "ChainedScheduler",
}

-- Fails with the message that the type `name` is not built yet (if it is among `others`) or unknown.
local function refuse_type(path, name, known, others, use)
  local names = {}
  for _, other in ipairs(others) do
    if other:lower() == name:lower() then fail("%s = '%s' is not built yet: %s", path, name, use) end
    names[#names + 1] = other
  end
  for _, known_name in ipairs(known) do names[#names + 1] = known_name end
  fail("%s = '%s' is unknown%s", path, name, core.suggest(name, names))
end

-- Returns the block `name` without its null keys; nil if the block is absent or null.
local function block_of(config, name)
  local block = config and config[name]
  if type(block) ~= "table" or block == hjson.null then return nil end
  local out = {}
  for key, value in pairs(block) do
    if value ~= hjson.null then out[key] = value end
  end
  return out
end

-- Adds a mistake for every parameter in `params` that is neither a key of `options` nor a word in `others`.
local function check_params(path, type_name, params, options, others, mistakes)
  local names, is_allowed = {}, {}
  for name in pairs(options) do names[#names + 1] = name end
  for name in others:gmatch("%S+") do names[#names + 1] = name end
  for _, name in ipairs(names) do is_allowed[name] = true end
  table.sort(names)
  for _, name in ipairs(check.sorted_keys(params)) do
    local key_path = path .. ".params." .. name
    if not is_allowed[name] then
      mistakes:try(key_path, fail, "%s is no parameter of %s%s", key_path, type_name, core.suggest(name, names))
    end
  end
end

-- Returns `defaults`, replaced by the given values of the parameters in `params`.
local function merged(defaults, given, path, params)
  local options = {}
  for name, default in pairs(defaults) do options[name] = default end
  for name in pairs(params) do
    local value = given[path .. ".params." .. name]
    if value ~= nil then options[name] = value end
  end
  return options
end

local function check_optimizer(name)
  if OPTIMIZERS[name:lower()] then return end
  refuse_type("optimizer.type", name, NAMES, OTHER_OPTIMIZERS,
              ("give %s, or write it with zt.optimizer"):format(table.concat(NAMES, ", ")))
end

local function check_schedule(name)
  if schedules[name] then return end
  refuse_type("scheduler.type", name, {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest"},
              OTHER_SCHEDULES, "give one of DeepSpeed's own, or leave scheduler out and give a schedule of zt.optim")
end

local CHECKS = {optimizer = check_optimizer, scheduler = check_schedule}

--- Fails if the type in the block "optimizer" or "scheduler" is unknown or not built yet. Otherwise returns true: the rest of the
-- block, which depends on the type, can be judged.
function result_optim.check_type(config, block_name)
  local block = block_of(config, block_name)
  if block and type(block.type) == "string" then CHECKS[block_name](block.type) end
  return true
end

--- Returns the field `optimizer` of the result, or nil if the configuration has none. Adds parameters that the optimizer does not
-- have to `mistakes`.
function result_optim.optimizer(given, config, mistakes)
  local block = block_of(config, "optimizer")
  if not block then return nil end
  local name = given["optimizer.type"] or fail("optimizer.type is missing: it names the optimizer, as in \"AdamW\"")
  local kind = OPTIMIZERS[name:lower()]
  local params = block_of(block, "params") or {}
  check_params("optimizer", name, params, kind.defaults, kind.others, mistakes)
  local options = merged(kind.defaults, given, "optimizer", params)
  if kind.options then options = kind.options(options) end
  options.decay_all, options.adam_w_mode = true, nil
  if name:lower() == "adamw" and params.torch_adam and params.weight_decay == nil then options.weight_decay = 0.01 end
  return {name = name:lower() == "adam" and params.adam_w_mode == false and "adam" or kind.name, options = options}
end

local NONE = {} -- marks an option without a default, which must be given

-- Returns the parameters of DeepSpeed's schedules with their defaults. `peak` is the optimizer's rate or nil.
local function schedule_defaults(peak)
  local function warmup(more)
    local out = {warmup_num_steps = 1000, warmup_type = "log"}
    for key, value in pairs(more) do out[key] = value end
    return out
  end
  return {
    WarmupLR = warmup{warmup_min_lr = 0, warmup_max_lr = peak or NONE},
    WarmupDecayLR = warmup{warmup_min_lr = 0, warmup_max_lr = 1e-3, total_num_steps = NONE},
    WarmupCosineLR = warmup{warmup_min_ratio = 0, cos_min_ratio = 1e-4, total_num_steps = NONE, base_lr = peak or NONE},
    LRRangeTest = {lr_range_test_min_lr = 1e-3, lr_range_test_step_size = 2000, lr_range_test_step_rate = 1,
                   lr_range_test_staircase = false},
    OneCycle = {cycle_min_lr = NONE, cycle_max_lr = NONE, decay_lr_rate = 0, cycle_first_step_size = 2000,
                cycle_second_step_size = false, cycle_first_stair_count = 0, cycle_second_stair_count = false,
                decay_step_size = 0},
  }
end

local OTHERS_OF_CYCLE = "cycle_momentum cycle_min_mom cycle_max_mom decay_mom_rate"

-- Fills in the defaults that depend on other parameters.
local function completed(name, options, params, optimizer)
  if name == "OneCycle" then
    options.cycle_second_step_size = options.cycle_second_step_size or options.cycle_first_step_size
    options.cycle_second_stair_count = options.cycle_second_stair_count or options.cycle_first_stair_count
    if params.cycle_momentum == nil and not (optimizer and optimizer.name == "sgd") then
      fail("scheduler.params.cycle_momentum is true when absent, and changing momentum is not built yet: "
        .. "give \"cycle_momentum\": false")
    end
  elseif options.warmup_num_steps then
    options.warmup_num_steps = math.max(2, options.warmup_num_steps)
  end
  return options
end

-- Adds a mistake for every missing option that has no default.
local function check_needed(name, options, mistakes)
  for _, key in ipairs(check.sorted_keys(options)) do
    if options[key] == NONE then
      local hint = key == "base_lr" and "the optimizer's learning rate: give optimizer = {lr = ...}"
        or ("scheduler.params.%s: give it"):format(key)
      mistakes:try("scheduler.params." .. key, fail, "scheduler.type = '%s' needs %s", name, hint)
    end
  end
end

--- Returns the field `schedule` of the result, or nil if the configuration has none. If a parameter is wrong, adds the mistake to
-- `mistakes` and returns nil.
function result_optim.schedule(given, config, context, optimizer, mistakes)
  local block = block_of(config, "scheduler")
  if not block then return nil end
  local name = given["scheduler.type"] or fail("scheduler.type is missing: it names the schedule, as in \"WarmupLR\"")
  local defaults = schedule_defaults(optimizer and optimizer.options.lr or context.optimizer and context.optimizer.lr)[name]
  local params = block_of(block, "params") or {}
  local others = "last_batch_iteration " .. (name == "OneCycle" and OTHERS_OF_CYCLE or "")
  check_params("scheduler", name, params, defaults, others, mistakes)
  local options = merged(defaults, given, "scheduler", params)
  check_needed(name, options, mistakes)
  if mistakes:concerns("scheduler") then return nil end
  options = completed(name, options, params, optimizer)
  return {name = name, options = options, rate = schedules[name](options)}
end

return result_optim
