--- rlhf.teacher(batch, {teacher = trainer}): adds a teacher's distributions to a batch, for rlhf.loss.distil.

local check = require "zt.check"
local fail = require "zt.fail"
local outputs = require "zt.rlhf.models.outputs"

local NAME = "rlhf.teacher"
local SCHEMA = {
  {"teacher", "Trainer", "the frozen model, which outputs `logits`", required = true},
  {"adapters", "boolean", "false: without the teacher's adapters", default = true},
  {"top", "integer", "only so many of the likeliest tokens, with their log-probabilities", at_least = 1},
  {"temperature", "number", "divides the logits", default = 1, above = 0,
   only_with = {"with top", function(o) return o.top end}},
}

--- Adds to a batch the field teacher_logits [rows, seq, vocab], or with `top` teacher_tokens and teacher_logprobs [rows, seq,
-- top]. Returns the batch. Collective.
local function teacher(batch, value)
  outputs.check_batch(NAME, batch)
  local o = check.options(NAME, SCHEMA, value or {})
  local without_labels = {}
  for name, field in pairs(batch) do without_labels[name] = name ~= "labels" and field or nil end
  local found = outputs.of(o.teacher, without_labels, o.adapters)
  local logits = found.logits or found.logprobs -- of nn.lm_logprobs, too, where the batch has no labels
  if not logits or logits:dim() ~= 3 then
    fail("%s: the teacher outputs no logits: make it with nn.gpt{loss = false}, or with another head of tokens", NAME)
  end
  if not o.top then
    batch.teacher_logits = logits
    return batch
  end
  if o.top >= logits:size(-1) then
    fail("%s: top is %d, and the vocabulary has %d tokens: give a smaller number, or none", NAME, o.top, logits:size(-1))
  end
  batch.teacher_logprobs, batch.teacher_tokens = (logits:to "float64" / o.temperature):log_softmax(-1):topk(o.top, -1)
  return batch
end

return teacher
