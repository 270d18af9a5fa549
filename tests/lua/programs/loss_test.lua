-- Tests zt.loss: a cross-entropy written in Lua equals the built-in one for every number of micro-batches.
local lu = require "luaunit"
local zt = require "zt"
local nn = require "zt.nn"
local optim = require "zt.optim"

local VOCAB, SEQ, SAMPLES = 11, 6, 4

local function gpt(has_loss)
  return nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3, loss = has_loss}
end

local function trainer_of(model, micro_batches)
  local program = zt.program(model, {micro_batches = micro_batches or 1, precision = "fp64"})
  return zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
end

-- Returns a batch in which later samples have fewer valid labels; the last sample has none.
local function batch()
  local tokens = zt.arange(SAMPLES * SEQ):remainder(VOCAB):view({SAMPLES, SEQ}):to "int64"
  local labels = (tokens * 3 + 1):remainder(VOCAB)
  for sample = 0, SAMPLES - 1 do labels[{sample, {0, 2 * sample}}]:fill_(-100) end
  return {tokens = tokens, labels = labels}
end

local function cross_entropy(out, ctx)
  return zt.cross_entropy_loss(out.logits:flatten(0, 1), ctx:batch("labels"):flatten())
end

local TestLoss = {}

function TestLoss:test_equals_the_built_in_one()
  for _, micro_batches in ipairs {1, 2, 4} do
    local built_in = trainer_of(gpt(true), micro_batches)
    local own = trainer_of(gpt(false):append(zt.loss(cross_entropy)), micro_batches)
    for _ = 1, 3 do
      local expected, got = built_in:step(batch()), own:step(batch())
      lu.assertAlmostEquals(got.loss, expected.loss, 1e-12)
      lu.assertAlmostEquals(got.grad_norm, expected.grad_norm, 1e-12)
      lu.assertEquals(got.tokens, expected.tokens)
      lu.assertEquals(got.terms.loss, got.loss)
    end
  end
end

function TestLoss:test_sums_and_terms_by_name()
  local function sum(out, ctx)
    return zt.cross_entropy_loss(out.logits:flatten(0, 1), ctx:batch("labels"):flatten(), {reduction = 2})
  end
  local own = trainer_of(gpt(false):append(zt.loss(sum, {name = "nats", reduction = "sum"})), 2)
  local expected = trainer_of(gpt(true), 2):step(batch())
  local got = own:step(batch())
  lu.assertAlmostEquals(got.loss, expected.loss, 1e-12)
  lu.assertEquals(got.terms, {nats = got.loss})
end

function TestLoss:test_per_sample()
  local function loss_with(micro_batches)
    local model = nn.sequential{
      nn.embedding{vocab = VOCAB, hidden = 8},
      zt.loss(function(out) return out.h:square():mean() end, {inputs = {"h"}, per = "sample"}),
    }
    return trainer_of(model, micro_batches):step(batch()).loss
  end
  lu.assertAlmostEquals(loss_with(4), loss_with(1), 1e-13)
end

function TestLoss:test_generating_gives_the_logits()
  local trainer = trainer_of(gpt(false):append(zt.loss(cross_entropy)))
  local logits = trainer:infer{tokens = batch().tokens}.logits
  lu.assertEquals(logits:size(), {SAMPLES, SEQ, VOCAB})
  lu.assertEquals(#zt.generate(trainer, {1, 2}, {max_tokens = 3, seq = SEQ}), 3)
end

-- Errors inside a layer name the layer and this file, never a file of lua/zt.
function TestLoss:test_errors_name_the_script_and_the_layer()
  local function message(run, options)
    local trainer = trainer_of(gpt(false):append(zt.loss(run, options)))
    local _, text = pcall(function() trainer:step(batch()) end)
    return text:match("^(.-)\nstack traceback") or text
  end
  local tail = message(function(out) return out.logits:matmul(out.logits) end, {per = "sample"})
  local vector = message(function(out) return out.logits end, {per = "sample"})
  local field = message(cross_entropy, {labels = "label"})
  for _, text in ipairs {tail, vector, field} do
    lu.assertStrMatches(text, "[^\n]*loss_test%.lua:%d+: layer '[^']+' %(loss%): in its function at [^\n]*loss_test%.lua:%d+: .*")
    lu.assertNil(text:find("zt/layers/loss.lua", 1, true), text)
  end
  lu.assertStrContains(vector, "returned a tensor of the shape [4, 6, 11], and the loss 'loss' needs a scalar tensor: let it "
    .. "return the mean over the micro-batch's samples, as reduction = 'mean' says")
  lu.assertNotStrContains(vector, ":sum()")
end

function TestLoss:test_a_function_that_returns_no_tensor()
  for returned, value in pairs{nothing = "", ["an integer"] = "return 3", ["a table"] = "return {}"} do
    local trainer = trainer_of(gpt(false):append(zt.loss(loadstring(value, "@own_loss.lua"), {name = "nats"})))
    local expected = ("zt.loss: the function at own_loss.lua:0 returned %s, and the loss 'nats' needs a scalar tensor: let it "
      .. "return the mean over the micro-batch's tokens, as reduction = 'mean' says"):format(returned)
    lu.assertErrorMsgContains(expected, trainer.step, trainer, batch())
  end
end

-- Labels are checked before anything else of a step, so that the trainer goes on.
function TestLoss:test_cross_entropy_refuses_wrong_labels()
  local function model(options)
    return nn.sequential{nn.embedding{vocab = VOCAB, hidden = 8}, nn.linear{["in"] = 8, out = VOCAB}, nn.cross_entropy(options)}
  end
  for _, options in ipairs{{}, {classes = VOCAB}} do
    local trainer = trainer_of(model(options))
    local wrong = batch()
    wrong.labels = wrong.labels:clone()
    for _, label in ipairs{-3, options.classes and VOCAB} do
      wrong.labels:narrow(0, 1, 1):narrow(1, 2, 1):fill_(label)
      local expected = ("label %d at sample 1, index 2 is neither one of the"):format(label)
      lu.assertErrorMsgContains(expected, trainer.step, trainer, wrong)
    end
    lu.assertTrue(trainer:step(batch()).loss > 0)
  end
  local trainer = trainer_of(model{classes = VOCAB + 1})
  lu.assertErrorMsgContains("takes logits of its 12 classes", trainer.step, trainer, batch())
end

function TestLoss:test_errors()
  lu.assertErrorMsgContains("takes function(out, ctx)", zt.loss, {})
  lu.assertErrorMsgContains("did you mean 'reduction'?", zt.loss, print, {reductions = "sum"})
  lu.assertErrorMsgContains("must be one of 'token', 'sample'", zt.loss, print, {per = "word"})
  lu.assertErrorMsgContains("zt.loss.inputs[1] must be a string, got an integer", zt.loss, print, {inputs = {1}})
  lu.assertErrorMsgContains("'logits'", function() return gpt(true):append(zt.loss(print, {inputs = {"logit"}})) end)
  local trainer = trainer_of(gpt(false):append(zt.loss(cross_entropy)))
  lu.assertErrorMsgContains("no field 'labels'", trainer.step, trainer, {tokens = batch().tokens})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestLoss", TestLoss}})
