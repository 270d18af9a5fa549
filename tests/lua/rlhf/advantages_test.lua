-- Compares advantages and rewards with closed forms, at answers of one token, empty and dropped ones.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local nn, rlhf = require "zt.nn", require "zt.rlhf"
local by_hand = require "rlhf.by_hand"

local function float64(list) return zt.tensor(list, {dtype = "float64"}) end

local function trainer_of(micro_batches)
  local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = 7, seq = 16, head = "logprobs"}
  return zt.trainer(zt.program(model, {micro_batches = micro_batches}), {separate = true})
end

local function assert_close(got, wanted)
  lu.assertEquals(got:numel(), #wanted)
  for i, number in ipairs(wanted) do lu.assertAlmostEquals(got[i - 1]:item(), number, 1e-12) end
end

-- Two prompts with two answers each, of 3, 1, 0 and 2 tokens.
local function answers_of(more)
  local all = {rewards = {1, -2, 5, 0.5}, of_tokens = {
    old_logprobs = {{-1, -2, -0.5}, {-1}, {}, {-3, -1}}, ref_logprobs = {{-1.5, -1, -0.5}, {-2}, {}, {-1, -1.25}},
    old_values = {{0.5, 1, 2}, {-1}, {}, {0.25, 0.75}},
  }}
  for key, value in pairs(more or {}) do all[key] = value end
  return by_hand.experience({{1, 2}, {3}}, {{1, 2, 3}, {4}, {}, {5, 6}}, all)
end

local TestAdvantages = {}

-- With lambda = 1 and gamma = 1, what follows minus the value.
function TestAdvantages.test_gae()
  local answers = rlhf.advantages(answers_of(), {kind = "gae", lambda = 1})
  assert_close(answers.of_tokens.advantages, {0.5, 0, -1, -1, 0.25, -0.25})
  assert_close(answers.of_tokens.returns, {1, 1, 1, -2, 0.5, 0.5})
  local returns, mean = {1, 1, 1, -2, 0.5, 0.5}, 2 / 6
  local all, rest, rest_mean = 0, 0, -1.5 / 6
  for i, each in ipairs(returns) do
    all = all + (each - mean) ^ 2
    rest = rest + (answers.of_tokens.advantages[i - 1]:item() - rest_mean) ^ 2
  end
  lu.assertAlmostEquals(answers.metrics.explained_variance, 1 - rest / all, 1e-12)
  -- gamma = 0.5, lambda = 0: one step ahead. The default of lambda is 0.95.
  answers = rlhf.advantages(answers_of(), {kind = "gae", gamma = 0.5, lambda = 0})
  assert_close(answers.of_tokens.advantages, {0, 0, -1, -1, 0.125, -0.25})
  answers = rlhf.advantages(answers_of(), {kind = "gae"})
  assert_close(answers.of_tokens.advantages, {0.5 + 0.95 * (1 - 0.95), 1 - 0.95, -1, -1, 0.5 - 0.95 * 0.25, -0.25})
end

-- The divergence costs each token, and rewards are clipped before.
function TestAdvantages.test_the_divergence_in_the_reward()
  local d = {0.5, -1, 0, 1, -2, 0.25}
  for estimator, cost in pairs{k1 = function(x) return x end, k2 = function(x) return x * x / 2 end,
                               k3 = function(x) return math.exp(-x) - 1 + x end} do
    local options = {kind = "gae", lambda = 0, kl = {coefficient = 0.3, estimator = estimator}, reward_clip = 1.5}
    local ahead, ends = {0.5, 1, -2, -1 * -1, 0.5, -0.75}, {0, 0, 1, -1.5, 0, 0.5}
    local wanted = {}
    for i = 1, 6 do wanted[i] = ahead[i] + ends[i] - 0.3 * cost(d[i]) end
    assert_close(rlhf.advantages(answers_of(), options).of_tokens.advantages, wanted)
    -- Of whole answers: what all tokens cost.
    local whole = {1 - 0.3 * (cost(d[1]) + cost(d[2]) + cost(d[3])), -1.5 - 0.3 * cost(d[4]), 1.5,
                   0.5 - 0.3 * (cost(d[5]) + cost(d[6]))}
    local first, second = whole[1] - whole[2], whole[4] - whole[3]
    options = {kind = "rloo", kl = options.kl, reward_clip = 1.5}
    assert_close(rlhf.advantages(answers_of(), options).of_tokens.advantages, {first, first, first, -first, second, second})
  end
end

function TestAdvantages.test_groups()
  local function of(options) return rlhf.advantages(answers_of(), options).of_tokens.advantages end
  local deviation, other = math.sqrt(4.5), math.sqrt(4.5 * 4.5 / 2)
  assert_close(of{kind = "group", scale = "none"}, {1.5, 1.5, 1.5, -1.5, -2.25, -2.25})
  assert_close(of{kind = "rloo"}, {3, 3, 3, -3, -4.5, -4.5})
  local a, b = 1.5 / (deviation + 1e-4), -2.25 / (other + 1e-4)
  assert_close(of{kind = "group"}, {a, a, a, -a, b, b})
  local mean = 4.5 / 4
  local batch = math.sqrt(((1 - mean) ^ 2 + (2 + mean) ^ 2 + (5 - mean) ^ 2 + (0.5 - mean) ^ 2) / 3) + 1e-4
  assert_close(of{kind = "group", scale = "batch"}, {1.5 / batch, 1.5 / batch, 1.5 / batch, -1.5 / batch, -2.25 / batch,
                                                    -2.25 / batch})
end

-- The mean of three times 0.1 is not 0.1 in float64.
function TestAdvantages.test_equal_rewards_are_exactly_zero()
  local function answers()
    return by_hand.experience({{1}, {2}}, {{1}, {2}, {3, 4}, {5}, {6}, {7}}, {rewards = {0.1, 0.1, 0.1, 1, 2, 3}})
  end
  for _, options in ipairs{{kind = "group"}, {kind = "group", scale = "none"}, {kind = "group", scale = "batch"},
                           {kind = "rloo"}} do
    local found = rlhf.advantages(answers(), options)
    lu.assertEquals(found.of_tokens.advantages:narrow(0, 0, 4):tolist(), {0, 0, 0, 0})
    lu.assertTrue(found.of_tokens.advantages[6]:item() > 0)
    lu.assertEquals(found.metrics.equal_groups, 0.5)
  end
end

-- What the reward has dropped is in no mean, group or batch.
function TestAdvantages.test_dropped_answers()
  local answers = answers_of()
  rlhf.score(answers, {reward = function(_, _, _, tokens)
    if tokens:numel() == 1 then return nil end
    return tokens:numel()
  end, old = "sampler"})
  lu.assertEquals({answers.metrics.reward, answers.metrics.dropped}, {5 / 3, 0.25})
  lu.assertAlmostEquals(answers.metrics.reward_deviation, math.sqrt(7 / 3), 1e-12)
  rlhf.advantages(answers, {kind = "group", scale = "none"})
  assert_close(answers.of_tokens.advantages, {0, 0, 0, 0, 1, 1})
  lu.assertEquals(answers:kept(), {0, 3})
  rlhf.advantages(answers, {kind = "group", scale = "none", whiten = "batch"})
  local deviation = math.sqrt((3 * 0.4 ^ 2 + 2 * 0.6 ^ 2) / 4) + 1e-8
  local low, high = -0.4 / deviation, 0.6 / deviation
  assert_close(answers.of_tokens.advantages, {low, low, low, 0, high, high})
end

function TestAdvantages.test_reinforce()
  local answers = rlhf.advantages(answers_of(), {kind = "reinforce++", whiten = "none", gamma = 0.5})
  assert_close(answers.of_tokens.advantages, {0.25, 0.5, 1, -2, 0.25, 0.5})
  local found = rlhf.advantages(answers_of(), {kind = "reinforce++"}).of_tokens.advantages
  lu.assertAlmostEquals(found:mean():item(), 0, 1e-12)
  lu.assertAlmostEquals(found:square():sum():item() / 5, 1, 1e-7)
  -- One token, and equal ones, have no deviation.
  local one = by_hand.experience({{1}}, {{2}}, {rewards = {3}})
  lu.assertEquals(rlhf.advantages(one, {kind = "reinforce++"}).of_tokens.advantages:tolist(), {0})
end

function TestAdvantages.test_the_best_answers()
  local function kept(rewards, truncated, options)
    local answers = by_hand.experience({{1}, {2}}, {{1}, {2}, {3}, {4}, {5}, {6}}, {rewards = rewards})
    for i in pairs(truncated) do answers.truncated[i] = true end
    return rlhf.reject(answers, options):kept()
  end
  lu.assertEquals(kept({1, 3, 3, 0, -1, 0}, {}, nil), {1, 3})
  lu.assertEquals(kept({1, 3, 3, 0, -1, 0}, {[2] = true}, {keep = 2}), {0, 2, 3, 5})
  lu.assertEquals(kept({1, 3, 3, 0, -1, 0}, {[2] = true}, {keep = 2, truncated = true, least = 1}), {1, 2})
  lu.assertErrorMsgContains("no answer is left: all were dropped or truncated or had less reward than 4", kept,
                            {1, 3, 3, 0, -1, 0}, {}, {least = 4})
end

-- Each sequence comes once per epoch, in an order that the seed decides, with its own numbers.
function TestAdvantages.test_batches()
  local trainer = trainer_of(3)
  local prompts, answers, numbers = {}, {}, {}
  for i = 1, 11 do
    prompts[i], answers[i], numbers[i] = {}, {}, {}
    for place = 1, 1 + i % 3 do prompts[i][place] = i % 7 end
    for place = 1, (i * 2) % 5 do answers[i][place], numbers[i][place] = (i + place) % 7, 100 * i + place end
  end
  local experience = by_hand.experience(prompts, answers, {of_tokens = {advantages = numbers}})
  experience.is_kept[3] = false
  local function seen(options)
    local all, orders = {}, {}
    options.trainer = trainer
    for batch in rlhf.batches(experience, options) do
      lu.assertEquals(batch.tokens:size(0) % 3, 0)
      local labels, found = batch.labels:flatten():tolist(), batch.advantages:flatten():tolist()
      for place, label in ipairs(labels) do
        if label == -100 then
          lu.assertEquals(found[place], 0)
        else
          local i, t = math.floor(found[place] / 100), found[place] % 100
          lu.assertEquals(label, answers[i][t])
          all[found[place]] = (all[found[place]] or 0) + 1
          if t == 1 then orders[#orders + 1] = i end
        end
      end
    end
    return all, table.concat(orders, " ")
  end
  local first
  for _, options in ipairs{{}, {updates = 3}, {epochs = 2, updates = 2, padding = "left"},
                           {padding = "right", seq = 9, seed = 4}} do
    local all, order = seen(options)
    for i, of_answer in ipairs(numbers) do
      for _, number in ipairs(of_answer) do lu.assertEquals(all[number], i ~= 3 and (options.epochs or 1) or nil) end
    end
    lu.assertEquals({seen(options)}, {all, order})
    if options.seed then lu.assertNotEquals(order, first) end
    first = first or order
  end
end

function TestAdvantages.test_empty_and_truncated_answers()
  local answers = by_hand.experience({{1}, {2}}, {{}, {}, {}, {}}, {rewards = {1, 2, 3, 4}, of_tokens = {old_values = {}}})
  for i = 1, 4 do answers.truncated[i] = true end
  for _, options in ipairs{{kind = "group"}, {kind = "rloo"}, {kind = "gae"}, {kind = "reinforce++"}} do
    lu.assertEquals(rlhf.advantages(answers, options).of_tokens.advantages:numel(), 0)
  end
  lu.assertErrorMsgContains("no answer is left to learn from", rlhf.batches, answers, {trainer = trainer_of(1)})
  lu.assertErrorMsgContains("all were dropped or truncated", rlhf.reject, answers)
end

function TestAdvantages.test_refusals()
  local function refused(text, options) lu.assertErrorMsgContains(text, rlhf.advantages, answers_of(), options) end
  refused("option 'kind' is missing", {})
  refused("has an effect only with kind = 'gae'", {kind = "group", lambda = 0.5})
  refused("has an effect only with kind = 'group'", {kind = "rloo", scale = "batch"})
  refused("gamma must lie between 0 and 1", {kind = "gae", gamma = 2})
  refused("reward_clip must be above 0", {kind = "gae", reward_clip = 0})
  refused("kl.estimator must be one of", {kind = "gae", kl = {estimator = "k4"}})
  local rewards, offsets = float64{1, 2}, zt.tensor({0, 1, 2}, {dtype = "int64"})
  local function tokens(text, options) lu.assertErrorMsgContains(text, rlhf.token_advantages, options) end
  for _, bad in ipairs{{0, 1}, {1, 2}, {0, 3}, {0, 2, 1, 2}, {}} do
    tokens("the offsets must ascend from 0 to the number of tokens, 2", {rewards = rewards,
                                                                         offsets = zt.tensor(bad, {dtype = "int64"})})
  end
  tokens("there are 2 rewards and 1 values", {rewards = rewards, offsets = offsets, values = float64{1}})
  tokens("rewards must be a vector of float64", {rewards = rewards:to "float32", offsets = offsets})
  lu.assertErrorMsgContains("there are 2 rewards and 3 numbers of groups", rlhf.group_advantages,
                            {rewards = rewards, groups = offsets})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestAdvantages", TestAdvantages}})
