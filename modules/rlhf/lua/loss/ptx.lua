--- rlhf.loss.ptx{coefficient = 27.8}: cross entropy of pretraining text in the step of PPO (Ouyang et al. 2022), so that the
-- policy keeps what it knew. Rows of that text have the field is_ptx = 1; rlhf.batches adds them. The loss is the mean over the
-- sequences of the mean over their tokens; it has a divisor of its own beside that of a policy's loss per token.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local sequences = require "zt.rlhf.loss.sequences"
local valid = require "zt.rlhf.loss.valid"

local NAME = "rlhf.loss.ptx"
local SCHEMA = {
  {"name", "string", "the term's name in reports and metrics", default = "ptx"},
  {"coefficient", "number", "of this loss in the objective", default = 27.8, above = 0},
  {"ignore_index", "integer", "tokens with this label do not count", default = -100},
}

local function run(out, ctx, o)
  local counts = valid.of(ctx, o.ignore_index, true)
  local lengths = ctx:batch "lengths":to "float64":masked_fill(counts:logical_not(), 1)
  local losses = out.logprobs:to "float64":masked_fill(counts:logical_not(), 0) / lengths
  return losses:sum() * -o.coefficient
end

--- Returns a layer. It reads `logprobs`, and the batch's labels, is_ptx, sequence and lengths.
local function ptx(value)
  local o = check.options(NAME, SCHEMA, value or {})
  return core.loss(function(out, ctx) return run(out, ctx, o) end, {
    name = o.name, options = o, inputs = {"logprobs"}, per = "sample", adds_over_tokens = true, reduction = "sum",
    passes_on = true,
    count = function(batch)
      local counts, field = valid.of_batch(batch, o.ignore_index, true), sequences.checked(batch, NAME)
      if not batch "is_ptx" then
        fail("%s: the batch has no field 'is_ptx', which says what rows are text: rlhf.batches{ptx = ...} adds them", NAME)
      end
      return 0, sequences.number(field, counts) -- its tokens are none of the policy's
    end,
  })
end

return ptx
