-- Tests heads that output log-probabilities of labels, entropies and values. Also runs on two and four ranks, which share the
-- classes.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local cut_runs = require "layers.cut_runs"
local one_rank = require "support.one_rank"
local infer, nn, optim, pipe, zero = require "zt.infer", require "zt.nn", require "zt.optim", require "zt.pipe", require "zt.zero"

local IGNORED, TEMPERATURE = -100, 0.7
local OPTIONS = {layers = 1, family = "llama", hidden = 12, heads = 3, head_dim = 4, vocab = 17, seq = 9, seed = 3, std = 0.3}

local function merged(...)
  local all = {}
  for _, options in ipairs{...} do
    for key, value in pairs(options) do all[key] = value end
  end
  return all
end

-- The same fields as cut_runs.batch, with a weight per token.
local function batch(step, dp)
  local fields = cut_runs.batch(step, dp, OPTIONS.vocab)
  fields.weight = zt.sin(fields.tokens:to("float64") + step)
  return fields
end

-- A loss on log-probabilities and entropies.
local function loss_of(inputs, forward)
  return nn.layer{
    io = {inputs = inputs, outputs = {inputs[1]}, losses = {own = "token"}}, tokens = "separate",
    count = function(field) return field "labels":ne(IGNORED):sum():item() end,
    forward = function(_, ...)
      local ctx, given = select(#inputs + 1, ...), {...}
      if ctx.mode == "generate" then return given[1] end
      local logprobs, entropy = forward(ctx, unpack(given, 1, #inputs))
      ctx:loss("own", (logprobs * ctx:batch "weight" + entropy:square() * 0.3):sum(), "token")
      return given[1]
    end,
  }
end

local function model_of(more)
  local options = merged(OPTIONS, {head = "logprobs", entropy = true, temperature = TEMPERATURE}, more or {})
  local function pass(_, logprobs, entropy) return logprobs, entropy end
  return nn.gpt(options):append(loss_of({"logprobs", "entropy"}, pass), "own")
end

-- The same by operators on the logits.
local function reference_of()
  return nn.gpt(merged(OPTIONS, {loss = false})):append(loss_of({"logits"}, function(ctx, logits)
    local of_all, labels = (logits / TEMPERATURE):log_softmax(-1), ctx:batch "labels"
    local valid = labels:ne(IGNORED):to(logits:dtype())
    local logprobs = of_all:gather(2, labels:clamp(0):unsqueeze(2)):squeeze(2) * valid
    return logprobs, (of_all:exp() * of_all):sum(-1):neg() * valid
  end), "own")
end

-- `how`: {mesh =, stage =, stages =, model = more options}.
local function train(model, how)
  local program = zt.program(model, {precision = "fp64"})
  if how and how.stages then program = program:apply(pipe.split{axis = how.stages}) end
  if how then program = program:apply(zero.shard{axis = how.mesh.dp, stage = how.stage}) end
  local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, clip = 0.5, separate = not how})
  return one_rank.run(trainer, function(step) return batch(step, how and how.mesh.dp) end), trainer
end

local TestLogprobs = {}

function TestLogprobs.test_equal_operators_on_logits()
  local wanted, alone = train(reference_of())
  for _, more in ipairs{{}, {head_tile = 5}, {lora = nil, head_tile = 1}} do
    local results, trainer = train(model_of(more))
    one_rank.assert_trains_alike(results, trainer, wanted, alone, "tile " .. (more.head_tile or 0))
  end
end

function TestLogprobs.test_ranks_share_the_classes()
  local wanted, alone = train(reference_of())
  for number, mesh in ipairs(cut_runs.meshes()) do
    if OPTIONS.heads >= mesh.tp.size then
      local more = {tensor = mesh.tp, sequence_parallel = number % 2 == 0, head_tile = number == 3 and 4 or 0}
      local how = {mesh = mesh, stage = number % 4, stages = number == 4 and mesh.pp or nil}
      local results, trainer = train(model_of(more), how)
      one_rank.assert_trains_alike(results, trainer, wanted, alone, "mesh " .. number)
    end
  end
end

local function scorer(more, precision)
  local program = zt.program(nn.gpt(merged(OPTIONS, {head = "logprobs"}, more or {})), {precision = precision or "fp32"})
  return zt.trainer(program, {separate = true})
end

function TestLogprobs.test_inference_gives_logprobs_of_labels_or_logits()
  local fields = cut_runs.batch(1, nil, OPTIONS.vocab)
  local trainer = scorer({entropy = true}, "bf16")
  local outputs = trainer:infer{tokens = fields.tokens, labels = fields.labels}
  lu.assertEquals({outputs.logprobs:dtype(), outputs.entropy:dtype()}, {"float32", "float32"})
  lu.assertEquals(outputs.logprobs:size(), fields.labels:size())
  local ignored = fields.labels:eq(IGNORED)
  lu.assertTrue(ignored:any():item())
  lu.assertEquals(outputs.logprobs:masked_select(ignored):abs():sum():item(), 0)
  lu.assertEquals(outputs.entropy:masked_select(ignored):abs():sum():item(), 0)
  local logits = trainer:infer{tokens = fields.tokens}.logprobs
  lu.assertEquals(logits:size(), {cut_runs.SAMPLES, cut_runs.TOKENS, OPTIONS.vocab})
  local wanted = logits:to("float64"):log_softmax(-1):gather(2, fields.labels:clamp(0):unsqueeze(2)):squeeze(2)
  local difference = (outputs.logprobs:to "float64" - wanted):masked_fill(ignored, 0):abs():max():item()
  lu.assertTrue(difference < 1e-6, tostring(difference))
end

local function integers(list) return zt.tensor({list}, {dtype = "int64"}) end

-- An engine and a scorer with one provider of matmuls, whose rows do not depend on each other, compute the same bits.
function TestLogprobs.test_logprobs_are_those_of_the_engine()
  if zt.world.size > 1 then return end
  for _, precision in ipairs{"fp32", "bf16"} do
    for _, temperature in ipairs{1, 0.7, 1.9} do
      local trainer = scorer({temperature = temperature}, precision)
      local engine = infer.engine{trainer = trainer, max_context = 32, cache = {memory = 2 ^ 24}}
      local prompts, requests = {{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10}}, {}
      for i, prompt in ipairs(prompts) do
        requests[i] = {prompt = prompt, max_tokens = 9, temperature = temperature, seed = i, logprobs = 0, ignore_eos = true}
      end
      local answers = engine:generate(requests)
      engine:release()
      for i, answer in ipairs(answers) do
        local tokens, labels = {}, {}
        for _, token in ipairs(prompts[i]) do tokens[#tokens + 1] = token end
        for _, token in ipairs(answer.tokens) do tokens[#tokens + 1] = token end
        for place = 1, #tokens - 1 do labels[place] = place >= #prompts[i] and tokens[place + 1] or IGNORED end
        tokens[#tokens] = nil
        zt.gemm{provider = "dots"}
        local scored = trainer:infer{tokens = integers(tokens), labels = integers(labels)}.logprobs
        zt.gemm{provider = "default"}
        for place, entry in ipairs(answer.logprobs) do
          local wanted = zt.tensor(entry.sampled_logprob, {dtype = "float32"}):item()
          local what = ("%s, temperature %g, answer %d, token %d"):format(precision, temperature, i, place)
          lu.assertEquals(scored[0][#prompts[i] + place - 2]:item(), wanted, what)
        end
      end
    end
  end
end

function TestLogprobs.test_values()
  local fields = cut_runs.batch(1, nil, OPTIONS.vocab)
  local program = zt.program(nn.gpt(merged(OPTIONS, {head = "value"})), {precision = "bf16"})
  local trainer = zt.trainer(program, {separate = true})
  trainer:set_parameter("head.value.weight", zt.ones{1, OPTIONS.hidden})
  local values = trainer:infer{tokens = fields.tokens}.values
  lu.assertEquals({values:dtype(), values:size()}, {"float32", fields.tokens:size()})
  lu.assertTrue(values:abs():max():item() > 0.1)
  local lora = nn.gpt(merged(OPTIONS, {head = "value", lora = {rank = 2, targets = {"q"}}}))
  local trained = {}
  for _, parameter in ipairs(lora:parameters()) do
    if parameter.trainable then trained[#trained + 1] = parameter.name end
  end
  local prefix = "blocks.0.attention.qkv.lora.q."
  lu.assertEquals(trained, {prefix .. "a", prefix .. "b", "head.value.weight"})
end

function TestLogprobs.test_values_of_cut_tokens_train_as_on_one_rank()
  local function model(more)
    return nn.gpt(merged(OPTIONS, {head = "value"}, more)):append(nn.layer{
      io = {inputs = {"values"}, outputs = {"values"}, losses = {own = "sample"}},
      forward = function(_, values, ctx)
        if ctx.mode ~= "generate" then ctx:loss("own", (values - 1):square():sum(), "sample") end
        return values
      end,
    }, "own")
  end
  local wanted, alone = train(model{})
  for number, mesh in ipairs(cut_runs.meshes()) do
    if OPTIONS.heads >= mesh.tp.size then
      local results, trainer = train(model{tensor = mesh.tp, sequence_parallel = number < 3}, {mesh = mesh, stage = number % 4})
      one_rank.assert_trains_alike(results, trainer, wanted, alone, "mesh " .. number)
    end
  end
end

function TestLogprobs.test_refusals()
  local function refused(text, more) lu.assertErrorMsgContains(text, function() nn.gpt(merged(OPTIONS, more)) end) end
  refused("temperature must lie between 1e-06 and 1000000, got 0", {head = "logprobs", temperature = 0})
  refused("temperature must lie between", {head = "logprobs", temperature = math.huge})
  refused("has an effect only with head = \"logprobs\"", {temperature = 2})
  refused("has an effect only with head = \"lm\"", {head = "logprobs", loss = false})
  refused("must be one of 'lm', 'logprobs', 'value'", {head = "reward"})
  refused("leave 'head' out", {head = "value", lora = {targets = {"head"}}})
  local trainer = scorer()
  lu.assertErrorMsgContains("label 99 at sample 0, index 0 is neither one of the 17 classes", function()
    trainer:infer{tokens = zt.zeros({1, 2}, {dtype = "int64"}), labels = zt.tensor({{99, 1}}, {dtype = "int64"})}
  end)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestLogprobs", TestLogprobs}})
