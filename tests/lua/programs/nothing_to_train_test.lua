-- Tests models whose steps would train nothing, or not what the script means.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local nn, optim = require "zt.nn", require "zt.optim"
local run = require "support.command" "run"

local function trainer_of(layers, options)
  layers.seed = 1
  local model = nn.sequential(layers)
  if options and options.freeze then model:freeze(options.freeze) end
  local program = zt.program(model, {micro_batches = options and options.micro_batches or 1})
  return zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
end

local function batch(samples)
  local tokens = zt.arange(samples * 4):remainder(11):view{samples, 4}:to "int64"
  return {tokens = tokens, labels = tokens:clone()}
end

local function embedding() return {"embedding", nn.embedding{vocab = 11, hidden = 8}} end
local function head() return {"head", nn.lm_loss{vocab = 11, hidden = 8}} end

local TestNothingToTrain = {}

function TestNothingToTrain:test_a_model_without_a_loss()
  local trainer = trainer_of{embedding(), {"linear", nn.linear{["in"] = 8, out = 8}}}
  lu.assertErrorMsgContains("the model has no loss, so a step would train nothing", trainer.step, trainer, batch(2))
  lu.assertErrorMsgContains("the model has no loss", trainer.forward, trainer, batch(2))
  lu.assertEquals(trainer:infer(batch(2)).h:shape(), {2, 4, 8})
end

function TestNothingToTrain:test_a_frozen_model()
  lu.assertErrorMsgContains("all parameters of the model are frozen, so the optimizer has nothing to train", trainer_of,
    {embedding(), head()}, {freeze = "."})
end

function TestNothingToTrain:test_a_detached_loss_is_said_once()
  local path = os.tmpname()
  zt.write_file(path, [[
    local zt, nn, optim = require "zt", require "zt.nn", require "zt.optim"
    local model = nn.gpt{layers = 1, hidden = 8, heads = 1, vocab = 11, seq = 4, loss = false}
      :append(zt.loss(function(out) return out.logits:detach():mean() end))
    local trainer = zt.trainer(zt.program(model), {optimizer = optim.sgd{lr = 0.1}})
    local tokens = zt.zeros({2, 4}, {dtype = "int64"})
    for _ = 1, 3 do trainer:step{tokens = tokens, labels = tokens} end
  ]])
  local output, status = run(path)
  os.remove(path)
  lu.assertEquals(status, 0, output)
  local warning = "[warn] step 0: the gradient of every parameter is exactly 0, so nothing is trained: is the loss detached"
  lu.assertStrContains(output, warning)
  lu.assertEquals(select(2, output:gsub("%[warn", "")), 1)
end

function TestNothingToTrain:test_a_second_loss_after_the_first()
  local model = nn.sequential{seed = 1, embedding(), head()}:append(zt.loss(function(out) return out.logits:mean() end))
  local trainer = zt.trainer(zt.program(model), {optimizer = optim.sgd{lr = 0.1}})
  lu.assertErrorMsgContains("it reads the output 'logits' of layer 'head', which returned none: a layer with a loss of its own",
    trainer.step, trainer, batch(2))
end

function TestNothingToTrain:test_more_values_than_outputs()
  local layer = nn.layer{kind = "two", forward = function(_, h) return h, h end}
  local trainer = trainer_of{embedding(), {"two", layer}, head()}
  lu.assertErrorMsgContains("the forward of a 'two' layer returned more values than its 1 output: name all of them in io",
    trainer.step, trainer, batch(2))
end

function TestNothingToTrain:test_the_micro_batch_of_a_wrong_label_is_named()
  local trainer, wrong = trainer_of({embedding(), head()}, {micro_batches = 2}), batch(4)
  wrong.labels[3][1] = 50
  lu.assertErrorMsgContains("layer 'head' (lm_loss) in micro-batch 1: label 50 at sample 1, index 1 is neither", trainer.step,
    trainer, wrong)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestNothingToTrain", TestNothingToTrain}})
