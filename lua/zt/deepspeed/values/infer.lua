--- Inferences: functions that return the value for "auto". Arguments: `context` (the argument of ds.read), the key's path, and
-- the values of the keys read before. An inference returns nil if the key counts as absent. It fails, with a message that says
-- what to give, if it cannot know the value. Most functions here return an inference; clip, peak and zero are inferences.

local fail = require "zt.fail"

local infer = {}

local function unknown(path, what, give)
  fail('%s = "auto" stands for %s, which is not known here: give auto = {%s}, or a value instead of "auto"', path, what, give)
end

--- The batch size in `context`, else nil: then result.batch computes it from the other sizes.
function infer.batch(key)
  return function(context) return context.batch and context.batch[key] end
end

--- size(hidden size of the model), as Hugging Face's trainer fills in the key. `formula` names it in messages.
function infer.hidden(formula, size)
  return function(context, path)
    local hidden = context.model and context.model.hidden_size
    if not hidden then unknown(path, formula, "model = {hidden_size = n}") end
    return math.floor(size(hidden))
  end
end

--- The option `key` of the table `group` in `context`, else `default`. Fails if there is neither. `what` names it in messages.
function infer.option(group, key, what, default)
  return function(context, path)
    local value = context[group] and context[group][key]
    if value == nil then value = default end
    if value == nil then unknown(path, what, ("%s = {%s = ...}"):format(group, key)) end
    return value
  end
end

--- The largest gradient norm. The default 1 is that of DeepSpeed and of Hugging Face's trainer.
function infer.clip(context) return context.clip or 1 end

--- Whether the precision in `context` is `name`.
function infer.precision(name)
  return function(context, path)
    if not context.precision then unknown(path, "the run's precision", "precision = 'fp32' | 'bf16' | 'fp16'") end
    return context.precision == name
  end
end

--- The peak of a warm-up: the optimizer's learning rate.
function infer.peak(context, path, given)
  local own = context.own_optimizer
  local lr = own and own.options.lr or given["optimizer.params.lr"] or context.optimizer and context.optimizer.lr
  return lr or unknown(path, "the optimizer's learning rate", "optimizer = {lr = ...}")
end

--- The first rate of a warm-up: 0, as in Hugging Face's trainer.
function infer.zero() return 0 end

return infer
