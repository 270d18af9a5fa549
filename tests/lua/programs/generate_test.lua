-- Tests zt.generate with a model made by hand. After token t, (t + 1) mod 8 is clearly the likeliest, (t + 2) mod 8 the second.
local lu = require "luaunit"
local zt = require "zt"

local VOCAB = 8

-- Returns a stand-in with the methods of a trainer that zt.generate calls. It records the windows that it gets.
local function counting_trainer()
  local trainer = {program = {eval_micro_batches = 1}, windows = {}}
  function trainer:infer(batch, reduce)
    lu.assertEquals(batch.tokens:size(0), 1)
    local window = batch.tokens:tolist()[1]
    self.windows[#self.windows + 1] = window
    local rows = {}
    for place, token in ipairs(window) do
      local row = {}
      for class = 0, VOCAB - 1 do row[class + 1] = -10 end
      row[(token + 1) % VOCAB + 1] = 2
      row[(token + 2) % VOCAB + 1] = 1
      rows[place] = row
    end
    return reduce{logits = zt.tensor({rows})}
  end
  return setmetatable(trainer, {__name = "Trainer"})
end

local function generate(options, prompt)
  options.seq = options.seq or 16
  return zt.generate(counting_trainer(), prompt or {3}, options)
end

local TestGenerate = {}

function TestGenerate:test_temperature_0_takes_the_likeliest()
  lu.assertEquals(generate{max_tokens = 7, temperature = 0}, {4, 5, 6, 7, 0, 1, 2})
end

function TestGenerate:test_top_k_1_is_greedy()
  lu.assertEquals(generate{max_tokens = 5, top_k = 1}, {4, 5, 6, 7, 0})
end

function TestGenerate:test_a_seed_gives_the_same_tokens_again()
  local first = generate{max_tokens = 50, seed = 7}
  lu.assertEquals(generate{max_tokens = 50, seed = 7}, first)
  lu.assertNotEquals(generate{max_tokens = 50, seed = 8}, first)
end

-- Returns a trainer whose logits are the same after every token.
local function constant_trainer(logits)
  return setmetatable({
    program = {eval_micro_batches = 1},
    infer = function(_, _, reduce) return reduce{logits = zt.tensor({{logits}})} end,
  }, {__name = "Trainer"})
end

function TestGenerate:test_the_next_seed_is_no_shifted_copy()
  local function tokens(seed) return zt.generate(constant_trainer {0, 0, 0, 0}, {0}, {max_tokens = 200, seq = 1, seed = seed}) end
  local one, two, equal = tokens(1), tokens(2), 0
  for place = 2, 200 do
    if one[place] == two[place - 1] then equal = equal + 1 end
  end
  -- 199 comparisons of independent draws among 4: mean 49.75, standard deviation sqrt(199 * 3 / 16) = 6.1. Bound: five
  -- deviations.
  lu.assertAlmostEquals(equal, 49.75, 5 * 6.1)
end

function TestGenerate:test_a_draw_depends_on_seed_and_index_only()
  local function tokens(count) return zt.generate(constant_trainer {0, 0, 0, 0}, {0}, {max_tokens = count, seq = 1, seed = 9}) end
  local long = tokens(300)
  lu.assertEquals(tokens(70), {unpack(long, 1, 70)})
end

local function seen(logits, options, count)
  options.max_tokens, options.seq = count, 1
  local counts = {}
  for _, token in ipairs(zt.generate(constant_trainer(logits), {0}, options)) do counts[token] = (counts[token] or 0) + 1 end
  return counts
end

function TestGenerate:test_top_p_keeps_the_likeliest()
  -- The tokens 2, 0, 3, 1 have the probabilities 0.5, 0.25, 0.15, 0.1.
  local logits = {math.log(0.25), math.log(0.1), math.log(0.5), math.log(0.15)}
  lu.assertEquals(seen(logits, {top_p = 0.4}, 200), {[2] = 200})
  local two = seen(logits, {top_p = 0.7}, 3000)
  lu.assertNil(two[1] or two[3])
  -- 2/3 of 3000 draws: mean 2000, standard deviation sqrt(3000 * 2 / 9) = 25.8. Bound: five deviations.
  lu.assertAlmostEquals(two[2], 2000, 5 * 25.8)
  local three = seen(logits, {top_p = 0.8}, 500)
  lu.assertNil(three[1])
  lu.assertNotNil(three[3])
  lu.assertNotNil(seen(logits, {top_p = 1}, 500)[1])
end

function TestGenerate:test_temperature_then_top_k_then_top_p()
  local logits = {math.log(0.4), math.log(0.3), math.log(0.2), math.log(0.1)}
  -- Among the two likeliest the first has 4/7 = 0.571, so it alone reaches 0.55. Among all four it has only 0.4.
  lu.assertEquals(seen(logits, {top_k = 2, top_p = 0.55}, 100), {[0] = 100})
  -- At temperature 1/2 the first has 0.16 / 0.3 = 0.533.
  lu.assertEquals(seen(logits, {temperature = 0.5, top_p = 0.5}, 100), {[0] = 100})
end

function TestGenerate:test_prompts_of_tensors()
  local expected = generate({max_tokens = 4, temperature = 0}, {1, 2, 3})
  lu.assertEquals(generate({max_tokens = 4, temperature = 0}, zt.tensor({1, 2, 3}, {dtype = "int64"})), expected)
  lu.assertEquals(generate({max_tokens = 4, temperature = 0}, zt.tensor({{1, 2, 3}}, {dtype = "int64"})), expected)
  lu.assertErrorMsgContains("got the shape [2, 1]", generate, {}, zt.tensor({{1}, {2}}, {dtype = "int64"}))
  lu.assertErrorMsgContains("got the shape [0]", generate, {}, zt.zeros({0}, {dtype = "int64"}))
  lu.assertErrorMsgContains("got dtype float32", generate, {}, zt.tensor {1.5})
  lu.assertErrorMsgContains("token 2 must be an integer of at least 0, got 1.5", generate, {}, {1, 1.5})
end

-- The message comes from a function of Lua that C++ calls, within a function of C++ that Lua calls.
function TestGenerate:test_a_message_has_its_place_once()
  local _, message = pcall(function() seen({0, 0 / 0}, {}, 3) end)
  lu.assertEquals(select(2, message:match("^[^\n]*"):gsub("generate_test%.lua:%d+: ", "")), 1, message)
end

function TestGenerate:test_logits_that_are_not_finite()
  for _, options in ipairs {{temperature = 0}, {temperature = 1}, {top_k = 2}} do
    lu.assertErrorMsgContains("generate_test.lua:", seen, {0, 0 / 0, 1}, options, 3)
    lu.assertErrorMsgContains("largest logit for new token 1 is nan", seen, {0, 0 / 0, 1}, options, 3)
    lu.assertErrorMsgContains("new token 1 is inf", seen, {0, math.huge, 1}, options, 3)
  end
  lu.assertEquals(seen({-math.huge, 0}, {}, 10), {[1] = 10}) -- a masked token is never drawn
end

function TestGenerate:test_frequencies_follow_the_softmax()
  local tokens, count, last = generate{max_tokens = 2000, top_k = 2, seed = 1}, 0, 3
  for _, token in ipairs(tokens) do
    if token == (last + 1) % VOCAB then count = count + 1 end
    last = token
  end
  -- p = e^2 / (e^2 + e) = 0.7311. The count of 2000 draws has the standard deviation sqrt(2000 p (1 - p)) = 19.8. Bound: five.
  lu.assertAlmostEquals(count, 2000 * 0.7311, 5 * 19.8)
end

function TestGenerate:test_a_window_holds_the_last_seq_tokens()
  local trainer = counting_trainer()
  zt.generate(trainer, {0, 1, 2, 3, 4}, {max_tokens = 3, seq = 4, temperature = 0})
  lu.assertEquals(trainer.windows, {{1, 2, 3, 4}, {2, 3, 4, 5}, {3, 4, 5, 6}})
end

function TestGenerate:test_a_short_window_grows()
  local trainer = counting_trainer()
  zt.generate(trainer, {0}, {max_tokens = 3, seq = 4, temperature = 0})
  lu.assertEquals(trainer.windows, {{0}, {0, 1}, {0, 1, 2}})
end

function TestGenerate:test_it_ends_after_the_stop_token()
  lu.assertEquals(generate{max_tokens = 20, temperature = 0, stop = 6}, {4, 5, 6})
  lu.assertEquals(generate{max_tokens = 0}, {})
end

function TestGenerate:test_mistakes()
  lu.assertErrorMsgContains("the prompt must be a list of at least one token", generate, {}, {})
  lu.assertErrorMsgContains("zt.generate: option 'seq' is missing", zt.generate, counting_trainer(), {1}, {})
  lu.assertErrorMsgContains("zt.generate.temperature must be at least 0", generate, {temperature = -1})
  lu.assertErrorMsgContains("zt.generate.temperature must be a number, got nan", generate, {temperature = 0 / 0})
  lu.assertErrorMsgContains("zt.generate.temperature must be finite", generate, {temperature = math.huge})
  for _, wrong in ipairs {0, -0.5, 1.5, 0 / 0} do
    lu.assertErrorMsgContains("zt.generate.top_p must", generate, {top_p = wrong})
  end
  lu.assertErrorMsgContains("zt.generate: unknown option 'topk': did you mean 'top_k'?", generate, {topk = 3})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestGenerate", TestGenerate}})
