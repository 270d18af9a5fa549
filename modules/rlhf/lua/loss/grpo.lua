--- rlhf.loss.grpo{clip = 0.2, kl =, ...}: the policy's loss of GRPO (Shao et al. 2024), DAPO, Dr. GRPO and GSPO, with the KL
-- divergence from the reference, if any, in the loss.

local check = require "zt.check"
local policy = require "zt.rlhf.loss.policy"

local SCHEMA = policy.schema{
  {"kl", "table", "the KL divergence from the reference: {coefficient =, estimator =, corrected =}", peers = {"beta", "kl_coef"}},
  {"level", "string", "ratios of tokens, or of whole answers", default = "token", one_of = {"token", "sequence"},
   peers = {"importance_sampling_level"}},
}

--- Returns a layer. It reads what rlhf.loss.ppo reads; with `kl` also ref_logprobs, with level = "sequence" also `sequence`.
local function grpo(value) return policy.layer("rlhf.loss.grpo", check.options("rlhf.loss.grpo", SCHEMA, value or {})) end

return grpo
