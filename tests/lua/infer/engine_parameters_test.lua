-- Tests engines whose parameters change, and requests beside others that are under way.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, infer, nn, optim = require "zt.ckpt", require "zt.infer", require "zt.nn", require "zt.optim"
local cases = require "infer.engine_cases"
local temporary = require "support.temporary"

local TestParameters = {}

local long = {prompt = cases.prompt(64, 3), max_tokens = 4, temperature = 0, logprobs = 0}

local function answer_of(trainer) return cases.text(infer.engine{trainer = trainer}:generate(long)[1]) end

-- However parameters change, an engine answers as a new one does, without what was kept of the old ones.
function TestParameters:test_changes()
  local folder = temporary()
  local trainer = cases.trainer "llama"
  local other = zt.trainer(trainer.program, {separate = true})
  for _, parameter in ipairs(trainer.model:parameters()) do
    other:set_parameter(parameter.name, trainer:parameter(parameter.name) * 1.25)
  end
  ckpt.save(folder, {model = other}, {async = false})
  local ways = {
    function() trainer:set_parameter("blocks.1.attention.qkv.weight", other:parameter "blocks.1.attention.qkv.weight") end,
    function() ckpt.load(folder, {model = trainer}) end,
  }
  local engine = infer.engine{trainer = trainer}
  engine:generate(long)
  lu.assertTrue(engine:generate(long)[1].cached_tokens > 0)
  for place, change in ipairs(ways) do
    local before = answer_of(trainer)
    change()
    local answer = engine:generate(long)[1]
    lu.assertEquals(answer.cached_tokens, 0, place)
    lu.assertEquals(cases.text(answer), answer_of(trainer), place)
    lu.assertNotEquals(cases.text(answer), before, place)
  end
end

-- Returns an engine with an answer that has begun, and one whose prompt is long, after a few steps.
local function begun(trainer)
  local engine = infer.engine{trainer = trainer, token_budget = 8, max_sequences = 4}
  local first = engine:submit{prompt = {1, 2}, max_tokens = 40, temperature = 0}
  engine:step()
  engine:step()
  local second = engine:submit{prompt = cases.prompt(40, 5), max_tokens = 3, temperature = 0, prompt_logprobs = true,
                               logprobs = 0}
  engine:step()
  return engine, first, second
end

-- Returns all answers that are still to come, by request.
local function rest(engine)
  local answers = {}
  for step in function() return engine:step() end do
    for _, answer in ipairs(step.answers) do answers[answer.request] = answer end
  end
  return answers
end

-- No answer mixes two models: those that have begun end with an error, the others begin with the new parameters.
function TestParameters:test_changes_while_answers_are_made()
  local program = zt.program(nn.gpt(cases.options "gpt2"), {precision = "fp32"})
  local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.5}})
  local batch = {tokens = cases.tensor{cases.prompt(30, 1)}, labels = cases.tensor{cases.prompt(30, 2)}}
  local engine, first, second = begun(trainer)
  trainer:step(batch)
  local answers = rest(engine)
  lu.assertEquals(answers[first].finish_reason, "error")
  lu.assertStrContains(answers[first].error, "the parameters have changed while the answer was made: take the answers")
  local expected = infer.engine{trainer = trainer}:generate{prompt = cases.prompt(40, 5), max_tokens = 3, temperature = 0,
                                                            prompt_logprobs = true, logprobs = 0}[1]
  lu.assertEquals(answers[second].finish_reason, "length")
  lu.assertEquals(cases.text(answers[second]), cases.text(expected))
  local own = infer.engine{trainer = trainer, dtype = "fp32"}
  first = own:submit{prompt = {1, 2}, max_tokens = 40}
  own:step()
  own:update(trainer)
  lu.assertEquals(rest(own)[first].finish_reason, "error")
  lu.assertErrorMsgContains("the first argument", own.update, own)
end

-- Parameters of another model are refused, and an update that fails on its way leaves an engine that answers nothing.
function TestParameters:test_updates_that_fail()
  local options = cases.with(cases.options "llama", {hidden = 64, head_dim = 16, ffn = 128})
  local function trainer_of(more)
    return zt.trainer(zt.program(nn.gpt(cases.with(options, more or {})), {precision = "fp32"}), {separate = true})
  end
  local own = infer.engine{trainer = trainer_of(), weights = {format = "int8", group = 32}}
  local before = cases.texts(own:generate(long))
  for place, more in ipairs{{ffn = 256}, {layers = 2}, {layers = 4}, {heads = 2, head_dim = 32, kv_heads = 1}, {window = 8},
                            {rope_base = 500}, {bias = true}} do
    lu.assertErrorMsgContains("engine:update: ", own.update, own, trainer_of(more))
    lu.assertEquals(cases.texts(own:generate(long)), before, place)
  end
  local nan = trainer_of()
  local values = nan:parameter "blocks.1.mlp.down.weight"
  values[3][2] = 0 / 0
  nan:set_parameter("blocks.1.mlp.down.weight", values)
  lu.assertErrorMsgContains("blocks.1.mlp.down.weight", own.update, own, nan)
  lu.assertErrorMsgContains("engine:update has failed, so the parameters are partly those of another", own.generate, own, long)
  own:update(trainer_of{seed = 5})
  lu.assertEquals(cases.texts(own:generate(long)), before)
end

-- Models of layers that a script puts together have no table of options: their layers' options are compared.
function TestParameters:test_updates_of_sequential_models()
  local function trainer_of(window, activation, declared, more)
    local layers = {
      nn.embedding{vocab = 64, hidden = 32},
      nn.attention{hidden = 32, heads = 2, window = window, dropout = more and 0.5 or 0},
      nn.mlp{hidden = 32, ffn = 64, activation = activation},
      nn.layer{tokens = "separate", options = {times = declared}, forward = function(_, h) return h * declared end},
      more == "longer" and nn.dropout{p = 0.5} or nil,
    }
    layers[#layers + 1] = {"head", nn.lm_loss{vocab = 64, hidden = 32}}
    return zt.trainer(zt.program(nn.sequential(layers)), {separate = true})
  end
  local own = infer.engine{trainer = trainer_of(0, "gelu", 1), max_context = 32}
  local request = {prompt = {1, 7, 9, 4, 2, 8, 8, 1, 5}, max_tokens = 6, temperature = 0}
  local before = own:generate(request)[1].tokens
  for part, trainer in pairs{["'1' has window"] = trainer_of(2, "gelu", 1), ["'2' has activation"] = trainer_of(0, "relu", 1),
                             ["'3' has options.times"] = trainer_of(0, "gelu", 2),
                             ["number of layers"] = trainer_of(0, "gelu", 1, "longer")} do
    lu.assertErrorMsgContains(part, own.update, own, trainer)
    lu.assertEquals(own:generate(request)[1].tokens, before)
  end
  own:update(trainer_of(0, "gelu", 1, "dropout"))
end

-- Requests that were submitted go on beside those of `generate`; steps return what is complete of them.
function TestParameters:test_generate_beside_submitted_requests()
  local model = nn.gpt(cases.with(cases.options "llama", {vocab = 256}))
  local trainer = zt.trainer(zt.program(model, {precision = "fp32"}), {separate = true})
  local requests = cases.requests(4)
  local expected = cases.texts(infer.engine{trainer = trainer}:generate(requests))
  local engine = infer.engine{trainer = trainer, tokenizer = require("zt.data").tokenizer.bytes()}
  local numbers = {engine:submit(requests[1]), engine:submit(requests[2])}
  engine:step()
  local pieces = {}
  local own = engine:generate({requests[3], requests[4]}, {on_text = function(piece) pieces[piece.request] = true end})
  lu.assertEquals(#own, 2)
  for place, answer in ipairs(own) do
    answer.text = ""
    lu.assertEquals(answer.request, place)
    lu.assertEquals(cases.text(answer), expected[(place + 2) .. ".0"])
  end
  local later = {}
  for step in function() return engine:step() end do
    for _, piece in ipairs(step.texts) do lu.assertTrue(piece.request == numbers[1] or piece.request == numbers[2]) end
    for _, answer in ipairs(step.answers) do later[answer.request] = answer end
  end
  for place, number in ipairs(numbers) do
    local answer = later[number]
    answer.text = ""
    lu.assertEquals(cases.text(answer), expected[place .. ".0"])
  end
  for request in pairs(pieces) do lu.assertTrue(request <= 2) end
  lu.assertNil(engine:step())
end

-- on_text may not call what would take answers away from `generate`: it fails, and the engine can be used again.
function TestParameters:test_calls_within_on_text()
  local model = nn.gpt(cases.with(cases.options "llama", {vocab = 256}))
  local engine = infer.engine{trainer = zt.trainer(zt.program(model), {separate = true}),
                              tokenizer = require("zt.data").tokenizer.bytes()}
  local request = {prompt = "hello", max_tokens = 20}
  for _, call in ipairs{"release", "step", "generate"} do
    local function on_text() engine[call](engine, request) end
    lu.assertErrorMsgContains("engine:" .. call .. " was called inside on_text", engine.generate, engine, request,
                              {on_text = on_text})
    lu.assertEquals(#engine:generate(request), 1)
  end
  local number
  engine:generate(request, {on_text = function() number = number or engine:submit(request) end})
  lu.assertEquals(rest(engine)[number].finish_reason, "length")
  engine:release()
  lu.assertErrorMsgContains("this engine was released", engine.step, engine)
  lu.assertErrorMsgContains("write engine:step(...) with ':'", engine.step)
end

-- A head that is the weight of the embedding takes no other one; a head of its own takes either.
function TestParameters:test_updates_of_tied_models()
  local function trainer_of(tied, seed)
    local model = nn.gpt(cases.with(cases.options "llama", {tied = tied, seed = seed}))
    return zt.trainer(zt.program(model), {separate = true})
  end
  local own = infer.engine{trainer = trainer_of(true, 1), dtype = "fp32"}
  local before = cases.texts(own:generate(long))
  lu.assertErrorMsgContains("engine:update: the trainer's head has a matrix of its own", own.update, own, trainer_of(false, 2))
  lu.assertEquals(cases.texts(own:generate(long)), before)
  local untied = infer.engine{trainer = trainer_of(false, 1), dtype = "fp32"}
  for _, tied in ipairs{true, false} do
    local trainer = trainer_of(tied, 3)
    untied:update(trainer)
    lu.assertEquals(cases.text(untied:generate(long)[1]), answer_of(trainer))
  end
end

function TestParameters:test_log_probabilities_are_lists()
  local engine = infer.engine{trainer = cases.trainer "llama"}
  local answer = engine:generate{prompt = {1}, max_tokens = 1, prompt_logprobs = true, n = 2}
  lu.assertEquals(answer[1].prompt_logprobs, {})
  lu.assertNil(answer[2].prompt_logprobs)
  lu.assertNil(answer[1].logprobs)
  lu.assertErrorMsgContains("logit_bias has token 131, and the vocabulary has 131 tokens", engine.submit, engine,
                            {prompt = {1}, logit_bias = {[cases.VOCAB] = 1}})
  lu.assertErrorMsgContains("'messages', 'variables', 'specials'", engine.submit, engine, {beams = 3, prompt = {2}})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestParameters", TestParameters}})
