--- Runs models over the rows of a batch, without gradients.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local lora = require "zt.ckpt.adapters.lora"

local outputs = {}

-- Fields that a model reads; the others are those of losses.
local READ = {"tokens", "labels", "segments", "positions", "padding", "sample"}

--- Returns the fields of a batch that models read.
function outputs.fields(batch)
  local fields = {}
  for _, name in ipairs(READ) do fields[name] = batch[name] end
  return fields
end

--- Returns the outputs of a trainer for a batch, {name = tensor}. with_adapters: false for those of the base of its adapters.
function outputs.of(trainer, batch, with_adapters)
  local function infer() return trainer:infer(outputs.fields(batch)) end
  if with_adapters == false then return trainer:with_adapters(false, infer) end
  return infer()
end

--- Fails if the reference is a model with adapters that a loss trains: then it is the policy itself.
function outputs.check_not_trained(trainer, call)
  if not lora.is_in(trainer.model:parameters()) then return end
  for _, layer in ipairs(trainer.model.description.layers) do
    if layer.kind == "loss" then
      fail("%s: the reference has adapters, and the loss '%s' that trains them, so it is the policy itself: give adapters = "
        .. "false for the model without them, or true if this is a frozen copy", call, layer.name)
    end
  end
end

--- Fails unless a model has adapters, without which it is to be the reference. call: names what needs it, for the message.
function outputs.check_adapters(trainer, call)
  if lora.is_in(trainer.model:parameters()) then return end
  fail("%s: the reference is to be the policy without its adapters, and that has none: give nn.gpt the option lora, or as the "
    .. "reference a frozen trainer of the model that the policy began as", call)
end

--- Returns one output [rows, seq] in float64. o, for messages: {call = what needs it, who = what the model is, adapters = false
-- for that of the base of its adapters}.
function outputs.named(trainer, batch, name, o)
  local found = outputs.of(trainer, batch, o.adapters)[name]
  if not found then
    fail("%s: %s outputs no '%s': make it with nn.gpt{head = \"%s\"}, and put losses after it", o.call, o.who, name,
         name == "values" and "value" or "logprobs")
  end
  return found:to "float64"
end

--- Returns the sum of a scalar over the ranks of an axis that have different samples, or of this rank alone.
function outputs.summed(axis, scalar)
  if not axis or axis.size == 1 then return scalar end
  local sum = core.tensor({scalar}, {dtype = "float64"})
  axis:all_reduce(sum)
  return sum:item()
end

--- Rows of options that several functions have.
outputs.AXIS = {"axis", "Axis", "the axis along which ranks have different rows"}

--- Fails unless the value is a batch.
function outputs.check_batch(call, batch)
  if type(batch) ~= "table" or not check.is("tensor", batch.tokens) then
    fail("%s takes a batch, {tokens =, labels =, ...}, as its first argument, got %s", call, check.type_name(batch))
  end
end

return outputs
