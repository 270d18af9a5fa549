--- rlhf.loss.ppo{clip = 0.2, ...}: the policy's loss of PPO. The KL divergence from the reference is in the rewards
-- (rlhf.advantages).

local check = require "zt.check"
local policy = require "zt.rlhf.loss.policy"

local SCHEMA = policy.schema{}

--- Returns a layer. It reads `logprobs` (and `entropy`), and the batch's labels, old_logprobs and advantages.
local function ppo(value) return policy.layer("rlhf.loss.ppo", check.options("rlhf.loss.ppo", SCHEMA, value or {})) end

return ppo
