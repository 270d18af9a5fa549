-- Sums the gradients of the losses over all answers that a policy can give, each by its probability, and compares them with the
-- gradient of the expected reward less the KL divergence, by autograd. The policy is a table of the logits of the next token by
-- the last one, and answers have two tokens.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local nn, optim, rlhf = require "zt.nn", require "zt.optim", require "zt.rlhf"
local by_hand = require "rlhf.by_hand"

local BOUND, BETA = 1e-12, 0.3

-- The logits of the next token after each of `size` tokens and, last, after the prompt.
local function table_of(size, seed) return zt.randn({size + 1, size}, {generator = zt.generator(seed), dtype = "float64"}) end

-- Returns the log-probabilities of all answers, [first token, second token].
local function answers_of(logits)
  local of_next, size = logits:log_softmax(-1), logits:size(1)
  return of_next:narrow(0, size, 1):view{size, 1} + of_next:narrow(0, 0, size)
end

local function trainer_of(model)
  return zt.trainer(zt.program(model, {precision = "fp64"}), {optimizer = optim.sgd{lr = 1e-30}, separate = true})
end

-- Returns the gradient of minus fn(logits), a scalar.
local function gradient_of(logits, fn)
  local layer = nn.layer{
    params = {logits = logits:clone()}, io = {inputs = {}, outputs = {}, losses = {minus = "sample"}}, tokens = "separate",
    forward = function(self, ctx) ctx:loss("minus", -fn(self.logits), "sample") end,
  }
  local trainer = trainer_of(nn.sequential{{"objective", layer}})
  trainer:step{tokens = zt.zeros({1, 1}, {dtype = "int64"})}
  return trainer:gradient "objective.logits"
end

-- Returns the policy with a loss. Its output is that of a head of log-probabilities.
local function policy_of(logits, loss)
  local layer = nn.layer{
    params = {logits = logits:clone()}, io = {inputs = {}, outputs = {"logprobs"}}, tokens = "separate",
    forward = function(self, ctx)
      local of_next = self.logits:index_select(0, ctx:batch "tokens":flatten()):log_softmax(-1)
      local labels = ctx:batch "labels"
      return of_next:gather(1, labels:clamp(0):flatten():unsqueeze(1)):view(labels:size()):masked_fill(labels:lt(0), 0)
    end,
  }
  return trainer_of(nn.sequential{{"policy", layer}}:append(loss, "loss"))
end

-- By token of an answer: its log-probability by these logits.
local function logprobs_of(logits, answer)
  local of_next, size = logits:log_softmax(-1), logits:size(1)
  return {of_next[size][answer[1]]:item(), of_next[answer[1]][answer[2]]:item()}
end

-- Calls fn(list of n answers, the probability to draw them) for all there are.
local function each_draw(logits, n, fn)
  local size, of_answers = logits:size(1), answers_of(logits):exp():flatten()
  local function go(drawn, probability)
    if #drawn == n then return fn(drawn, probability) end
    for place = 0, size * size - 1 do
      local more = {unpack(drawn)}
      more[#more + 1] = {math.floor(place / size), place % size}
      go(more, probability * of_answers[place]:item())
    end
  end
  go({}, 1)
end

-- Returns the expectation of the loss's gradient. how: {n = answers to the prompt, advantages = options or nil, loss =,
-- values = function(answer)}.
local function expected_gradient(logits, reference, rewards, how)
  local trainer, sum, total = policy_of(logits, how.loss), zt.zeros(logits:size(), {dtype = "float64"}), 0
  each_draw(logits, how.n, function(drawn, probability)
    local of_tokens, of_answers = {old_logprobs = {}, ref_logprobs = {}, old_values = {}}, {}
    for i, answer in ipairs(drawn) do
      of_tokens.old_logprobs[i], of_tokens.ref_logprobs[i] = logprobs_of(logits, answer), logprobs_of(reference, answer)
      of_tokens.old_values[i] = {0.7, 0.2 + answer[1]} -- of a critic, which sees what is before the token
      of_answers[i] = rewards[answer[1]][answer[2]]:item()
    end
    local size = logits:size(1)
    local experience = by_hand.experience({{size}}, drawn, {rewards = of_answers, of_tokens = of_tokens, vocabulary = size})
    rlhf.advantages(experience, how.advantages)
    for batch in rlhf.batches(experience, {trainer = trainer}) do trainer:step(batch) end
    sum = sum + trainer:gradient "policy.logits" * probability
    total = total + probability
  end)
  lu.assertAlmostEquals(total, 1, 1e-12)
  return sum
end

local function assert_close(got, wanted, what)
  local off = (got - wanted):norm():item() / wanted:norm():item()
  lu.assertTrue(off <= BOUND, ("%s: %.3g off"):format(what, off))
end

-- A loss whose divisor is the number of answers, so that it is a mean over answers of sums over tokens.
local function grpo(more)
  local options = {mean = "constant", max_tokens = 1}
  for key, value in pairs(more or {}) do options[key] = value end
  return rlhf.loss.grpo(options)
end

local TestObjective = {}

function TestObjective.test_rloo_and_groups_without_scale()
  for _, case in ipairs{{size = 3, n = 2}, {size = 2, n = 3}} do
    local size, n = case.size, case.n
    local logits, reference, rewards = table_of(size, 1), table_of(size, 2), table_of(size, 3):narrow(0, 0, size)
    local wanted = gradient_of(logits, function(x) return (answers_of(x):exp() * rewards):sum() end)
    local function gradient(advantages)
      return expected_gradient(logits, reference, rewards, {n = n, advantages = advantages, loss = grpo()})
    end
    assert_close(gradient{kind = "rloo"}, wanted, "rloo")
    assert_close(gradient{kind = "group", scale = "none"}, wanted * ((n - 1) / n), "group")
  end
end

-- The objective with the KL divergence of whole answers.
local function regularised(logits, reference, rewards)
  return gradient_of(logits, function(x)
    local of_answers = answers_of(x)
    return (of_answers:exp() * (rewards - (of_answers - answers_of(reference)) * BETA)):sum()
  end)
end

function TestObjective.test_the_divergence_in_the_reward()
  local logits, reference, rewards = table_of(3, 4), table_of(3, 5), table_of(3, 6):narrow(0, 0, 3)
  local wanted, kl = regularised(logits, reference, rewards), {coefficient = BETA}
  local function gradient(n, loss, advantages)
    return expected_gradient(logits, reference, rewards, {n = n, advantages = advantages, loss = loss})
  end
  local ppo = rlhf.loss.ppo{mean = "constant", max_tokens = 1}
  assert_close(gradient(1, ppo, {kind = "gae", lambda = 1, kl = kl}), wanted, "gae")
  assert_close(gradient(1, ppo, {kind = "reinforce++", whiten = "none", kl = kl}), wanted, "reinforce++")
  assert_close(gradient(2, grpo(), {kind = "rloo", kl = kl}), wanted, "rloo")
end

-- The gradient of a loss of a token does not see that the token decides on later ones: the divergence of a later token counts by
-- the probabilities of the tokens before it, which are constants.
function TestObjective.test_k2_in_the_loss()
  local logits, reference, rewards = table_of(3, 7), table_of(3, 8), table_of(3, 9):narrow(0, 0, 3)
  local wanted = gradient_of(logits, function(x)
    local of_next, of_reference = x:log_softmax(-1), reference:log_softmax(-1)
    local divergences = (of_next:exp() * (of_next - of_reference)):sum(1)
    local first = of_next:narrow(0, 3, 1):exp():view{3}:detach()
    local divergence = divergences:narrow(0, 3, 1):sum() + (divergences:narrow(0, 0, 3) * first):sum()
    return (answers_of(x):exp() * rewards):sum() - divergence * BETA
  end)
  local loss = grpo{kl = {estimator = "k2", coefficient = BETA}}
  assert_close(expected_gradient(logits, reference, rewards, {n = 2, advantages = {kind = "rloo"}, loss = loss}), wanted, "k2")
  -- k3 times the ratio has the same gradient.
  local other = grpo{kl = {estimator = "k3", coefficient = BETA, corrected = true}}
  assert_close(expected_gradient(logits, reference, rewards, {n = 2, advantages = {kind = "rloo"}, loss = other}), wanted, "k3")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestObjective", TestObjective}})
