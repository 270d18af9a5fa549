-- zt.generate with a model made by hand: after token t comes (t + 1) mod 8, clearly the likeliest; (t + 2) mod 8 comes second.
local lu = require "luaunit"
local zt = require "zt"

local VOCAB = 8

-- What zt.generate asks of a trainer; keeps the windows it was given.
local function counting_trainer()
  local trainer = {windows = {}}
  function trainer:infer(batch)
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
    return {logits = zt.tensor({rows})}
  end
  return trainer
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

function TestGenerate:test_frequencies_follow_the_softmax()
  local tokens, count, last = generate{max_tokens = 2000, top_k = 2, seed = 1}, 0, 3
  for _, token in ipairs(tokens) do
    if token == (last + 1) % VOCAB then count = count + 1 end
    last = token
  end
  -- p = e^2 / (e^2 + e) = 0.7311; the count of 2000 draws has the standard deviation sqrt(2000 p (1 - p)) = 19.8: allow five.
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
  lu.assertErrorMsgContains("zt.generate: unknown option 'topk': did you mean 'top_k'?", generate, {topk = 3})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestGenerate", TestGenerate}})
