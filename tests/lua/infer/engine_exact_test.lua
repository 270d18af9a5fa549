-- Tests that an answer of zt.infer has the same bits whatever runs beside it, in random schedules.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
require "zt.gemm"
local infer = require "zt.infer"
local cases = require "infer.engine_cases"

local KINDS = {"gpt2", "llama", "qwen3", "window"}
local SCHEDULES = tonumber(os.getenv "ZT_INFER_SCHEDULES" or 25) -- of each kind and precision

-- Returns what each request gets alone.
local function alone(trainer, requests)
  local texts = {}
  for place, request in ipairs(requests) do
    local engine = infer.engine{trainer = trainer, max_sequences = 1, cache = {prefix = false}}
    for key, text in pairs(cases.texts(engine:generate(request))) do texts[place .. key:match "%..*"] = text end
  end
  return texts
end

-- Returns the options of an engine for a random schedule. The smallest cache holds one sequence.
local function random_options(random, trainer)
  local function pick(...) return (select(random(select("#", ...)), ...)) end
  local block = pick(8, 16, 32)
  local sequences = pick(1, 3, 64)
  local options = {
    trainer = trainer, max_sequences = sequences, token_budget = math.max(sequences, pick(1, 7, 20, 512)),
    cache = {block = block, prefix = pick(true, false)},
    speculative = pick(nil, {tokens = pick(1, 4), match = pick(1, 3)}),
  }
  if pick(1, 2) == 1 then
    local probe = infer.engine{trainer = trainer, max_sequences = 1, cache = {block = block, prefix = false}}
    local of_one = probe:stats().cache_bytes -- of a sequence at its longest
    options.cache.memory = of_one * pick(1, 1.5, 2)
  end
  return options
end

-- Submits the requests in a random order between steps. Returns the texts of all answers, and the engine.
local function run_schedule(random, options, requests)
  local engine, left, places, texts = infer.engine(options), {}, {}, {}
  for place = 1, #requests do table.insert(left, random(#left + 1), place) end
  while #left > 0 or engine.core.has_work do
    while #left > 0 and random(3) > 1 do
      local place = table.remove(left)
      places[engine:submit(requests[place])] = place
    end
    for _, answer in ipairs((engine:step() or {answers = {}}).answers) do
      texts[places[answer.request] .. "." .. answer.copy] = cases.text(answer)
    end
  end
  return texts, engine
end

local TestExact = {}

for _, kind in ipairs(KINDS) do
  for _, precision in ipairs{"fp32", "bf16"} do
    TestExact["test_schedules_of_" .. kind .. "_in_" .. precision] = function()
      local trainer = cases.trainer(kind, precision)
      local requests = cases.requests(12)
      requests[3].n, requests[5].prompt_logprobs, requests[6].prompt = 3, true, requests[2].prompt
      requests[9] = {prompt = cases.prompt(4, 9), max_tokens = 100, temperature = 0, logprobs = 1} -- it soon repeats itself
      local expected, seen = alone(trainer, requests), {put_back = 0, cached_tokens = 0, kept_guesses = 0, steps = 0}
      for seed = 1, SCHEDULES do
        local state = seed * 2654435761 % 2 ^ 32
        local function random(most)
          state = (state * 1664525 + 1013904223) % 2 ^ 32
          return math.floor(state / 65536) % most + 1
        end
        local options = random_options(random, trainer)
        local texts, engine = run_schedule(random, options, requests)
        lu.assertEquals(texts, expected, ("schedule %d"):format(seed))
        local stats = engine:stats()
        for key in pairs(seen) do seen[key] = seen[key] + stats[key] end
        lu.assertEquals(stats.free_blocks + stats.prefix_blocks, stats.blocks)
      end
      for key, value in pairs(seen) do lu.assertTrue(value > 0, "no schedule had " .. key) end
    end
  end
end

-- Layers in Lua, routers and gates multiply wide rows: LibTorch's products of one row and of several differ there.
function TestExact:test_products_in_lua_and_of_routers_have_the_same_bits()
  local moe, nn = require "zt.moe", require "zt.nn"
  local gate = nn.layer{
    params = {w = zt.randn({512, 512}, {seed = 3}):mul(0.05), b = zt.randn({512}, {seed = 4})},
    forward = function(own, h) return h + zt.linear(h:matmul(own.w):tanh(), own.w, own.b) end, tokens = "separate",
  }
  local experts = moe.layers{experts = 8, hidden = 512, ffn = 64, shared = {ffn = 64, gate = true}}
  local layers = {nn.embedding{vocab = cases.VOCAB, hidden = 512}, {"gate", gate},
                  {"block", {nn.attention_block{hidden = 512, heads = 4, rotary = true}}}, {"mlp", experts}, nn.residual{},
                  nn.lm_loss{vocab = cases.VOCAB, hidden = 512}, seed = 2}
  local trainer = zt.trainer(zt.program(nn.sequential(layers)), {})
  local requests = cases.requests(6)
  local function run(more)
    more.trainer, more.max_context = trainer, cases.SEQ
    return cases.texts(infer.engine(more):generate(requests))
  end
  lu.assertEquals(run{}, run{max_sequences = 1, token_budget = 3, cache = {prefix = false}})
  lu.assertNotEquals(run{numerics = "fast"}, run{})
end

-- An int8 cache changes numbers, but not from one schedule to another.
function TestExact:test_an_int8_cache_has_the_same_bits_in_all_schedules()
  local trainer, requests = cases.trainer "llama", cases.requests(6)
  local function run(options)
    options.trainer, options.cache.dtype = trainer, "int8"
    return cases.texts(infer.engine(options):generate(requests))
  end
  local expected = run{max_sequences = 1, cache = {prefix = false}}
  lu.assertEquals(run{cache = {block = 8}}, expected)
  lu.assertEquals(run{token_budget = 64, cache = {block = 32}, speculative = {tokens = 3, match = 1}}, expected)
  lu.assertNotEquals(cases.texts(infer.engine{trainer = trainer}:generate(requests)), expected)
end

-- After a step of training, what was computed from the old parameters is not used.
function TestExact:test_new_parameters_give_the_answers_of_new_parameters()
  local optim = require "zt.optim"
  local nn = require "zt.nn"
  local trainer = zt.trainer(zt.program(nn.gpt(cases.options "gpt2")), {optimizer = optim.adamw{lr = 0.01}})
  local engine = infer.engine{trainer = trainer}
  local request = {prompt = cases.prompt(50, 1), max_tokens = 5, logprobs = 0, prompt_logprobs = false}
  local before = cases.texts(engine:generate(request))
  local tokens = zt.tensor({cases.prompt(20, 2)}, {dtype = "int64"})
  trainer:step{tokens = tokens, labels = tokens}
  local after = cases.texts(engine:generate(request))
  lu.assertNotEquals(after, before)
  lu.assertEquals(cases.texts(infer.engine{trainer = trainer}:generate(request)), after)
  lu.assertEquals(engine:stats().cached_tokens, 0)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestExact", TestExact}})
