-- Tests calls that come again: what a call adds to an experience stays or goes as a whole, and what a reward function does with
-- its arguments changes nothing. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, infer, nn, optim = require "zt.comm", require "zt.infer", require "zt.nn", require "zt.optim"
local rlhf, zero = require "zt.rlhf", require "zt.zero"
local small_loop = require "rlhf.small_loop"

local mesh = comm.mesh{dp = -1}
local actor = small_loop.trainer({mesh = mesh, stage = 1}, nil, rlhf.loss.grpo{})
local other = small_loop.trainer({mesh = mesh}, {seed = 5})
local critic = small_loop.trainer({mesh = mesh}, {head = "value"})
local engine = infer.engine{trainer = actor, cache = {memory = 2 ^ 22}, stop_tokens = {small_loop.STOP}}

local function rollout(items, iteration)
  local prompts = {prompts = {{1, 2, 3}, {4}, {5, 6}}, items = items}
  return rlhf.rollout{engine = engine, prompts = prompts, n = 3, max_tokens = 6, iteration = iteration, mesh = mesh}
end

local function sum(_, _, _, tokens) return tokens:sum():item() end
local function long(_, _, _, tokens) return tokens:numel() > 1 and tokens:sum():item() or nil end

local TestRewards = {}

function TestRewards:test_get_copies()
  local answers = rollout{{n = 0, list = {{1}}}, {n = 0, list = {{1}}}, {n = 0, list = {{1}}}}
  local before = answers.answers:clone()
  rlhf.score(answers, {reward = function(_, _, item, tokens)
    item.n, item.list[1][1] = item.n + 1, item.list[1][1] + 1
    tokens:fill_(0)
    return item.n * 10 + item.list[1][1]
  end})
  lu.assertTrue(answers.answers:equal(before))
  lu.assertEquals(answers.rewards:tolist(), {12, 12, 12, 12, 12, 12, 12, 12, 12})
  lu.assertEquals(answers.items[1].n, 0)
end

-- A list of a JSON file may have a null in it.
function TestRewards:test_items_of_any_plain_values()
  local record = zt.json.decode '{"none": null, "list": [1, null, 3], "empty": {}}'
  record[2], record[0.5], record[true], record.huge, record.nan = "x", "y", "z", -math.huge, 0 / 0
  local answers = rollout{record, false, "text"}
  rlhf.score(answers, {reward = function(_, _, item)
    if type(item) ~= "table" then return item == false and 2 or #item end
    local is_right = item.list[1] == 1 and item.list[2] == nil and item.list[3] == 3 and type(item.empty) == "table"
      and item[2] == "x" and item[0.5] == "y" and item[true] == "z" and item.huge == -math.huge and item.nan ~= item.nan
    return is_right and 1 or 0
  end})
  lu.assertEquals(answers.rewards:tolist(), {1, 1, 1, 2, 2, 2, 4, 4, 4})
  lu.assertErrorMsgContains("prompts.items must be a list with the item of each prompt, got an integer", rollout, 5)
  if zt.world.size == 1 then return end
  local loop = {}
  loop.loop = loop
  lu.assertErrorMsgContains("rlhf.rollout.prompts.items[2][\"a\"][1] is a tensor, and other ranks", rollout,
                            {1, {a = {zt.ones{1}}}})
  lu.assertErrorMsgContains("items[1][\"loop\"] is a table inside itself", rollout, {loop})
  lu.assertErrorMsgContains("a key of an item must be a number", rollout, {{[{}] = 1}})
end

function TestRewards:test_items_of_one_sample()
  local numbers = zt.tensor({3, 3}, {dtype = "int64"})
  local function drawn(first, second)
    local prompts = {prompts = {{1}, {1}}, items = {first, second}, sample = numbers}
    return rlhf.rollout{engine = engine, prompts = prompts, n = 2, max_tokens = 3, mesh = mesh}.count
  end
  lu.assertEquals(drawn({a = {1, 0 / 0}, b = "x"}, {b = "x", a = {1, 0 / 0}}), 2)
  for _, second in ipairs{{a = {1, 2}}, {a = {1}, c = 1}, {a = {2}}, {}, "a", false} do
    lu.assertErrorMsgContains("two different items have the sample number 3", drawn, {a = {1}}, second)
  end
end

function TestRewards:test_errors_without_a_text()
  local failure = setmetatable({}, {__tostring = function() error "no text" end})
  lu.assertErrorMsgContains("the reward function failed: its error is a table whose text cannot be made\n", rlhf.score,
                            rollout(), {reward = function() error(failure) end})
end

function TestRewards:test_too_large_ones()
  local answers = rollout()
  local function huge(_, _, _, tokens) return tokens:sum():item() % 2 == 0 and 1e300 or -1e300 end
  rlhf.score(answers, {actor = actor, reward = huge})
  for _, kind in ipairs{"group", "rloo", "reinforce++"} do
    lu.assertErrorMsgContains("a reward of 1e+300: sums of the squares of such numbers overflow", rlhf.advantages, answers,
                              {kind = kind})
  end
  rlhf.advantages(answers, {kind = "group", reward_clip = 5})
  lu.assertTrue(answers.of_tokens.advantages:abs():max():item() > 0.1)
end

local TestAgain = {}

-- An answer that was dropped has no log-probabilities of models, so a later reward cannot bring it back.
function TestAgain:test_what_is_dropped_stays_dropped()
  local answers, calls = rollout(nil, 1), 0
  rlhf.score(answers, {actor = actor, reward = long})
  local kept = #answers:kept()
  lu.assertTrue(kept > 0 and kept < answers.count)
  rlhf.score(answers, {reward = function(...)
    calls = calls + 1
    return sum(...)
  end})
  lu.assertEquals(#answers:kept(), kept)
  local all = zt.world.size > 1 and mesh:world():gather_values(calls) or {calls}
  local total = 0
  for _, each in ipairs(all) do total = total + each end
  lu.assertEquals(total, kept)
  rlhf.reject(answers, {keep = 1, truncated = true})
  rlhf.score(answers, {reward = sum})
  lu.assertTrue(#answers:kept() <= 3)
end

-- Calls add up: without an actor what an earlier one has given stays.
function TestAgain:test_log_probabilities_stay()
  local answers = rollout(nil, 2)
  rlhf.score(answers, {reward = sum})
  lu.assertTrue(answers.of_tokens.old_logprobs:equal(answers.of_tokens.sampled_logprobs))
  rlhf.score(answers, {actor = other, is = {}})
  local old, correction = answers.of_tokens.old_logprobs, answers.of_tokens.correction
  lu.assertFalse(old:equal(answers.of_tokens.sampled_logprobs))
  rlhf.score(answers, {critic = critic})
  rlhf.score(answers, {reference = other})
  lu.assertTrue(answers.of_tokens.old_logprobs:equal(old))
  lu.assertTrue(answers.of_tokens.correction:equal(correction))
end

-- Weights go with the log-probabilities that they were made of.
function TestAgain:test_weights_go()
  for _, again in ipairs{{actor = actor}, {old = "sampler"}, {actor = actor, old = "sampler"}} do
    local answers = rollout(nil, 3)
    rlhf.score(answers, {actor = other, is = {}, reward = sum})
    lu.assertNotNil(answers.of_tokens.correction)
    rlhf.score(answers, again)
    lu.assertNil(answers.of_tokens.correction)
  end
end

-- Labels of prompts and of padding are no tokens.
function TestAgain:test_labels_that_a_loss_does_not_know()
  local answers = rollout(nil, 4)
  rlhf.score(answers, {actor = actor, reward = sum})
  rlhf.advantages(answers, {kind = "group"})
  for _, loss in ipairs{rlhf.loss.grpo{ignore_index = -1}, rlhf.loss.ppo{ignore_index = -1, mean = "sequence"}} do
    local trainer = small_loop.trainer({mesh = mesh}, nil, loss)
    local batch = rlhf.batches(answers, {trainer = trainer})()
    lu.assertErrorMsgContains("the label -100 is neither a token nor the loss's ignore_index, -1", trainer.step, trainer, batch)
  end
end

-- Models of which each rank has one of its own compute parts of the same numbers.
function TestAgain:test_models_of_ranks_that_differ()
  local function own(seed, more)
    more = more or {}
    more.seed = seed
    return small_loop.trainer({}, more)
  end
  local answers, rank = rollout(nil, 7), zt.world.rank
  rlhf.score(answers, {actor = own(3), reference = own(4), critic = own(5, {head = "value"})})
  if zt.world.size == 1 then return end
  lu.assertErrorMsgContains("ranks 0 and 1 have different values of 'embedding.weight'", rlhf.score, answers,
                            {actor = own(rank + 1)})
  local drawing = infer.engine{trainer = own(rank + 1), cache = {memory = 2 ^ 22}, stop_tokens = {small_loop.STOP}}
  lu.assertErrorMsgContains("each rank has a model of its own, and ranks 0 and 1", rlhf.rollout, {
    engine = drawing, prompts = {prompts = {{1}}}, max_tokens = 2, mesh = mesh})
end

local TestText = {}

-- Ranks may give different numbers of rows of text: which rank has a row changes nothing.
function TestText:test_rows_of_ranks()
  local answers, found = rollout(nil, 5), {}
  rlhf.score(answers, {actor = actor, reward = sum})
  rlhf.advantages(answers, {kind = "rloo"})
  local rows = zt.tensor({{1, 2, 3, 4, 5, 6, 7, 8, 9, 0}, {2, 2, 3, 3, 4, 4, 5, 5, 6, 6}}, {dtype = "int64"})
  local losses = {rlhf.loss.ppo{}, rlhf.loss.ptx{coefficient = 0.5}}
  for i = 0, zt.world.size - 1 do
    local model = nn.gpt(small_loop.options()):append(losses[1], "policy"):append(losses[2], "text")
    local program = zt.program(model, {precision = "fp64", micro_batches = 2}):apply(zero.shard{axis = mesh.dp, stage = 2})
    local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
    local function text()
      local own = rows:narrow(0, 0, mesh.dp.rank == i and 2 or 0)
      return {tokens = own, labels = own}
    end
    local batch = rlhf.batches(answers, {trainer = trainer, seq = 10, ptx = text})()
    found[i + 1] = trainer:step(batch).loss
    lu.assertAlmostEquals(found[i + 1] / found[1], 1, 1e-12)
  end
end

function TestText:test_fields()
  local answers, tokens = rollout(nil, 6), zt.ones({1, 10}, {dtype = "int64"})
  rlhf.score(answers, {actor = actor, reward = sum})
  for _, case in ipairs{{{labels = tokens:narrow(1, 0, 3)}, "ptx: 'labels' must be a tensor [1, 10], as the tokens, got [1, 3]"},
                        {{segments = 5}, "ptx: 'segments' must be a tensor [1, 10], as the tokens, got an integer"},
                        {{tokens = tokens:flatten()}, "ptx: tokens must be [rows, seq], got 1 dims"}} do
    local function text()
      local batch = {tokens = tokens, labels = tokens}
      for name, field in pairs(case[1]) do batch[name] = field end
      return batch
    end
    lu.assertErrorMsgContains(case[2], rlhf.batches(answers, {trainer = actor, seq = 10, ptx = text}))
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestRewards", TestRewards}, {"TestAgain", TestAgain}, {"TestText", TestText}})
