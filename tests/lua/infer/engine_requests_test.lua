-- Tests what the options of requests do, and what is refused.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
require "zt.gemm"
local data, infer, nn = require "zt.data", require "zt.infer", require "zt.nn"
local cases = require "infer.engine_cases"

local trainer = cases.trainer "llama"
local engine = infer.engine{trainer = trainer}

local function answer(request, more)
  request.prompt = request.prompt or cases.prompt(20, 1)
  request.max_tokens = request.max_tokens or 12
  return engine:generate(request, more)[1]
end

local TestRequests = {}

function TestRequests:test_copies_draw_their_own_tokens_and_share_the_prompt()
  local fresh = infer.engine{trainer = trainer}
  local answers = fresh:generate{prompt = cases.prompt(50, 1), max_tokens = 20, n = 4}
  lu.assertEquals(#answers, 4)
  local texts = {}
  for copy, each in ipairs(answers) do
    lu.assertEquals({each.request, each.copy}, {1, copy - 1})
    lu.assertEquals(each.cached_tokens, copy == 1 and 0 or 48)
    lu.assertNil(texts[table.concat(each.tokens, " ")])
    texts[table.concat(each.tokens, " ")] = true
  end
end

function TestRequests:test_the_same_prompt_again_is_read_from_the_cache()
  local fresh = infer.engine{trainer = trainer}
  local prompt = cases.prompt(100, 3)
  local first, second = fresh:generate{prompt = prompt, max_tokens = 4}[1], fresh:generate{prompt = prompt, max_tokens = 4}[1]
  lu.assertEquals({first.cached_tokens, second.cached_tokens}, {0, 96})
  lu.assertEquals(second.tokens, first.tokens)
  lu.assertEquals(fresh:generate{prompt = prompt, max_tokens = 4, salt = "mine"}[1].cached_tokens, 0)
  local ended = infer.engine{trainer = trainer, token_budget = 64} -- in two steps, of which the second one ends the answer
  ended:generate{prompt = prompt, max_tokens = 1}
  lu.assertEquals(ended:generate{prompt = prompt, max_tokens = 1}[1].cached_tokens, 96)
end

function TestRequests:test_a_stop_token_ends_the_answer_with_it()
  local whole = answer{temperature = 0}.tokens
  local stopped = answer{temperature = 0, stop_tokens = {whole[3]}}
  lu.assertEquals(stopped.finish_reason, "stop")
  lu.assertEquals(stopped.tokens[#stopped.tokens], whole[3])
  lu.assertTrue(#stopped.tokens <= 3)
  local later = answer{temperature = 0, stop_tokens = {whole[3]}, min_tokens = 6}
  lu.assertTrue(#later.tokens >= 6)
  for place = 1, 5 do lu.assertNotEquals(later.tokens[place], whole[3]) end
end

function TestRequests:test_tokens_of_the_model_end_answers_unless_they_are_ignored()
  local whole = answer{temperature = 0}.tokens
  local ending = infer.engine{trainer = trainer, stop_tokens = {whole[2]}}
  local request = {prompt = cases.prompt(20, 1), max_tokens = 12, temperature = 0}
  lu.assertEquals(ending:generate(request)[1].finish_reason, "stop")
  request.ignore_eos = true
  lu.assertEquals(ending:generate(request)[1].tokens, whole)
  request.ignore_eos, request.stop_tokens = nil, {}
  lu.assertEquals(ending:generate(request)[1].tokens, whole)
end

function TestRequests:test_a_bias_forces_a_token_and_forbids_one()
  lu.assertEquals(answer{max_tokens = 3, logit_bias = {[17] = 1000}}.tokens, {17, 17, 17})
  local whole = answer{temperature = 0}.tokens
  for _, token in ipairs(answer{temperature = 0, logit_bias = {[whole[1]] = -1000}}.tokens) do
    lu.assertNotEquals(token, whole[1])
  end
end

function TestRequests:test_log_probabilities_are_those_of_the_logits_and_of_the_draw()
  local forced = answer{max_tokens = 1, logit_bias = {[17] = 1000}, logprobs = 3}.logprobs[1]
  lu.assertEquals({forced.token, forced.sampled_logprob}, {17, 0})
  lu.assertTrue(forced.logprob < -0.5)
  lu.assertEquals(#forced.top, 3)
  lu.assertTrue(forced.top[1].logprob > forced.top[2].logprob)
  local plain = answer{max_tokens = 4, logprobs = 0}.logprobs
  for _, each in ipairs(plain) do lu.assertAlmostEquals(each.logprob, each.sampled_logprob, 1e-12) end
end

-- The log-probabilities of a prompt are those that its tokens would get as an answer.
function TestRequests:test_log_probabilities_of_the_prompt()
  local first = answer{temperature = 0, logprobs = 0, max_tokens = 8}
  local prompt = cases.prompt(20, 1)
  for _, token in ipairs(first.tokens) do prompt[#prompt + 1] = token end
  local again = answer{prompt = prompt, max_tokens = 1, prompt_logprobs = true}
  lu.assertEquals(#again.prompt_logprobs, #prompt - 1)
  for place, of in ipairs(first.logprobs) do lu.assertEquals(again.prompt_logprobs[19 + place], of.logprob) end
  lu.assertEquals(answer{prompt = {5}, max_tokens = 1, prompt_logprobs = true}.prompt_logprobs, {})
end

-- A model of bytes: its tokens are characters.
local function byte_engine(more)
  local model = nn.gpt{layers = 1, hidden = 32, heads = 2, vocab = 256, seq = 128, seed = 2}
  local options = {trainer = zt.trainer(zt.program(model), {}), tokenizer = data.tokenizer.bytes()}
  for key, value in pairs(more or {}) do options[key] = value end
  return infer.engine(options)
end
local LETTERS = {}
for byte = 97, 101 do LETTERS[byte] = 1000 end -- a to e

function TestRequests:test_texts_end_before_a_stop_and_arrive_in_pieces()
  local bytes = byte_engine()
  local whole = bytes:generate{prompt = "hello", max_tokens = 30, logit_bias = LETTERS}[1]
  lu.assertEquals(#whole.text, 30)
  local stop = whole.text:sub(9, 11)
  local before = whole.text:find(stop, 1, true) - 1
  local pieces = {}
  local stopped = bytes:generate({prompt = "hello", max_tokens = 30, logit_bias = LETTERS, stop = {"zz", stop}}, {
    on_text = function(piece)
      lu.assertEquals({piece.request, piece.copy}, {1, 0})
      pieces[#pieces + 1] = piece.text
    end,
  })[1]
  lu.assertEquals({stopped.text, stopped.stop, stopped.finish_reason}, {whole.text:sub(1, before), stop, "stop"})
  lu.assertEquals(table.concat(pieces), stopped.text)
  lu.assertTrue(#pieces > 1 or before < 2)
end

function TestRequests:test_texts_are_characters()
  local text = byte_engine():generate{prompt = "x", max_tokens = 60, seed = 3}[1].text
  lu.assertTrue(zt.json.encode({text}) ~= nil) -- it is UTF-8
end

function TestRequests:test_abort_ends_a_request()
  local fresh = infer.engine{trainer = trainer}
  local number = fresh:submit{prompt = cases.prompt(5, 1), max_tokens = 50}
  fresh:step()
  lu.assertTrue(fresh:abort(number))
  local answers = fresh:step().answers
  lu.assertEquals({#answers, answers[1].finish_reason, #answers[1].tokens}, {1, "abort", 1})
  lu.assertNil(fresh:step())
  lu.assertFalse(fresh:abort(number))
  lu.assertEquals(fresh:stats().free_blocks + fresh:stats().prefix_blocks, fresh:stats().blocks)
end

-- A head in Lua need not know which tokens' logits are wanted.
function TestRequests:test_a_head_may_give_the_logits_of_all_tokens()
  local w = zt.randn({16, 64}, {seed = 3})
  local head = nn.layer{
    forward = function(own, h) return h:matmul(own.w) end, params = {w = w}, tokens = "separate",
    io = {outputs = {"logits"}},
  }
  local function engine_with(last)
    local layers = {nn.embedding{vocab = 64, hidden = 16}, nn.block{hidden = 16, heads = 2, rotary = true}, {"head", last},
                    seed = 1}
    return infer.engine{trainer = zt.trainer(zt.program(nn.sequential(layers)), {}), max_context = 64, token_budget = 64}
  end
  local own = engine_with(head)
  local list = {{prompt = {1, 2, 3}, max_tokens = 9, logprobs = 0}, {prompt = {4}, max_tokens = 5, logprobs = 0}}
  local answers = own:generate(list)
  lu.assertEquals({#answers[1].tokens, #answers[2].tokens}, {9, 5})
  lu.assertEquals(cases.text(own:generate(list[1])[1]), cases.text(answers[1]))
end

-- A step that fails in a layer changes no answer, and loses none that is done.
function TestRequests:test_a_step_that_fails_can_be_repeated()
  local fails = false
  local fuse = nn.layer{
    forward = function(_, h)
      if fails then error "the fuse" end
      return h
    end,
    tokens = "separate",
  }
  local base = {nn.embedding{vocab = 64, hidden = 16}, {"fuse", fuse}, nn.block{hidden = 16, heads = 2, rotary = true},
                nn.lm_loss{vocab = 64, hidden = 16}, seed = 1}
  local fresh = infer.engine{trainer = zt.trainer(zt.program(nn.sequential(base)), {}), max_context = 64}
  local request = {prompt = {1, 2, 3}, max_tokens = 6}
  local expected = fresh:generate(request)[1].tokens
  local kept, aborted = fresh:submit(request), fresh:submit(request)
  fresh:step()
  fresh:abort(aborted)
  fails = true
  lu.assertErrorMsgContains("the fuse", fresh.step, fresh)
  lu.assertErrorMsgContains("the fuse", fresh.step, fresh)
  fails = false
  local reasons = {}
  for step in function() return fresh:step() end do
    for _, done in ipairs(step.answers) do
      reasons[done.request] = done.finish_reason
      if done.request == kept then lu.assertEquals(done.tokens, expected) end
    end
  end
  lu.assertEquals(reasons, {[kept] = "length", [aborted] = "abort"})
  fails = true -- if `generate` fails, later steps do not return its answers
  lu.assertErrorMsgContains("the fuse", fresh.generate, fresh, request)
  fails = false
  for step in function() return fresh:step() end do lu.assertEquals(step, {answers = {}, texts = {}}) end
end

function TestRequests:test_an_error_in_on_text_ends_the_requests()
  local bytes = byte_engine()
  lu.assertErrorMsgContains("enough", bytes.generate, bytes, {prompt = "hello", max_tokens = 30, logit_bias = LETTERS},
                            {on_text = function() error "enough" end})
  lu.assertEquals(#bytes:generate{prompt = "hello", max_tokens = 3}, 1)
  lu.assertEquals(bytes:stats().running + bytes:stats().waiting, 0)
end

-- A request whose logits are not finite ends with an error, and the others go on.
function TestRequests:test_logits_that_are_not_finite_end_their_request_only()
  local bad = nn.layer{
    forward = function(_, h, ctx) return h:masked_fill(ctx:batch("tokens"):eq(13):unsqueeze(-1), math.huge) end,
    tokens = "separate",
  }
  local base = {nn.embedding{vocab = 64, hidden = 16}, {"bad", bad}, nn.lm_loss{vocab = 64, hidden = 16}, seed = 1}
  local fresh = infer.engine{trainer = zt.trainer(zt.program(nn.sequential(base)), {}), max_context = 64}
  local good = {prompt = {1, 2}, max_tokens = 4, logit_bias = {[13] = -1000}}
  local answers = fresh:generate{good, {prompt = {1, 13}, max_tokens = 4}}
  lu.assertEquals({answers[1].finish_reason, #answers[1].tokens}, {"length", 4})
  lu.assertEquals(answers[2].finish_reason, "error")
  lu.assertStrContains(answers[2].error, "requests[2]: the logits for token 0 of the answer are not finite")
end

-- If min_tokens, biases or penalties leave no token, the request ends with an error, and the others go on.
function TestRequests:test_no_token_can_be_drawn()
  local all = {}
  for token = 0, cases.VOCAB - 1 do all[token + 1] = token end
  local huge = -1e308
  for _, temperature in ipairs{0, 1} do
    local answers = engine:generate{
      {prompt = {1, 2}, max_tokens = 4, stop_tokens = all, min_tokens = 2, temperature = temperature},
      {prompt = {1, 2}, max_tokens = 4, presence_penalty = huge, frequency_penalty = huge, temperature = temperature, top_k = 3},
      {prompt = {1, 2}, max_tokens = 4, temperature = temperature, ignore_eos = true},
    }
    lu.assertStrContains(answers[1].error, "requests[1]: no token can be drawn for token 0 of the answer")
    lu.assertStrContains(answers[2].error, "requests[2]: no token can be drawn for token 1 of the answer")
    lu.assertEquals(#answers[3].tokens, 4)
  end
end

-- An engine that reads a trainer's parameters in place never replaces them.
function TestRequests:test_update_does_not_overwrite_a_trainer()
  local program = zt.program(nn.gpt(cases.options "llama"))
  local mine, other = zt.trainer(program, {optimizer = require("zt.optim").sgd{lr = 1}}), cases.trainer "llama"
  local name = mine.model:parameters()[1].name
  other:set_parameter(name, other:parameter(name):mul(2))
  local before = mine:parameter(name)
  local in_place = infer.engine{trainer = mine}
  lu.assertErrorMsgContains("reads the parameters of a trainer that trains", in_place.update, in_place, other)
  lu.assertTrue(zt.op "equal"(mine:parameter(name), before))
  in_place:update(mine)
end

function TestRequests:test_requests_that_no_model_could_answer_are_refused()
  local function refused(message, request)
    request.prompt = request.prompt or {1}
    lu.assertErrorMsgContains(message, engine.generate, engine, request)
  end
  refused("prompt is empty", {prompt = {}})
  refused("prompt must be a list of tokens or an int64 tensor [n] or [1, n], got a boolean", {prompt = true})
  refused("prompt[2] is -1, which is no token", {prompt = {1, -1}})
  refused("prompt: layer 'embedding': token 131 at sample 0, index 1 is outside the embedding's 131 rows", {prompt = {1, 131}})
  refused("20 tokens of prompt and max_tokens = 173 exceed max_context = 192: shorten the prompt or lower max_tokens",
          {prompt = cases.prompt(20, 1), max_tokens = 173})
  refused("temperature must be finite and at least 0, got nan", {temperature = 0 / 0})
  refused("temperature must be finite and at least 0, got inf", {temperature = math.huge})
  refused("top_p must be above 0 and at most 1, got 0", {top_p = 0})
  refused("top_k must be at least 0", {top_k = -1})
  refused("min_p must lie between 0 and 1", {min_p = 2})
  refused("repetition_penalty must be finite and above 0", {repetition_penalty = 0})
  refused("min_tokens = 5 is above max_tokens = 4", {min_tokens = 5, max_tokens = 4})
  refused("stop has an empty text", {stop = {""}})
  refused("stop has texts, and the engine has no tokenizer", {stop = {"x"}})
  refused("ignore_eos has an effect only without stop_tokens", {ignore_eos = true, stop_tokens = {1}})
  refused("logit_bias: 'x' is no token", {logit_bias = {x = 1}})
  refused("unknown option 'topk': did you mean 'top_k'?", {topk = 3})
  refused("prompt is a text: give infer.engine a tokenizer", {prompt = "text"})
  refused("logit_bias has token 500, and the vocabulary has 131 tokens", {logit_bias = {[500] = 1}})
end

function TestRequests:test_engines_that_could_not_work_are_refused()
  local function refused(message, options)
    options.trainer = options.trainer or trainer
    lu.assertErrorMsgContains(message, infer.engine, options)
  end
  refused("token_budget = 8 is below max_sequences = 64", {token_budget = 8})
  refused("needs a cache of", {cache = {memory = 1000}})
  refused("the cache of", {cache = {memory = 1e15}, max_sequences = 4096, token_budget = 4096, max_context = 2 ^ 24})
  refused("cache.dtype must be one of 'params', 'int8'", {cache = {dtype = "int4"}})
  refused("unknown option 'blocks'", {cache = {blocks = 16}})
  refused("the tokenizer has 256 ids and the model's vocabulary 131: they do not belong together",
          {tokenizer = data.tokenizer.bytes()})
  local own = nn.layer{forward = function(_, h) return h:cumsum(1) end, kind = "gate"}
  local layers = {nn.embedding{vocab = 64, hidden = 16}, {"gate", own}, nn.lm_loss{vocab = 64, hidden = 16}, seed = 1}
  local model = nn.sequential(layers)
  refused("layer 'gate' (gate) may read several tokens at once", {trainer = zt.trainer(zt.program(model), {}), max_context = 8})
  local learned = nn.gpt{layers = 1, hidden = 16, heads = 2, vocab = 64, seq = 32}
  refused("max_context = 33: layer 'embedding': position 32 at sample 0, index 32 is outside the embedding's 32 rows",
          {trainer = zt.trainer(zt.program(learned), {}), max_context = 33})
  local all = nn.gpt{layers = 1, hidden = 16, heads = 2, vocab = 64, seq = 32, causal = false}
  refused("may read several tokens at once", {trainer = zt.trainer(zt.program(all), {})})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestRequests", TestRequests}})
