--- How the losses of tokens become one number. Each mean is taken over the whole global batch, so none depends on ranks or
-- micro-batches.
--
--   token     the sum over all tokens that count, divided by their number
--   sequence  the mean over the tokens of each sequence; of these, the mean over the sequences
--   constant  the sum over the tokens, divided by the number of sequences and by max_tokens (Liu et al. 2025, Dr. GRPO)

local fail = require "zt.fail"
local sequences = require "zt.rlhf.loss.sequences"
local valid = require "zt.rlhf.loss.valid"

local means = {}

local MEANS = {token = true, sequence = true, constant = true}

--- Rows of the options.
means.SCHEMA = {
  {"mean", "string", "over tokens; over sequences of the mean of each; or over sequences of their sum over max_tokens",
   default = "token", peers = {"loss_type"}},
  {"max_tokens", "integer", "with mean = \"constant\": what the sum of a sequence is divided by", at_least = 1,
   only_with = {"with mean = 'constant'", function(o) return o.mean == "constant" end}},
  {"ignore_index", "integer", "tokens with this label do not count", default = -100},
}

--- Fails if the options do not fit together. loss: the name of the function, such as "rlhf.loss.ppo".
function means.check(loss, o)
  if not MEANS[o.mean] and o.mean ~= "bnpo" then
    fail("%s.mean must be one of 'token', 'sequence', 'constant', got '%s'", loss, o.mean)
  end
  if o.mean == "bnpo" then
    fail("%s.mean: TRL's bnpo divides by the tokens of a micro-batch, so the loss would depend on micro-batches and ranks: give "
      .. "\"token\", which divides by the tokens of the global batch", loss)
  end
  if o.mean == "constant" and not o.max_tokens then
    fail("%s.mean = \"constant\" divides by max_tokens, the most tokens of an answer: give max_tokens", loss)
  end
end

--- Returns the options of zt.loss that go with the mean. needed: a list of the fields that the loss reads besides labels.
function means.of_loss(loss, o, needed)
  if o.mean == "token" then
    return {
      per = "token", reduction = "sum",
      count = function(batch)
        local counts = valid.of_batch(batch, o.ignore_index)
        valid.check_fields(loss, batch, needed)
        return valid.number(counts)
      end,
    }
  end
  return {
    per = "sample", adds_over_tokens = true, reduction = "sum",
    count = function(batch)
      local counts = valid.of_batch(batch, o.ignore_index)
      valid.check_fields(loss, batch, needed)
      if o.mean == "sequence" and not batch "lengths" then
        fail("%s: mean = \"sequence\" needs the field 'lengths', the number of tokens that count in the sequence of each "
          .. "position: rlhf.batches makes it", loss)
      end
      return valid.number(counts), sequences.number(sequences.checked(batch, loss), counts)
    end,
  }
end

--- Returns the sum of losses [rows, seq], float64, that zt.loss divides. counts: which positions do.
function means.sum(ctx, losses, counts, o)
  local counted = losses:masked_fill(counts:logical_not(), 0)
  if o.mean == "token" then return counted:sum() end
  if o.mean == "constant" then return counted:sum() / o.max_tokens end
  return (counted / ctx:batch "lengths":to "float64":masked_fill(counts:logical_not(), 1)):sum()
end

return means
