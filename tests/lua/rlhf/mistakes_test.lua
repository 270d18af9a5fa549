-- Tests what zt.rlhf refuses. What one rank finds wrong, and options that differ between ranks, are an error on all ranks. Also
-- runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, infer, rlhf = require "zt.comm", require "zt.infer", require "zt.rlhf"
local log = require "zt.log"
local by_hand = require "rlhf.by_hand"
local small_loop = require "rlhf.small_loop"
local small_run = require "support.small_run"
local temporary = require "support.temporary"

local rank, last = zt.world.rank, zt.world.size - 1
local mesh = comm.mesh{dp = -1}
local actor = small_loop.trainer({mesh = mesh, stage = 1, precision = "fp32"}, nil, rlhf.loss.grpo{kl = {}})
local engine = infer.engine{trainer = actor, cache = {memory = 2 ^ 22}, stop_tokens = {small_loop.STOP}}

local function merged(base, more)
  local all = {}
  for _, from in ipairs{base, more or {}} do
    for key, value in pairs(from) do all[key] = value end
  end
  return all
end

local function rollout(more)
  return rlhf.rollout(merged({engine = engine, prompts = small_loop.prompts(3, mesh.dp), n = 2, max_tokens = 5}, more))
end

local function count(_, _, _, tokens) return tokens:numel() end

local function refused(text, fn, ...) lu.assertErrorMsgContains(text, fn, ...) end

local TestMistakes = {}

function TestMistakes.test_rollouts()
  for _, name in ipairs{"top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"} do
    refused("rlhf.rollout." .. name .. ": with it an answer is no sample of the policy", rollout, {[name] = 1})
  end
  refused("temperature must be finite", rollout, {temperature = math.huge})
  refused("temperature must be above 0", rollout, {temperature = 0})
  refused("must be an engine of infer.engine, got a table", rollout, {engine = {}, mesh = mesh})
  refused("no rank has a prompt", rollout, {prompts = {prompts = {}, sample = zt.zeros({0}, {dtype = "int64"})}})
  refused("got an empty list", rollout, {prompts = {prompts = {}}})
  refused("got no prompts in it", rollout, {prompts = {}})
  refused("prompts[2] has no token", rollout, {prompts = {prompts = {{1}, {}}}})
  refused("prompts[1] must be tokens, a tensor or a list, got an integer", rollout, {prompts = {prompts = {5}}})
  for _, case in ipairs{{{1, true}, "[1][2] must be a token, an integer from 0 on, got a boolean"},
                        {{0 / 0}, "[1][1] must be a token"}, {{1, nil, 2}, "[1][2] must be a token"},
                        {{-1}, "got -1"}, {{a = 1}, "got the key 'a'"}} do
    refused(case[2], rollout, {prompts = {prompts = {case[1]}}})
  end
  local one = zt.tensor({5}, {dtype = "int64"})
  refused("an int64 vector with the number of each of the 2 prompts, got 1 of int64", rollout,
          {prompts = {prompts = {{1}, {2}}, sample = one}})
  refused("two different prompts have the sample number 5", rollout,
          {prompts = {prompts = {{1}, {2}}, sample = zt.cat{one, one}}})
end

-- What the last rank alone has wrong.
function TestMistakes.test_one_rank()
  local function here(wrong, right)
    if rank == last then return wrong end
    return right
  end
  refused("unknown option 'seeds'", rollout, {[here("seeds", "seed")] = 1})
  local own = zt.tensor({rank}, {dtype = "int64"})
  refused("prompts[1] has no token", rollout, {prompts = {prompts = {here({}, {1})}, sample = own}})
  refused("exceed max_context = 24", rollout, {prompts = {prompts = {zt.zeros({here(22, 3)}, {dtype = "int64"})}, sample = own}})
  local answers = rollout()
  for _, bad in ipairs{{"x", "a string"}, {{}, "a table"}, {true, "a boolean"}, {0 / 0, "nan"}, {math.huge, "inf"},
                       {-math.huge, "-inf"}} do
    refused("the reward function returned " .. bad[2], rlhf.score, answers, {reward = function() return here(bad[1], 1) end})
  end
  local is_done, message = pcall(rlhf.score, answers, {reward = function(...) return here(nil, count)(...) end})
  lu.assertFalse(is_done)
  lu.assertStrContains(message, "rlhf.score: the reward function failed: ")
  lu.assertStrContains(message, "the engine has no tokenizer, so prompt and answer are nil")
  refused("the engine has no tokenizer, so the reward function gets no texts", rlhf.score, answers,
    {reward = function(_, answer) return answer == "x" and 1 or 0 end})
  lu.assertStrContains(message, "prompt: " .. zt.json.encode(answers:prompt(last + 1):tolist()))
  lu.assertStrContains(message, "answer: " .. zt.json.encode(answers:answer(last + 1):tolist()))
  local all = mesh:world():gather_values(message)
  for _, each in ipairs(all) do lu.assertEquals(each, all[1]) end
  refused("the reward function failed: ", rlhf.score, answers, {reward = function() error(tostring(rank), 0) end})
  rlhf.score(answers, {actor = actor, reward = count})
  local text = {tokens = zt.ones({1, 9}, {dtype = "int64"}), labels = zt.ones({1, 9}, {dtype = "int64"})}
  local next_batch = rlhf.batches(answers, {trainer = actor, seq = 9, ptx = function() return here({}, text) end})
  refused("ptx must return a batch", next_batch)
end

-- Numbers of a model that has diverged.
function TestMistakes.test_numbers_that_are_not_finite()
  local critic, answers = small_loop.trainer({mesh = mesh, precision = "fp32"}, {head = "value"}), rollout()
  critic:set_parameter("head.value.weight", zt.zeros{1, 16} / 0)
  refused(("the output 'values' of the critic gives %d numbers that are not finite"):format(answers.token_count), rlhf.score,
          answers, {critic = critic})
  refused("the reward model gives 6 numbers that are not finite", rlhf.score, answers, {reward = critic})
end

-- The reference "base" is the actor without its adapters.
function TestMistakes.test_adapters()
  local lora = {lora = {rank = 2, targets = {"q", "v"}}}
  local how = {mesh = mesh, precision = "fp32"}
  local adapted = small_loop.trainer(how, lora, rlhf.loss.grpo{})
  for _, name in ipairs(adapted:parameters()) do
    if name:find "lora" then adapted:set_parameter(name, zt.ones(adapted:parameter(name):size()) * 0.1) end
  end
  local plain, answers = small_loop.trainer(how), rollout()
  rlhf.score(answers, {actor = adapted, reference = "base"})
  local base, own = answers.of_tokens.ref_logprobs, answers.of_tokens.old_logprobs
  rlhf.score(answers, {actor = adapted, reference = plain})
  lu.assertTrue(base:equal(answers.of_tokens.ref_logprobs))
  lu.assertTrue(own:equal(answers.of_tokens.old_logprobs))
  lu.assertTrue((own - base):abs():max():item() > 1e-3)
  refused("reference = \"base\" is the actor without its adapters: give actor", rlhf.score, answers, {reference = "base"})
  refused("must be a Trainer or \"base\", got a string", rlhf.score, answers, {actor = adapted, reference = "bass"})
  refused("the policy without its adapters, and that has none", rlhf.score, answers, {actor = actor, reference = "base"})
end

-- Models that lack the output that is needed, and a KL divergence that would count twice.
function TestMistakes.test_parts_that_do_not_fit()
  local answers = rollout()
  local critic = small_loop.trainer({mesh = mesh, precision = "fp32"}, {head = "value"})
  refused("rlhf.score: the critic outputs no 'values': make it with nn.gpt{head = \"value\"}", rlhf.score, answers,
    {critic = actor})
  refused("rlhf.score: the reference outputs no 'logprobs'", rlhf.score, answers, {actor = actor, reference = critic})
  rlhf.score(answers, {actor = actor, reference = small_loop.trainer({mesh = mesh, precision = "fp32"}), reward = count})
  refused("rlhf.advantages.kl must be a table, got a number (takes the KL divergence from the reference out of the rewards: "
    .. "{coefficient = 0.1, estimator = \"k1\"})", rlhf.advantages, answers, {kind = "group", kl = 0.1})
  refused("rlhf.advantages.scale must be one of 'group', 'batch', 'none', got a boolean", rlhf.advantages, answers,
    {kind = "group", scale = true})
  rlhf.advantages(answers, {kind = "group", kl = {}})
  refused("the loss 'policy' has it, too, so it would count twice", rlhf.batches, answers, {trainer = actor})
  rlhf.advantages(answers, {kind = "group"})
  lu.assertNotNil(rlhf.batches(answers, {trainer = actor})())
end

-- The policy with its adapters is no reference of its own.
function TestMistakes.test_reference_with_adapters()
  local how = {mesh = mesh, precision = "fp32"}
  local adapted = small_loop.trainer(how, {lora = {rank = 2, targets = {"q"}}}, rlhf.loss.dpo{})
  local frozen = small_loop.trainer(how, {lora = {rank = 2, targets = {"q"}}})
  local row = zt.zeros({1, 4}, {dtype = "int64"})
  local batch = {tokens = row, labels = row, segments = row, sequence = row, positions = row}
  refused("the loss 'policy' that trains them, so it is the policy itself", rlhf.reference, batch, {reference = adapted})
  for _, right in ipairs{{reference = adapted, adapters = false}, {reference = adapted, adapters = true}, {reference = frozen}} do
    lu.assertNotNil(rlhf.reference(batch, right).ref_logprobs)
  end
  refused("that has none: give nn.gpt the option lora", rlhf.reference, batch, {reference = actor, adapters = false})
end

-- Vocabularies with the tokenizer of the policy may be padded to other numbers of tokens.
function TestMistakes.test_padded_vocabularies()
  local answers = rollout()
  local wide = small_loop.trainer({mesh = mesh, precision = "fp32"}, {vocab = 13})
  refused("the vocabulary of the actor has 13 tokens, and that of the policy 11", rlhf.score, answers, {actor = wide})
  answers.tokenizer = {vocab = 7, decode = function(_, tokens) return table.concat(tokens:tolist(), " ") end}
  rlhf.score(answers, {actor = wide})
  local drawn, known = answers:answer(1):tolist(), {}
  if not answers.truncated[1] then drawn[#drawn] = nil end
  for _, token in ipairs(drawn) do known[#known + 1] = token < 7 and token or nil end
  local _, text = answers:texts(1)
  lu.assertEquals(text, table.concat(known, " "))
  answers.answers:fill_(9)
  local narrow = small_loop.trainer({mesh = mesh, precision = "fp32"}, {vocab = 8})
  refused("the policy has drawn the token 9", rlhf.score, answers, {actor = narrow})
end

-- Nothing can end an answer, and no answer is better than others to its prompt: warnings, once each.
function TestMistakes.test_warnings()
  local said, warn = {}, log.warn
  log.warn = function(message, ...) said[#said + 1] = message:format(...) end
  local endless = infer.engine{trainer = actor, cache = {memory = 2 ^ 22}}
  local answers
  for _ = 1, 2 do
    answers = rollout{engine = endless}
    rlhf.score(answers, {reward = function() return 1 end})
    rlhf.advantages(answers, {kind = "group"})
  end
  rollout{engine = endless, stop_tokens = {1}}
  log.warn = warn
  lu.assertEquals(answers.metrics.truncated, 1)
  if rank > 0 then return lu.assertEquals(said, {}) end
  lu.assertEquals(#said, 2)
  lu.assertStrContains(said[1], "the engine has no stop tokens, so every answer has max_tokens = 5 tokens")
  lu.assertStrContains(said[2], "have equal rewards, so all advantages are 0")
end

function TestMistakes.test_numbers_of_sequences()
  local answers = rollout()
  refused("the reference is the actor", rlhf.score, answers, {actor = actor, reference = actor})
  lu.assertErrorMsgContains("there is no sequence 0", answers.answer, answers, 0)
  lu.assertErrorMsgContains("are numbered from 1 to " .. answers.count, answers.prompt, answers, answers.count + 1)
end

function TestMistakes.test_ranks_with_other_options()
  if last == 0 then return end
  local text = "ranks 0 and 1 give different options"
  local function by_rank(zero, other) return rank == 0 and zero or other end
  for _, case in ipairs{{"n", 3}, {"max_tokens", 4}, {"min_tokens", 1}, {"temperature", 0.9}, {"seed", 7}, {"iteration", 1},
                        {"stop_tokens", {2}}} do
    refused(text, rollout, {[case[1]] = by_rank(case[2], nil)})
  end
  local answers = rollout()
  refused(text, rlhf.score, answers, {reward = by_rank(count, nil)})
  refused(text, rlhf.score, answers, {actor = by_rank(actor, nil), reward = count})
  local frozen = zt.trainer(zt.program(actor.model), {separate = true})
  refused(text, rlhf.score, answers, {actor = actor, reference = by_rank(frozen, "base")})
  refused(text, rlhf.score, answers, {actor = actor, is = by_rank({cap = 3}, {cap = 2})})
  rlhf.score(answers, {actor = actor, reference = frozen, reward = count})
  refused(text, rlhf.reject, answers, {keep = by_rank(1, 2)})
  refused(text, rlhf.advantages, answers, {kind = by_rank("group", "rloo")})
  refused(text, rlhf.advantages, answers, {kind = "group", kl = {coefficient = by_rank(0.1, 0.1 + 1e-16)}})
  rlhf.advantages(answers, {kind = "group"})
  refused(text, rlhf.batches, answers, {trainer = actor, seed = rank})
  refused("rank 1: ", rlhf.batches, answers, {trainer = actor, updates = by_rank(1, 0)})
  for batch in rlhf.batches(answers, {trainer = actor}) do lu.assertTrue(actor:step(batch).loss < math.huge) end
end

function TestMistakes.test_what_does_not_fit_the_answers()
  local how = {mesh = mesh, precision = "fp32"}
  local other = small_loop.trainer(how, {vocab = 12}, rlhf.loss.grpo{})
  local hot = small_loop.trainer(how, {temperature = 0.7}, rlhf.loss.grpo{})
  local judge = small_loop.trainer(how, {vocab = 12, head = "value"})
  local answers = rollout()
  for _, case in ipairs{{"actor", {actor = other}}, {"reference", {actor = actor, reference = other}},
                        {"critic", {critic = judge}}, {"reward model", {reward = judge}}} do
    refused(("the vocabulary of the %s has 12 tokens, and that of the policy 11"):format(case[1]), rlhf.score, answers, case[2])
  end
  for _, case in ipairs{{"actor", {actor = hot}}, {"reference", {actor = actor, reference = hot}}} do
    local text = ("drawn at temperature 1, and the %s has lm_logprobs.temperature = 0.7"):format(case[1])
    refused(text, rlhf.score, answers, case[2])
    refused(text, rlhf.score, answers, merged(case[2], {old = "sampler"}))
  end
  rlhf.score(answers, {actor = actor, reward = count})
  rlhf.advantages(answers, {kind = "rloo"})
  refused("the vocabulary of the trainer's model has 12 tokens", rlhf.batches, answers, {trainer = other})
  refused("the trainer's model has lm_logprobs.temperature = 0.7", rlhf.batches, answers, {trainer = hot})
  refused("do not fit in a row of seq = 3", rlhf.batches(answers, {trainer = actor, seq = 3}))
  refused("cannot be divided into 9 updates", rlhf.batches, answers, {trainer = actor, updates = 9})
  refused("the critic outputs no 'values'", rlhf.score, answers, {critic = actor})
  refused("the actor outputs no 'logprobs'", rlhf.score, answers, {actor = small_loop.trainer(how, {head = "value"})})
end

function TestMistakes.test_missing_numbers()
  local answers = rollout()
  refused("rlhf.advantages needs rewards, which rlhf.score{reward = ...} gives", rlhf.advantages, answers, {kind = "group"})
  refused("rlhf.reject needs rewards", rlhf.reject, answers)
  refused("has dropped all 6 answers", rlhf.score, answers, {reward = function() return nil end})
  refused("needs rewards", rlhf.advantages, answers, {kind = "group"})
  local function step() for batch in rlhf.batches(answers, {trainer = actor}) do actor:step(batch) end end
  refused("no field 'old_logprobs': rlhf.score and rlhf.batches make it", step)
  rlhf.score(answers, {actor = actor, reward = count})
  refused("needs ref_logprobs of the tokens, which rlhf.score{reference = ...} gives", rlhf.advantages, answers,
          {kind = "group", kl = {}})
  refused("needs old_values of the tokens, which rlhf.score{critic = ...} gives", rlhf.advantages, answers, {kind = "gae"})
  refused("no field 'advantages': rlhf.advantages and rlhf.batches make it", step)
  rlhf.advantages(answers, {kind = "group"})
  refused("no field 'ref_logprobs': rlhf.reference, or rlhf.score{reference = ...} and rlhf.batches make it", step)
  refused("takes what rlhf.rollout returns", rlhf.batches, {}, {trainer = actor})
  local single = rollout{n = 1}
  rlhf.score(single, {actor = actor, reward = count})
  for _, kind in ipairs{"group", "rloo"} do
    refused("compares answers to one prompt, and there is one of each: give rlhf.rollout n = 2", rlhf.advantages, single,
            {kind = kind})
  end
end

-- By loss: the fields without which it fails, and who makes them.
function TestMistakes.test_fields_of_batches()
  if last > 0 then return end
  local loss, fields = rlhf.loss, zt.tensor({{1, 2, 3, 4}}, {dtype = "int64"})
  local base = {tokens = fields, labels = fields}
  for _, case in ipairs{
    {loss.value{}, "returns", "rlhf.advantages{kind = \"gae\"}", head = "value"},
    {loss.value{}, "old_values", "rlhf.score{critic = ...}", head = "value", has = {"returns"}},
    {loss.ppo{mean = "sequence"}, "lengths", "rlhf.batches makes it", has = {"old_logprobs", "advantages"}},
    {loss.ppo{mean = "constant", max_tokens = 3}, "sequence", "rlhf.batches make it", has = {"old_logprobs", "advantages"}},
    {loss.dpo{}, "sequence", "data.preferences"}, {loss.dpo{}, "ref_logprobs", "rlhf.reference", has = {"sequence"}},
    {loss.dpo{kind = "kto"}, "kl", "give rlhf.reference the policy", has = {"sequence", "ref_logprobs"}},
    {loss.reward{}, "sequence", "data.preferences", head = "value"}, {loss.ptx{}, "sequence", "rlhf.batches"},
    {loss.ptx{}, "is_ptx", "rlhf.batches{ptx = ...}", has = {"sequence"}},
    {loss.distil{}, "teacher_logits", "rlhf.teacher", head = "lm"},
    {loss.distil{top = 2}, "teacher_logprobs", "rlhf.teacher", head = "lm"},
  } do
    local trainer = small_loop.trainer({}, {head = case.head, loss = case.head == "lm" and false or nil}, case[1])
    local batch = merged(base)
    for _, name in ipairs(case.has or {}) do batch[name] = name == "sequence" and fields * 0 or fields:to "float64" end
    local is_done, message = pcall(trainer.step, trainer, batch)
    lu.assertFalse(is_done)
    lu.assertStrContains(message, "field '" .. case[2] .. "'")
    lu.assertStrContains(message, case[3])
  end
end

function TestMistakes.test_options_of_losses()
  local loss = rlhf.loss
  refused("the gradient of k1 in a loss is zero in expectation", loss.grpo, {kl = {estimator = "k1"}})
  for _, name in ipairs{"ppo", "grpo", "value", "distil"} do
    refused("TRL's bnpo divides by the tokens of a micro-batch", loss[name], {mean = "bnpo"})
    refused("give max_tokens", loss[name], {mean = "constant"})
    refused("has an effect only with mean = 'constant'", loss[name], {max_tokens = 5})
  end
  refused("a ratio is never below 0", loss.ppo, {clip = 1.5})
  refused("unknown option 'kl'", loss.ppo, {kl = {}})
  refused("clip must be a number or {low =, high =}, got a string", loss.ppo, {clip = "x"})
end

function TestMistakes.test_the_divergence_of_kto_is_that_of_the_global_batch()
  local function batch(dp)
    local answers = by_hand.experience({{1, 2}, {3}, {4, 5, 6}, {7}}, {{1, 2}, {3}, {4, 5, 6}, {7, 8}}, {vocabulary = 11})
    local chosen = {}
    for i = 0, 3 do
      if not dp or i % dp.size == dp.rank then chosen[#chosen + 1] = i end
    end
    local options = answers:row_options(chosen, 8, "right")
    options.rows = #chosen
    return rlhf.make_rows(options).fields
  end
  local function found(how, axis)
    local policy, reference = small_loop.trainer(how, nil, rlhf.loss.dpo{}), small_loop.trainer(how, {seed = 9})
    return rlhf.reference(batch(axis), {policy = reference, reference = policy, axis = axis}).kl[0]:item()
  end
  local wanted = found{}
  lu.assertTrue(wanted > 0)
  lu.assertAlmostEquals(found({mesh = mesh}, mesh.dp) / wanted, 1, 1e-12)
  if last > 0 then refused("`axis` is missing: give the axis along which their rows differ", found, {mesh = mesh}) end
end

-- A disk that is full under samples.jsonl.
function TestMistakes.test_samples()
  local folder = temporary()
  local function open() return zt.run{name = "run", folder = folder, steps = 3, mesh = mesh, overwrite = true} end
  local run = open()
  refused("takes a run of zt.run, got a table", rlhf.samples, {})
  local samples, answers = rlhf.samples(run), rollout()
  refused("takes what rlhf.rollout returns as its second argument", samples.add, samples, 0, {})
  samples:add(0, answers)
  local path = samples.path
  samples.path = "/dev/full"
  refused("No space left on device", samples.add, samples, 1, answers)
  samples.path = path
  samples:add(1, answers)
  if rank == 0 then
    local text = zt.fs.read(path)
    zt.write_file(path, text .. text:sub(1, 20)) -- a line that a killed run has left incomplete
  end
  local resumed = rlhf.samples(run, {done = 1, most = 2})
  resumed:add(1, answers)
  if rank == 0 then
    local iterations = {}
    for line in zt.fs.read(path):gmatch "[^\n]+" do
      local record = zt.json.decode(line)
      iterations[#iterations + 1] = record.iteration
      local i = #iterations <= 6 and #iterations or #iterations - 6
      lu.assertEquals({record.sample, record.copy, record.length}, {answers.groups[i - 1]:item(), answers.copies[i - 1]:item(),
                                                                   #record.answer})
      lu.assertEquals(record.answer, answers:answer(i):tolist())
    end
    lu.assertEquals(iterations, {0, 0, 0, 0, 0, 0, 1, 1})
  end
  run:finish()
  if rank == 0 then os.execute("rm -rf " .. folder) end
end

small_run.finish{{"TestMistakes", TestMistakes}}
