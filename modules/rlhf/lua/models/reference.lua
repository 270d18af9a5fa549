--- rlhf.reference(batch, {reference = trainer}): adds the reference's log-probabilities to a batch of pairs, for rlhf.loss.dpo.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local outputs = require "zt.rlhf.models.outputs"
local rlhf = require "zt.rlhf"
local sequences = require "zt.rlhf.loss.sequences"

local NAME = "rlhf.reference"
local SCHEMA = {
  {"reference", "Trainer", "the frozen model, which outputs `logprobs`", required = true},
  {"adapters", "boolean", "false: the reference is the base of its adapters, without them; default: true"},
  {"policy", "Trainer", "the model that is trained: adds `kl`, the KL divergence of the global batch, for kind = 'kto'"},
  outputs.AXIS,
  {"ignore_index", "integer", "tokens with this label do not count", default = -100},
}

-- Returns the mean over the sequences of the global batch of the sum of log p - log p of the reference, at least 0.
local function divergence(batch, policy, o)
  local counts = batch.labels:ne(o.ignore_index)
  local difference = (policy - batch.ref_logprobs:to "float64"):masked_fill(counts:logical_not(), 0)
  local of = sequences.new(batch.sequence)
  local total = outputs.summed(o.axis, of:sums(difference):sum():item())
  local number = outputs.summed(o.axis, of:sums(counts:to "int64"):gt(0):sum():item())
  return math.max(total / math.max(number, 1), 0)
end

-- Fails unless `axis` is that of the ranks with different rows: the divergence is one number of the global batch.
local function check_axis(o)
  local own = rlhf.share_of(o.policy)
  local parts, given = own and own.count or 1, o.axis and o.axis.size or 1
  if parts ~= given then
    fail("%s: the ranks of the policy have %d different parts of the batch, and %s: give the axis along which their rows differ, "
      .. "for the KL divergence of the global batch", NAME, parts, o.axis and "`axis` has " .. given or "`axis` is missing")
  end
  local seen = {}
  for rank, index in ipairs(given > 1 and o.axis:gather_values(own.index) or {}) do
    if seen[index] then
      fail("%s: the ranks %d and %d of `axis`, '%s', have the same part of the batch: give the axis along which their rows "
        .. "differ, for the KL divergence of the global batch", NAME, seen[index] - 1, rank - 1, o.axis.name)
    end
    seen[index] = rank
  end
end

-- Adds zeros to a batch: a plan, which is that of the policy's step, needs no more than shapes.
local function plan(batch, o)
  batch.ref_logprobs = core.zeros(batch.tokens:size(), {dtype = "float64"})
  if o.policy then batch.kl = core.zeros({batch.tokens:size(0)}, {dtype = "float64"}) end
  return batch
end

--- Adds the field ref_logprobs [rows, seq], and with `policy` kl [rows], to a batch. Returns the batch. Collective.
local function reference(batch, value)
  outputs.check_batch(NAME, batch)
  local o = check.options(NAME, SCHEMA, value or {})
  if o.adapters == nil then
    outputs.check_not_trained(o.reference, NAME)
    o.adapters = true
  end
  if core.world.dry then return plan(batch, o) end
  if o.policy then check_axis(o) end
  if not o.adapters then outputs.check_adapters(o.reference, NAME) end
  local logprobs = outputs.named(o.reference, batch, "logprobs", {adapters = o.adapters, call = NAME, who = "the reference"})
  batch.ref_logprobs = logprobs
  if o.policy then
    sequences.checked(function(name) return batch[name] end, NAME)
    local z = divergence(batch, outputs.named(o.policy, batch, "logprobs", {call = NAME, who = "the policy"}), o)
    batch.kl = logprobs:new_full({batch.tokens:size(0)}, z)
  end
  return batch
end

return reference
