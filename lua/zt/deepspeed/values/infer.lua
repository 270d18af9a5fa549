--- What "auto" stands for: each function makes an inference, called with what the caller of ds.read knows (`context`), the key's
-- path and the values read before it. An inference returns the value, or nil where the key is as good as absent, or fails
-- saying what to give.

local fail = require "zt.fail"

local infer = {}

local function unknown(path, what, give)
  fail('%s = "auto" stands for %s, which is not known here: give %s, or a value instead of "auto"', path, what, give)
end

--- A batch size: the caller's, else left to the rule that joins the three.
function infer.batch(key)
  return function(context) return context.batch and context.batch[key] end
end

--- A function of the model's hidden size, as Hugging Face's trainer fills it in.
function infer.hidden(formula, size)
  return function(context, path)
    local hidden = context.model and context.model.hidden_size
    if not hidden then unknown(path, formula, "model = {hidden_size = n}") end
    return math.floor(size(hidden))
  end
end

--- An option of the caller's table `group`; without it `default`, or a failure.
function infer.option(group, key, what, default)
  return function(context, path)
    local value = context[group] and context[group][key]
    if value == nil then value = default end
    if value == nil then unknown(path, what, ("%s = {%s = ...}"):format(group, key)) end
    return value
  end
end

--- The largest gradient norm. 1 is the default of DeepSpeed and of Hugging Face's trainer alike.
function infer.clip(context) return context.clip or 1 end

--- Whether the caller's precision is `name`.
function infer.precision(name)
  return function(context, path)
    if not context.precision then unknown(path, "the run's precision", "precision = 'fp32', 'bf16' or 'fp16'") end
    return context.precision == name
  end
end

--- The peak of a warm-up: the optimizer's learning rate.
function infer.peak(context, path, given)
  local own = context.own_optimizer
  local lr = own and own.options.lr or given["optimizer.params.lr"] or context.optimizer and context.optimizer.lr
  return lr or unknown(path, "the optimizer's learning rate", "optimizer = {lr = ...}")
end

--- Where a warm-up begins: 0, as Hugging Face's trainer has it.
function infer.zero() return 0 end

return infer
