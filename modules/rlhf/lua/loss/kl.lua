--- Estimates of the KL divergence from the reference, per token, by d = log p - log p of the reference (Schulman 2020).

local fail = require "zt.fail"

local kl = {}

-- By estimator: the function of d.
local ESTIMATORS = {
  k1 = function(d) return d end,
  k2 = function(d) return d * d / 2 end,
  k3 = function(d) return (-d):exp() - 1 + d end,
}

--- Rows of the options of a loss's `kl`.
kl.SCHEMA = {
  {"coefficient", "number", "of the KL divergence in the loss", default = 0.1, at_least = 0},
  {"estimator", "string", "k2: half of the square; k3: exp(-d) - 1 + d", default = "k3", one_of = {"k1", "k2", "k3"}},
  {"corrected", "boolean", "multiply by the ratio of the policies, so that older samples give the divergence of the policy",
   default = false},
}

--- Fails for an estimator that is wrong in a loss. loss: the name of the function.
function kl.check(loss, o)
  if o.estimator == "k1" then
    fail("%s.kl.estimator: the gradient of k1 in a loss is zero in expectation, whatever the policy: give \"k3\" or \"k2\", or "
      .. "put the KL divergence into the reward, by rlhf.advantages{kl = {...}}", loss)
  end
end

--- Returns the estimates for d, of the same shape.
function kl.of(estimator, d) return ESTIMATORS[estimator](d) end

return kl
