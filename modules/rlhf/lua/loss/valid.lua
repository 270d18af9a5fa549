--- Which positions of a batch count in a loss: those whose label counts. Rows of pretraining text (rlhf.loss.ptx) are in the same
-- step as answers, and the field `is_ptx`, 1 at their positions, tells them apart.

local fail = require "zt.fail"

local valid = {}

-- Returns the mask from the two fields; is_ptx may be nil. of_ptx: those of pretraining text instead of the others.
local function mask(labels, is_ptx, ignore_index, of_ptx)
  local counts = labels:ne(ignore_index)
  if not is_ptx then return of_ptx and counts:logical_and(counts:logical_not()) or counts end
  return counts:logical_and(of_ptx and is_ptx:ne(0) or is_ptx:eq(0))
end

-- Fails if there are labels below 0 besides ignore_index: they would count as tokens.
local function check_labels(labels, ignore_index)
  if labels:device() == "meta" or labels:numel() == 0 then return end
  local strange = labels:lt(0):logical_and(labels:ne(ignore_index))
  if not strange:any():item() then return end
  fail("the label %d is neither a token nor the loss's ignore_index, %d: give the loss the ignore_index of the batch, which is "
    .. "-100 of rlhf.batches", labels:masked_select(strange)[0]:item(), ignore_index)
end

--- Returns which positions of the layer's micro-batch count, bool [rows, seq].
function valid.of(ctx, ignore_index, of_ptx)
  return mask(ctx:batch "labels", ctx:has_batch "is_ptx" and ctx:batch "is_ptx" or nil, ignore_index, of_ptx)
end

--- The same for a layer's count.
function valid.of_batch(batch, ignore_index, of_ptx)
  local labels = batch "labels"
  if not labels then fail "the batch has no field 'labels': it says which tokens count" end
  check_labels(labels, ignore_index)
  return mask(labels, batch "is_ptx", ignore_index, of_ptx)
end

-- By field of a batch: the calls that make it.
local MADE_BY = {
  old_logprobs = "rlhf.score and rlhf.batches make it", old_values = "rlhf.score{critic = ...} and rlhf.batches make it",
  ref_logprobs = "rlhf.reference, or rlhf.score{reference = ...} and rlhf.batches make it",
  advantages = "rlhf.advantages and rlhf.batches make it",
  returns = "rlhf.advantages{kind = \"gae\"} and rlhf.batches make it",
}

--- Fails unless the batch of a layer's count has the fields `needed`, a list of names. loss: the name of the function.
function valid.check_fields(loss, batch, needed)
  for _, name in ipairs(needed) do
    if not batch(name) then fail("%s: the batch has no field '%s': %s", loss, name, MADE_BY[name]) end
  end
end

--- Returns how many positions count.
function valid.number(counts)
  if counts:device() == "meta" then return counts:numel() end
  return counts:sum():item()
end

--- Returns a field of the batch in float64 where it counts, and 0 elsewhere: what else stands there has no influence, nan either.
function valid.values(ctx, name, counts) return ctx:batch(name):to "float64":masked_fill(counts:logical_not(), 0) end

return valid
