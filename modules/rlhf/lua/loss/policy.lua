--- The loss of a policy on answers that it, or an earlier one, has sampled (Schulman et al. 2017). Per token that counts, with
-- r = exp(log p - old log p) and the advantage A:
--
--   l = -min(r A, clip(r, 1 - low, 1 + high) A)        and with dual_clip c, where A < 0: min(l, -c A)
--     + coefficient * k(log p - log p of the reference)           (kl), times r if corrected
--     - entropy * entropy of the distribution
--
-- With level = "sequence" (GSPO, Zheng et al. 2025) r is that of the whole answer: exp(mean of log p - old log p).

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local kl = require "zt.rlhf.loss.kl"
local means = require "zt.rlhf.loss.means"
local sequences = require "zt.rlhf.loss.sequences"
local valid = require "zt.rlhf.loss.valid"

local policy = {}

local CLIP = {
  {"low", "number", "the ratio counts from 1 - low", required = true, at_least = 0},
  {"high", "number", "up to 1 + high", required = true, at_least = 0},
}

-- Returns {low =, high =} of the option `clip`, a number or such a table.
local function clip_of(loss, clip)
  if type(clip) == "number" then clip = {low = clip, high = clip} end
  if type(clip) ~= "table" then
    fail("%s.clip must be a number or {low =, high =}, got %s", loss, check.type_name(clip))
  end
  local range = check.options(loss .. ".clip", CLIP, clip)
  if range.low > 1 then fail("%s.clip: low is %g, and a ratio is never below 0: give at most 1", loss, range.low) end
  return range
end

local OF_EVERY = {
  {"name", "string", "the term's name in reports and metrics", default = "policy"},
  {"clip", "any", "a number, or {low =, high =}: the ratio counts from 1 - low to 1 + high", default = 0.2,
   peers = {"epsilon", "epsilon_high", "cliprange", "clip_ratio"}},
  {"dual_clip", "number", "where the advantage is negative, the ratio counts up to this (Ye et al. 2020)", at_least = 1,
   peers = {"delta"}},
  {"entropy", "number", "coefficient of the entropy, which the head outputs with entropy = true", default = 0, at_least = 0},
}

--- Returns the rows of the options of a policy's loss: those of every one, and more.
function policy.schema(more)
  local schema = {}
  for _, rows in ipairs{OF_EVERY, more, means.SCHEMA} do
    for _, row in ipairs(rows) do schema[#schema + 1] = row end
  end
  return schema
end

-- Returns log p - old log p [rows, seq]: of the tokens, or of each token the mean over its sequence.
local function log_ratios(ctx, logprobs, counts, o)
  local difference = logprobs - valid.values(ctx, "old_logprobs", counts)
  if o.level ~= "sequence" then return difference end
  local of = sequences.of(ctx)
  local lengths = of:sums(counts:to "float64"):clamp(1)
  return of:spread(of:sums(difference) / lengths):masked_fill(counts:logical_not(), 0)
end

-- Returns the losses of the clipped objective, and which ratios were clipped, both [rows, seq].
local function clipped(ratio, advantages, o)
  local plain = ratio * advantages
  local within = ratio:clamp(1 - o.clip.low, 1 + o.clip.high) * advantages
  local losses = -core.minimum(plain, within)
  local is_clipped = within:lt(plain)
  if o.dual_clip then
    local most = advantages * -o.dual_clip
    local is_beyond = advantages:lt(0):logical_and(most:lt(losses))
    losses, is_clipped = core.where(is_beyond, most, losses), is_clipped:logical_or(is_beyond)
  end
  return losses, is_clipped
end

-- Adds the KL divergence from the reference to the losses. Returns its estimate.
local function with_kl(ctx, losses, logprobs, ratio, counts, o)
  local estimate = kl.of(o.kl.estimator, logprobs - valid.values(ctx, "ref_logprobs", counts))
  if o.kl.corrected then estimate = estimate * ratio end
  return losses + estimate * o.kl.coefficient, estimate
end

-- Returns {sum, count} of values over what counts.
local function mean_of(values, counts)
  return {values:detach():to "float64":masked_fill(counts:logical_not(), 0):sum(), counts:sum()}
end

-- The function of zt.loss.
local function run(out, ctx, o)
  local counts = valid.of(ctx, o.ignore_index)
  local logprobs = out.logprobs:to "float64":masked_fill(counts:logical_not(), 0)
  local advantages = valid.values(ctx, "advantages", counts)
  local log_ratio = log_ratios(ctx, logprobs, counts, o)
  local ratio = log_ratio:exp()
  local losses, is_clipped = clipped(ratio, advantages, o)
  if ctx:has_batch "correction" then losses = losses * valid.values(ctx, "correction", counts) end
  local metrics = {ratio = mean_of(ratio, counts), clipped = mean_of(is_clipped, counts),
                   moved = mean_of(kl.of("k3", -log_ratio), counts)}
  if o.kl then
    local estimate
    losses, estimate = with_kl(ctx, losses, logprobs, ratio, counts, o)
    metrics.kl = mean_of(estimate, counts)
  end
  if o.entropy > 0 then
    losses = losses - out.entropy:to "float64" * o.entropy
    metrics.entropy = mean_of(out.entropy, counts)
  end
  return means.sum(ctx, losses, counts, o), metrics
end

--- Returns the layer. loss: the name of the function; o: its checked options.
function policy.layer(loss, o)
  means.check(loss, o)
  o.clip = clip_of(loss, o.clip)
  if o.kl then
    o.kl = check.options(loss .. ".kl", kl.SCHEMA, o.kl)
    kl.check(loss, o.kl)
    if o.kl.coefficient == 0 then o.kl = nil end
  end
  local needed = {"old_logprobs", "advantages", o.kl and "ref_logprobs"}
  local of_loss = means.of_loss(loss, o, needed)
  of_loss.name, of_loss.options, of_loss.inputs = o.name, o, o.entropy > 0 and {"logprobs", "entropy"} or {"logprobs"}
  of_loss.metrics, of_loss.passes_on = {"ratio", "clipped", "moved"}, true
  if o.kl then table.insert(of_loss.metrics, "kl") end
  if o.entropy > 0 then table.insert(of_loss.metrics, "entropy") end
  if o.level == "sequence" then of_loss.adds_over_tokens, of_loss.whole_samples = nil, true end
  return core.loss(function(out, ctx) return run(out, ctx, o) end, of_loss)
end

return policy
