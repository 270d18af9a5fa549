--- rlhf.advantages(experience, {kind = "group"}): how much better than expected each token was.

local check = require "zt.check"
local class = require "zt.class"
local core = require "zt.core"
local Experience = require "zt.rlhf.answers.experience"
local fail = require "zt.fail"
local log = require "zt.log"
local kl = require "zt.rlhf.loss.kl"
local rlhf = require "zt.rlhf"
local share = require "zt.rlhf.answers.share"

local NAME = "rlhf.advantages"
local function is_of_tokens(o) return o.kind == "gae" or o.kind == "reinforce++" end
local SCHEMA = {
  {"kind", "string", "how they are estimated", required = true, one_of = {"gae", "group", "rloo", "reinforce++"}},
  {"gamma", "number", "discount per token", default = 1, between = {0, 1},
   only_with = {"with kind = 'gae' or 'reinforce++'", is_of_tokens}},
  {"lambda", "number", "of generalised advantage estimation", default = 0.95, between = {0, 1}, peers = {"lam"},
   only_with = {"with kind = 'gae'", function(o) return o.kind == "gae" end}},
  {"scale", "string", "divide by the standard deviation of the group, of the batch, or of none",
   one_of = {"group", "batch", "none"}, only_with = {"with kind = 'group'", function(o) return o.kind == "group" end},
   peers = {"scale_rewards"}},
  {"whiten", "string", "the mean over all tokens becomes 0, and the standard deviation 1", one_of = {"batch", "none"}},
  {"kl", "table", "takes the KL divergence from the reference out of the rewards: {coefficient = 0.1, estimator = \"k1\"}",
   peers = {"kl_coef", "kl_ctl", "beta"}},
  {"reward_clip", "number", "rewards count from minus this to this", above = 0},
}
local KL = {
  {"coefficient", "number", "what a token's divergence costs", default = 0.1, at_least = 0},
  {"estimator", "string", "k1: d; k2: half of its square; k3: exp(-d) - 1 + d", default = "k1", one_of = {"k1", "k2", "k3"}},
}

-- The largest reward. Squares of it and of sums of some, which moments have, are finite.
local MOST = 1e120

-- Returns what the divergence from the reference costs each token.
local function penalties(experience, given)
  if not given then return core.zeros({experience.token_count}, {dtype = "float64"}) end
  local o = check.options(NAME .. ".kl", KL, given)
  local difference = experience:tokens_of("old_logprobs", NAME) - experience:tokens_of("ref_logprobs", NAME)
  return kl.of(o.estimator, difference) * o.coefficient
end

-- Returns the rewards of sequences, clipped.
local function rewards_of(experience, o)
  if not experience.rewards then fail("%s needs rewards, which rlhf.score{reward = ...} gives", NAME) end
  local rewards = o.reward_clip and experience.rewards:clamp(-o.reward_clip, o.reward_clip) or experience.rewards
  local largest = rewards:abs():max():item()
  if largest > MOST then
    fail("%s: a reward of %g: sums of the squares of such numbers overflow, so advantages would be 0. Give smaller rewards, or "
      .. "reward_clip", NAME, largest)
  end
  return rewards
end

-- Returns the rewards of tokens: what each costs, and at the last token of an answer its reward.
local function token_rewards(experience, o)
  local rewards = -penalties(experience, o.kl)
  local ends = experience.answer_offsets:narrow(0, 1, experience.count)
  local has_tokens = experience.answer_offsets:diff():gt(0)
  local last = (ends - 1):masked_select(has_tokens)
  return rewards:index_add(0, last, rewards_of(experience, o):masked_select(has_tokens))
end

-- Adds advantages and returns by the values of a critic.
local function estimate(experience, o)
  local values = experience:tokens_of("old_values", NAME)
  local advantages = rlhf.token_advantages{
    rewards = token_rewards(experience, o), values = values, offsets = experience.answer_offsets, gamma = o.gamma,
    lambda = o.lambda,
  }
  local returns = advantages + values
  experience.of_tokens.returns = returns
  local mask = experience:spread(experience:kept_mask())
  local function variance(x)
    local mean = experience:mean(x)
    return ((x - mean):square() * mask):sum():item()
  end
  local of_returns = variance(returns)
  experience.metrics.explained_variance = of_returns > 0 and 1 - variance(advantages) / of_returns or 0
  return advantages
end

local has_warned = false

-- Warns, once, if nothing is learnt because no group has a better answer.
local function warn_of_equal(experience)
  if experience.metrics.equal_groups < 1 or has_warned or core.world.rank > 0 then return end
  has_warned = true
  log.warn("%s: the answers to each prompt have equal rewards, so all advantages are 0 and these answers teach nothing: give "
    .. "more answers to a prompt, other prompts, or a reward that tells them apart (this is said once; the metric equal_groups "
    .. "is the share of such prompts)", NAME)
end

-- Returns the advantages of whole answers at their tokens.
local function of_groups(experience, o)
  if experience.n == 1 then
    fail("%s: kind = \"%s\" compares answers to one prompt, and there is one of each: give rlhf.rollout n = 2 or more", NAME,
         o.kind)
  end
  local rewards = rewards_of(experience, o) - experience:sums(penalties(experience, o.kl))
  local kept = experience:kept_mask():nonzero():flatten()
  local advantages, equal = rlhf.group_advantages{
    rewards = rewards:index_select(0, kept), groups = experience.groups:index_select(0, kept), others = o.kind == "rloo",
    scale = o.kind == "group" and (o.scale or "group") or "none",
  }
  experience.metrics.equal_groups = equal / math.max(experience.count / experience.n, 1)
  warn_of_equal(experience)
  return experience:spread(core.zeros({experience.count}, {dtype = "float64"}):index_copy(0, kept, advantages))
end

local KINDS = {
  gae = estimate, group = of_groups, rloo = of_groups,
  ["reinforce++"] = function(experience, o)
    return rlhf.token_advantages{rewards = token_rewards(experience, o), offsets = experience.answer_offsets, gamma = o.gamma}
  end,
}

-- Returns the advantages with mean 0 and standard deviation 1 over the tokens of kept sequences.
local function whitened(experience, advantages)
  local places = experience:spread(experience:kept_mask()):nonzero():flatten()
  return advantages:index_copy(0, places, rlhf.whitened(advantages:index_select(0, places)))
end

--- Adds advantages of the tokens, and with kind = "gae" returns, to an experience that has rewards. Returns the experience. The
-- reward of an answer stands at its last token. Defaults: scale = "group" of "group"; whiten = "batch" of "reinforce++", else
-- "none". Collective over the ranks of the experience.
local function advantages(experience, value)
  if not class.is(experience, Experience) then
    fail("%s takes what rlhf.rollout returns as its first argument, got %s", NAME, check.type_name(experience))
  end
  local began = core.now()
  local o = share.options(experience.world, NAME, SCHEMA, value)
  local whiten = o.whiten or (o.kind == "reinforce++" and "batch" or "none")
  local found = KINDS[o.kind](experience, o)
  experience.has_kl_in_rewards = o.kl ~= nil
  experience.of_tokens.advantages = whiten == "batch" and whitened(experience, found) or found
  experience.metrics.advantage_seconds = core.now() - began
  return experience
end

return advantages
