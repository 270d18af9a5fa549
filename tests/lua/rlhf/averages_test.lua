-- Tests averages of parameters, text in the steps of a policy, importance weights, and what teachers add. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, infer, nn, optim = require "zt.comm", require "zt.infer", require "zt.nn", require "zt.optim"
local rlhf, zero = require "zt.rlhf", require "zt.zero"
local small_loop = require "rlhf.small_loop"

local mesh = comm.mesh{dp = -1}

local function int64(list) return zt.tensor(list, {dtype = "int64"}) end

local TestAverages = {}

-- decay * average + (1 - decay) * parameters, from the parameters before the first step.
function TestAverages.test_the_average()
  local options = small_loop.options{head = "lm", tied = true}
  local function trainer(stage, more)
    local program = zt.program(nn.gpt(options), {precision = stage == 1 and "fp64" or "fp32"})
    program = program:apply(zero.shard{axis = mesh.dp, stage = stage})
    if more then program = program:apply(rlhf.ema{decay = 0.9, mesh = mesh}) end
    return zt.trainer(program, {optimizer = optim.adamw{lr = 0.1}})
  end
  local tokens = int64{{1, 2, 3, 4, 5}, {5, 4, 3, 2, 1}}
  for stage = 0, 3 do
    local from, to, wanted = trainer(stage, true), trainer(3 - stage), {}
    lu.assertErrorMsgContains("has made no step", rlhf.take_ema, from, to)
    for _, name in ipairs(from:parameters()) do wanted[name] = from:parameter(name):to "float64":clone() end
    for step = 1, 3 do
      from:step{tokens = tokens + step, labels = tokens}
      for name, average in pairs(wanted) do wanted[name] = average * 0.9 + from:parameter(name):to "float64" * 0.1 end
    end
    rlhf.take_ema(from, to)
    for name, average in pairs(wanted) do
      local off = (to:parameter(name):to "float64" - average):abs():max():item()
      lu.assertTrue(off <= 1e-6, ("%s is %g off"):format(name, off)) -- the average is in float32
      lu.assertTrue((average - from:parameter(name):to "float64"):abs():max():item() > 0.01)
    end
  end
end

-- The weights are the ratios of the trainer to the sampler, at most the cap.
function TestAverages.test_importance_weights()
  local how = {mesh = mesh, stage = 1}
  local sampler, actor = small_loop.trainer(how, nil, rlhf.loss.grpo{}), small_loop.trainer(how, {seed = 5}, rlhf.loss.grpo{})
  local engine = infer.engine{trainer = sampler, cache = {memory = 2 ^ 22}, stop_tokens = {small_loop.STOP}}
  local answers = rlhf.rollout{engine = engine, prompts = small_loop.prompts(5, mesh.dp), n = 2, max_tokens = 6}
  rlhf.score(answers, {actor = sampler})
  local alike = answers.of_tokens.old_logprobs
  lu.assertTrue((alike - answers.of_tokens.sampled_logprobs):abs():max():item() < 1e-12)
  lu.assertTrue(answers.metrics.sampler_gap < 1e-12)
  local largest, smallest = 0, 9
  for _, level in ipairs{"token", "sequence"} do
    rlhf.score(answers, {actor = actor, is = {level = level, cap = 1.5}})
    local gaps, found = answers.of_tokens.old_logprobs - alike, answers.of_tokens.correction
    for i = 1, answers.count do
      local first, count = answers:span(i)
      for place = first, first + count - 1 do
        local gap = level == "token" and gaps[place]:item() or gaps:narrow(0, first, count):sum():item()
        lu.assertAlmostEquals(found[place]:item(), math.min(math.exp(gap), 1.5), 1e-9)
        largest, smallest = math.max(largest, found[place]:item()), math.min(smallest, found[place]:item())
      end
    end
  end
  lu.assertEquals(largest, 1.5)
  lu.assertTrue(smallest < 1)
end

-- A step with rows of text is that of both losses, each with its own divisor, on any number of ranks.
function TestAverages.test_text_in_the_steps_of_a_policy()
  local function model() return small_loop.options() end
  local function trainer(losses, own)
    local gpt = nn.gpt(model())
    for i, loss in ipairs(losses) do gpt = gpt:append(loss, "loss" .. i) end
    local program = zt.program(gpt, {precision = "fp64", micro_batches = own and 1 or 2})
    if not own then program = program:apply(zero.shard{axis = mesh.dp, stage = 2}) end
    return zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}, separate = own})
  end
  local ppo, ptx = rlhf.loss.ppo{}, rlhf.loss.ptx{coefficient = 0.5}
  local actor = trainer{ppo, ptx}
  local engine = infer.engine{trainer = actor, cache = {memory = 2 ^ 22}, stop_tokens = {small_loop.STOP}}
  local answers = rlhf.rollout{engine = engine, prompts = small_loop.prompts(5, mesh.dp), n = 2, max_tokens = 6}
  rlhf.score(answers, {actor = actor, reward = function(_, _, _, tokens) return tokens:numel() end})
  rlhf.advantages(answers, {kind = "rloo"})
  -- Two documents in the first row, and labels that do not count.
  local tokens = int64{{1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2}, {2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7}}
  local labels, segments = (tokens + 1):remainder(11), tokens * 0
  labels:narrow(1, 4, 1):fill_(-100)
  segments:select(0, 0):narrow(0, 5, 7):fill_(1)
  local text = {tokens = tokens, labels = labels, segments = segments}
  local function own_text()
    local part = {}
    for name, field in pairs(text) do
      part[name] = mesh.dp.size == 1 and field or field:narrow(0, mesh.dp.rank, 1):contiguous()
    end
    return part
  end
  local function gradient(of)
    local all = {}
    for i, name in ipairs(of:parameters()) do all[i] = of:gradient(name):flatten() end
    return zt.cat(all)
  end
  local result
  for batch in rlhf.batches(answers, {trainer = actor, seq = 12, ptx = own_text}) do result = actor:step(batch) end
  -- By itself: the policy, and the text as means over documents of means over tokens.
  local policy = trainer({ppo}, true)
  local wanted = 0
  for batch in rlhf.batches(answers, {trainer = policy, seq = 12}) do wanted = policy:step(batch).loss end
  local sum, of_text = gradient(policy), 0
  for _, document in ipairs{{0, 0, 5}, {0, 5, 7}, {1, 0, 12}} do
    local alone = zt.trainer(zt.program(nn.gpt(small_loop.options{head = "lm"}), {precision = "fp64"}),
                             {optimizer = optim.sgd{lr = 0.1}, separate = true})
    local function piece(field) return field:narrow(0, document[1], 1):narrow(1, document[2], document[3]):contiguous() end
    of_text = of_text + alone:step{tokens = piece(tokens), labels = piece(labels)}.loss * 0.5 / 3
    sum = sum + gradient(alone) * (0.5 / 3)
  end
  lu.assertAlmostEquals(result.loss / (wanted + of_text), 1, 1e-12)
  lu.assertTrue(((gradient(actor) - sum):norm() / sum:norm()):item() <= 1e-12)
  lu.assertErrorMsgContains("its rows have 12 positions, and those of the answers 13", rlhf.batches(answers, {
    trainer = actor, seq = 13, ptx = own_text}))
  lu.assertErrorMsgContains("ptx must return a batch", rlhf.batches(answers, {trainer = actor, ptx = function() return 1 end}))
end

function TestAverages.test_teachers()
  local how = {mesh = mesh, precision = "fp32"}
  local teacher = small_loop.trainer(how, {head = "lm", loss = false, seed = 6})
  local batch = {tokens = int64{{1, 2, 3}, {4, 5, 6}}, labels = int64{{2, 3, -100}, {5, 6, -100}}}
  rlhf.teacher(batch, {teacher = teacher})
  lu.assertEquals(batch.teacher_logits:size(), {2, 3, small_loop.VOCAB})
  rlhf.teacher(batch, {teacher = teacher, top = 3, temperature = 0.5})
  local wanted = (batch.teacher_logits:to "float64" / 0.5):log_softmax(-1)
  lu.assertTrue(batch.teacher_logprobs:equal((wanted:gather(2, batch.teacher_tokens))))
  lu.assertTrue(batch.teacher_logprobs:select(2, 0):equal((wanted:max(-1))))
  lu.assertErrorMsgContains("top is 11, and the vocabulary has 11 tokens", rlhf.teacher, batch, {teacher = teacher, top = 11})
  lu.assertErrorMsgContains("the teacher outputs no logits", rlhf.teacher, batch,
                            {teacher = small_loop.trainer(how, {head = "value"})})
  lu.assertErrorMsgContains("takes a batch", rlhf.teacher, {}, {teacher = teacher})
end

-- A teacher may have more tokens than the student: with `top` a batch does not tell how many.
function TestAverages.test_teachers_of_another_vocabulary()
  local how = {mesh = mesh, precision = "fp64"}
  local teacher = small_loop.trainer(how, {head = "lm", loss = false, vocab = 30})
  local student = small_loop.trainer(how, {head = "lm", loss = false}, rlhf.loss.distil{top = 20})
  local batch = {tokens = int64{{1, 2, 3}}, labels = int64{{-100, 5, -100}}}
  rlhf.teacher(batch, {teacher = teacher, top = 20})
  lu.assertErrorMsgContains("and the student has 11 tokens: they need one vocabulary", student.step, student, batch)
  batch.teacher_tokens = batch.teacher_tokens:remainder(11)
  batch.teacher_tokens:select(1, 0):fill_(29) -- where no token counts
  lu.assertTrue(math.abs(student:step(batch).loss) < math.huge)
end

function TestAverages.test_memory_that_is_away_twice()
  local models = {actor = {trainer = small_loop.trainer({mesh = mesh}, nil, rlhf.loss.grpo{}), rows = 2, seq = 8}}
  local function report(away) return rlhf.report{models = models, phases = {{name = "sleep", away = {actor = away}}}} end
  lu.assertTrue(report{"optimizer", "gradients"}.phases[1].total > 0)
  lu.assertErrorMsgContains("phase 'sleep' has 'optimizer' of 'actor' away twice", report, {"optimizer", "optimizer"})
  lu.assertErrorMsgContains("what is away of 'actor' as a list, such as {\"optimizer\"}, got a string", report, "optimizer")
end

-- Nothing is set unless all parameters fit.
function TestAverages.test_average_of_another_model()
  local function trainer(layers, vocab, eps)
    local options = small_loop.options{head = "lm", layers = layers, vocab = vocab, eps = eps}
    local program = zt.program(nn.gpt(options), {precision = "fp32"})
    program = program:apply(zero.shard{axis = mesh.dp, stage = 1}):apply(rlhf.ema{decay = 0.9, mesh = mesh})
    return zt.trainer(program, {optimizer = optim.adamw{lr = 0.1}})
  end
  local from, tokens = trainer(2), int64{{1, 2, 3, 4, 5}}
  from:step{tokens = tokens, labels = tokens}
  for _, case in ipairs{{3, 11, "only the second trainer has 'blocks.2.mlp.up.weight'"},
                        {1, 11, "only the first trainer has 'blocks.1.mlp.up.weight'"},
                        {2, 12, "'head.weight' is [11, 16] in the first trainer and [12, 16] in the second"},
                        {2, 11, "the option eps is 1e-05 in the first trainer and 0.5 in the second", 0.5}} do
    local to = trainer(case[1], case[2], case[4])
    local before = to:parameter "blocks.0.mlp.up.weight"
    lu.assertErrorMsgContains(case[3], rlhf.take_ema, from, to)
    lu.assertTrue(to:parameter "blocks.0.mlp.up.weight":equal(before))
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestAverages", TestAverages}})
