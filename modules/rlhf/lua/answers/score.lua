--- rlhf.score(experience, {actor =, reference =, critic =, reward =}): what models and a reward say of an experience.

local check = require "zt.check"
local core = require "zt.core"
local Experience = require "zt.rlhf.answers.experience"
local class = require "zt.class"
local fail = require "zt.fail"
local kl = require "zt.rlhf.loss.kl"
local outputs = require "zt.rlhf.models.outputs"
local rewards = require "zt.rlhf.answers.rewards"
local scoring = require "zt.rlhf.answers.scoring"
local share = require "zt.rlhf.answers.share"

local NAME = "rlhf.score"
local SCHEMA = {
  {"actor", "Trainer", "the policy, which outputs `logprobs`"},
  {"reference", "any", "a Trainer, or \"base\": the actor without its adapters"},
  {"critic", "Trainer", "outputs `values`"},
  {"reward", "any", "a Trainer that outputs `values`, or function(prompt, answer, item, tokens) that returns a number",
   peers = {"reward_funcs", "reward_fn"}},
  {"old", "string", "whose log-probabilities ratios are taken to: of the actor, or of the engine that has sampled",
   default = "trainer", one_of = {"trainer", "sampler"}},
  {"is", "table", "importance weights of old = \"trainer\": {level = \"token\" or \"sequence\", cap = 2}",
   only_with = {"with old = 'trainer' and an actor", function(o) return o.old == "trainer" and o.actor end}},
  {"rows", "integer", "rows that a model computes at once", default = 8, at_least = 1},
  {"seq", "integer", "positions of a row; default: those of the longest sequence", at_least = 1},
}
local WEIGHTS = {
  {"level", "string", "weights of tokens, or of whole answers", default = "token", one_of = {"token", "sequence"}},
  {"cap", "number", "the largest weight", default = 2, above = 0},
}

-- Returns how a model is run over the answers. who: what it is; adapters: false for the base of its adapters.
local function options_for(o, who, adapters)
  return {rows = o.rows, seq = o.seq, adapters = adapters, call = NAME, who = "the " .. who}
end

-- Adds the weights by which samples of the engine count as samples of the trainer, at most `cap`.
local function add_weights(experience, is)
  local o = check.options(NAME .. ".is", WEIGHTS, is)
  local difference = experience.of_tokens.old_logprobs - experience.of_tokens.sampled_logprobs
  if o.level == "sequence" then difference = experience:spread(experience:sums(difference)) end
  experience.of_tokens.correction = difference:exp():clamp(0, o.cap)
end

local function add_old(experience, o)
  local of_tokens, metrics = experience.of_tokens, experience.metrics
  if o.actor then scoring.check_model(experience, o.actor, "actor", NAME) end
  if o.old == "sampler" or not o.actor then
    local earlier = o.old == "trainer" and of_tokens.old_logprobs -- of a call with the actor, to which this one adds
    of_tokens.old_logprobs = earlier or of_tokens.sampled_logprobs
    if not earlier then of_tokens.correction = nil end
    return
  end
  of_tokens.old_logprobs = scoring.of_tokens(experience, o.actor, "logprobs", options_for(o, "actor"))
  local gap = of_tokens.old_logprobs - of_tokens.sampled_logprobs
  metrics.sampler_gap = experience:mean(gap:abs())
  metrics.sampler_kl = experience:mean(kl.of("k3", gap))
  of_tokens.correction = nil -- that of an earlier call is by other log-probabilities
  if o.is then add_weights(experience, o.is) end
end

local function add_reference(experience, o)
  local is_base = o.reference == "base"
  local reference = is_base and o.actor or o.reference
  if is_base then outputs.check_adapters(o.actor, NAME) end
  scoring.check_model(experience, reference, "reference", NAME)
  experience.of_tokens.ref_logprobs =
    scoring.of_tokens(experience, reference, "logprobs", options_for(o, "reference", not is_base))
  experience.metrics.kl =
    experience:mean(kl.of("k3", experience.of_tokens.old_logprobs - experience.of_tokens.ref_logprobs))
end

local function add_rewards(experience, o)
  if type(o.reward) == "function" then
    experience.rewards, experience.is_kept = rewards(experience, o.reward)
  else
    scoring.check_model(experience, o.reward, "reward model", NAME)
    experience.rewards = scoring.of_sequences(experience, o.reward, options_for(o, "reward model"))
  end
  local mask = experience:kept_mask()
  local kept = mask:sum():item()
  local mean = (experience.rewards * mask):sum():item() / math.max(kept, 1)
  experience.metrics.reward = mean
  experience.metrics.reward_deviation =
    math.sqrt(((experience.rewards - mean):square() * mask):sum():item() / math.max(kept - 1, 1))
  experience.metrics.dropped = 1 - kept / math.max(experience.count, 1)
end

-- Fails unless models are where options need them.
local function check_more(o)
  if o.reference == "base" and not o.actor then
    fail("%s: reference = \"base\" is the actor without its adapters: give actor", NAME)
  end
  if o.reference ~= nil and o.reference ~= "base" and not check.is("Trainer", o.reference) then
    fail("%s.reference must be a Trainer or \"base\", got %s", NAME, check.type_name(o.reference))
  end
  if o.reference ~= nil and o.reference == o.actor then
    fail("%s: the reference is the actor, so the divergence from it is always 0: give a frozen trainer of the model that the "
      .. "actor begins as, or with adapters reference = \"base\"", NAME)
  end
  if o.reward ~= nil and type(o.reward) ~= "function" and not check.is("Trainer", o.reward) then
    fail("%s.reward must be a Trainer or a function, got %s", NAME, check.type_name(o.reward))
  end
end

--- Adds to an experience: rewards; of the tokens old_logprobs, ref_logprobs, old_values and, with `is`, correction. A reward
-- function is called with the texts of the prompt and of the answer (nil without a tokenizer), and copies of the prompt's item
-- and of the answer's tokens; nil drops an answer, for later calls too. A call without the actor keeps the log-probabilities of
-- an earlier one with it, and takes the engine's if there was none. Returns the experience. Collective.
local function score(experience, value)
  if not class.is(experience, Experience) then
    fail("%s takes what rlhf.rollout returns as its first argument, got %s", NAME, check.type_name(experience))
  end
  local began = core.now()
  local o = share.options(experience.world, NAME, SCHEMA, value or {}, nil, check_more)
  if o.reward ~= nil then add_rewards(experience, o) end
  add_old(experience, o)
  if o.reference ~= nil then add_reference(experience, o) end
  if o.critic then
    scoring.check_model(experience, o.critic, "critic", NAME)
    experience.of_tokens.old_values = scoring.of_tokens(experience, o.critic, "values", options_for(o, "critic"))
  end
  experience.metrics.score_seconds = (experience.metrics.score_seconds or 0) + core.now() - began
  return experience
end

return score
