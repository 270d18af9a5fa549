--- rlhf.loss.reward{margin = 0, center = 0, at = "last"}: the loss of a reward model on pairs of answers (Bradley and Terry).
-- With the scores of the chosen and of the rejected one it is -log sigmoid(s_chosen - s_rejected - margin) + center (s_chosen +
-- s_rejected)^2. The score of an answer is the value at its last token. With at = "divergence" a pair costs the mean of that over
-- the places from the first at which the answers differ to the end of the shorter one. DeepSpeed-Chat goes on to the end of the
-- longer one, where the shorter one has pads.

local check = require "zt.check"
local core = require "zt.core"
local sequences = require "zt.rlhf.loss.sequences"

local NAME = "rlhf.loss.reward"
local SCHEMA = {
  {"name", "string", "the term's name in reports and metrics", default = "reward"},
  {"margin", "number", "by how much the chosen answer should be better", default = 0, at_least = 0},
  {"center", "number", "coefficient of the square of the sum of both scores, which holds them near 0", default = 0, at_least = 0},
  {"at", "string", "the score at the last token, or the mean from where the answers differ", default = "last",
   one_of = {"last", "divergence"}},
}

-- Returns which pairs have both answers, [pairs].
local function pairs_there(of)
  return of:by_pair(of:sums(of.field:ge(0):to "int64")):gt(0):all(1)
end

-- Returns the loss of scores [n, 2], [n].
local function loss_of(scores, o)
  local margin = scores:select(1, 0) - scores:select(1, 1)
  local losses = -core.log_sigmoid(margin - o.margin)
  if o.center > 0 then losses = losses + scores:sum(1):square() * o.center end
  return losses, margin
end

-- Returns the scores of both answers of each pair at their last tokens, [pairs, 2].
local function last_scores(of, values) return of:by_pair(of:sums(values:masked_fill(of:is_last():logical_not(), 0))) end

-- Of each position of a chosen answer: where that of the rejected answer with the same number lies among all positions, and
-- whether there is one; both [rows * seq].
local function partners(of)
  local field, seq = of.field, of.seq
  local place = ((field:mul(0) + 1):flatten():cumsum(0) - 1):view{of.rows, seq}
  local first_places = of:sums(place:masked_fill(of:is_first():logical_not(), 0))
  local number, begins = place - of:spread(first_places), of:by_pair(first_places)
  local lengths = of:by_pair(of:sums(field:ge(0):to "int64"))
  local function of_rejected(by_pair)
    local twice = core.stack({by_pair:select(1, 1), by_pair:select(1, 1)}, 1):flatten()
    return of:spread(twice)
  end
  local is_chosen = field:ge(0):logical_and(field:remainder(2):eq(0))
  local there = is_chosen:logical_and(number:lt(of_rejected(lengths)))
  local partner = (of_rejected(begins) + number):masked_fill(there:logical_not(), 0)
  return partner:flatten(), there:flatten()
end

-- Returns the losses of pairs [pairs]: the means over the places from the first that differs.
local function divergence_losses(of, values, ctx, o)
  local partner, there = partners(of)
  local tokens, flat = ctx:batch "tokens":flatten(), values:flatten()
  local differs = tokens:ne(tokens:index_select(0, partner)):logical_and(there)
  -- The number of differing places up to each place of the sequence: 0 before the first.
  local so_far = differs:to "int64":cumsum(0)
  local before = of:spread(of:sums((so_far - differs:to "int64"):view{of.rows, of.seq}
    :masked_fill(of:is_first():logical_not(), 0))):flatten()
  local counts = so_far:gt(before):logical_and(there)
  local losses = loss_of(core.stack({flat, flat:index_select(0, partner)}, 1), o):masked_fill(counts:logical_not(), 0)
  local function per_pair(by_place) return of:by_pair(of:sums(by_place:view{of.rows, of.seq})):select(1, 0) end
  return per_pair(losses) / per_pair(counts:to "float64"):clamp(1)
end

local function run(out, ctx, o)
  local of = sequences.of(ctx)
  local values, there = out.values:to "float64":masked_fill(of.field:lt(0), 0), pairs_there(of)
  local losses, margin = loss_of(last_scores(of, values), o)
  if o.at == "divergence" then losses = divergence_losses(of, values, ctx, o) end
  local number, absent = there:sum(), there:logical_not()
  local metrics = {
    accuracy = {margin:gt(0):logical_and(there):sum(), number},
    margin = {margin:detach():masked_fill(absent, 0):sum(), number},
  }
  return losses:masked_fill(absent, 0):sum(), metrics
end

--- Returns a layer. It reads `values`, and the batch's `sequence`: sequence 2 n of a row is the chosen answer of its pair n, and
-- 2 n + 1 the rejected one. Metrics, by the scores at the last tokens: the share of pairs in the right order, and the mean of
-- s_chosen - s_rejected.
local function reward(value)
  local o = check.options(NAME, SCHEMA, value or {})
  return core.loss(function(out, ctx) return run(out, ctx, o) end, {
    name = o.name, options = o, inputs = {"values"}, per = "sample", reduction = "sum", metrics = {"accuracy", "margin"},
    count = function(batch)
      local field = sequences.checked(batch, NAME)
      if field:device() == "meta" then return 0, field:size(0) end
      return 0, pairs_there(sequences.new(field)):sum():item()
    end,
  })
end

return reward
