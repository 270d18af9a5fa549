--- rlhf.loss.dpo{beta = 0.1, kind = "sigmoid", ...}: losses of pairs of answers by the log-probabilities of a policy and of a
-- reference. With d = sum over the answer's tokens of log p - log p of the reference, and h = d of the chosen answer - d of the
-- rejected one, a pair costs
--
--   sigmoid  -log sigmoid(beta h), with smoothing e: (1 - e) times that, and e times that of -h (Rafailov et al. 2023)
--   robust   ((1 - e) times that minus e times that of -h) / (1 - 2 e) (Chowdhury et al. 2024)
--   hinge    max(0, 1 - beta h) (Zhao et al. 2023)
--   ipo      (h - 1 / (2 beta))^2, with means over tokens in place of sums (Azar et al. 2023)
--   kto      half of 1 - sigmoid(beta (d_chosen - z)) + 1 - sigmoid(beta (z - d_rejected)) (Ethayarajh et al. 2024), where z is
--            the KL divergence of the global batch, the batch's field `kl` (rlhf.reference)

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local sequences = require "zt.rlhf.loss.sequences"
local valid = require "zt.rlhf.loss.valid"

local NAME = "rlhf.loss.dpo"
local function is_smooth(o) return o.kind == "sigmoid" or o.kind == "robust" end
local SCHEMA = {
  {"name", "string", "the term's name in reports and metrics", default = "preference"},
  {"beta", "number", "how much the policy is held to the reference", default = 0.1, above = 0},
  {"kind", "string", "the loss of a pair", default = "sigmoid", one_of = {"sigmoid", "ipo", "hinge", "kto", "robust"},
   peers = {"loss_type"}},
  {"label_smoothing", "number", "the share of pairs that are taken to be the wrong way round", default = 0, between = {0, 0.49},
   only_with = {"with kind = 'sigmoid' or 'robust'", is_smooth}},
  {"length_normalise", "boolean", "means over the tokens of an answer in place of sums", default = false,
   only_with = {"with another kind than 'ipo', which always does", function(o) return o.kind ~= "ipo" end}},
  {"sft", "number", "coefficient of the cross entropy of the chosen answer, per token", default = 0, at_least = 0,
   peers = {"rpo_alpha"}},
  {"ignore_index", "integer", "tokens with this label do not count", default = -100},
}

-- By kind: the loss of pairs [pairs] from d [pairs, 2] and the options. z: the KL divergence, [pairs].
local LOSSES = {
  sigmoid = function(h, o)
    local right, wrong = core.log_sigmoid(h * o.beta), core.log_sigmoid(h * -o.beta)
    return right * (o.label_smoothing - 1) - wrong * o.label_smoothing
  end,
  robust = function(h, o)
    local right, wrong = core.log_sigmoid(h * o.beta), core.log_sigmoid(h * -o.beta)
    return (right * (o.label_smoothing - 1) + wrong * o.label_smoothing) / (1 - 2 * o.label_smoothing)
  end,
  hinge = function(h, o) return (1 - h * o.beta):relu() end,
  ipo = function(h, o) return (h - 1 / (2 * o.beta)):square() end,
  kto = function(_, o, d, z)
    local chosen, rejected = d:select(1, 0) - z, z - d:select(1, 1)
    return 1 - ((chosen * o.beta):sigmoid() + (rejected * o.beta):sigmoid()) / 2
  end,
}

-- Returns the numbers of labels of both answers of each pair, [pairs, 2].
local function labels_of(of, counts) return of:by_pair(of:sums(counts:to "float64")) end

-- Returns what is there of both answers, [pairs].
local function is_pair(lengths) return lengths:gt(0):all(1) end

-- Returns by pair the KL divergence of the batch, which all positions of a micro-batch have.
local function divergence(ctx, of)
  local by_row = ctx:batch "kl":to "float64":flatten():unsqueeze(1)
  return by_row:expand{of.rows, of.per_row / 2}:flatten()
end

local function run(out, ctx, o)
  local of, counts = sequences.of(ctx), valid.of(ctx, o.ignore_index)
  local logprobs = out.logprobs:to "float64":masked_fill(counts:logical_not(), 0)
  local difference = logprobs - valid.values(ctx, "ref_logprobs", counts)
  local lengths = labels_of(of, counts)
  local there, divisor = is_pair(lengths), lengths:clamp(1)
  local d = of:by_pair(of:sums(difference))
  if o.kind == "ipo" or o.length_normalise then d = d / divisor end
  local h = d:select(1, 0) - d:select(1, 1)
  local losses = LOSSES[o.kind](h, o, d, o.kind == "kto" and divergence(ctx, of) or nil)
  if o.sft > 0 then
    losses = losses - (of:by_pair(of:sums(logprobs)) / divisor):select(1, 0) * o.sft
  end
  local number = there:sum()
  local metrics = {
    accuracy = {h:gt(0):logical_and(there):sum(), number},
    margin = {(h:detach() * o.beta):masked_fill(there:logical_not(), 0):sum(), number},
  }
  return losses:masked_fill(there:logical_not(), 0):sum(), metrics
end

--- Returns a layer. It reads `logprobs`, and the batch's labels, sequence and ref_logprobs, and for "kto" kl, [rows]. Sequence
-- 2 n of a row is the chosen answer of its pair n, and 2 n + 1 the rejected one. Metrics: the share of pairs with h > 0, and the
-- mean of beta h.
local function dpo(value)
  local o = check.options(NAME, SCHEMA, value or {})
  return core.loss(function(out, ctx) return run(out, ctx, o) end, {
    name = o.name, options = o, inputs = {"logprobs"}, per = "sample", reduction = "sum", metrics = {"accuracy", "margin"},
    count = function(batch)
      local counts, field = valid.of_batch(batch, o.ignore_index), sequences.checked(batch, NAME)
      valid.check_fields(NAME, batch, {"ref_logprobs"})
      if o.kind == "kto" and not batch "kl" then
        fail("%s: kind = \"kto\" needs the field 'kl', the KL divergence of the batch: give rlhf.reference the policy", NAME)
      end
      if field:device() == "meta" then return valid.number(counts), field:size(0) end
      return valid.number(counts), is_pair(labels_of(sequences.new(field), counts)):sum():item()
    end,
  })
end

return dpo
