-- Tests models whose blocks consist of several layers: nn.gpt{mlp = function}, nn.attention_block and nn.residual.
local lu = require "luaunit"
local zt = require "zt"
local nn, optim = require "zt.nn", require "zt.optim"

local VOCAB, SEQ, SAMPLES, HIDDEN, FFN = 11, 4, 4, 8, 12

local function mlp() return nn.mlp{hidden = HIDDEN, ffn = FFN, activation = "swiglu", bias = false} end

local function gpt(options)
  local all = {layers = 2, hidden = HIDDEN, heads = 2, vocab = VOCAB, ffn = FFN, family = "llama", qk_norm = true, seed = 3}
  for key, value in pairs(options or {}) do all[key] = value end
  return nn.gpt(all)
end

local function of_layers(i)
  if i == 1 then return {{"mlp", mlp()}} end
  return nil
end

local function program_of(model, micro_batches)
  return zt.program(model, {micro_batches = micro_batches or 2, precision = "fp64"})
end

local function trainer_of(program) return zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}}) end

local function batch()
  local tokens = zt.arange(SAMPLES * SEQ):remainder(VOCAB):view({SAMPLES, SEQ}):to "int64"
  return {tokens = tokens, labels = (tokens * 3 + 1):remainder(VOCAB)}
end

local function losses_of(program)
  local trainer, losses = trainer_of(program), {}
  for step = 1, 3 do losses[step] = trainer:step(batch()).loss end
  return losses
end

local function assert_close(got, wanted)
  for step, loss in ipairs(wanted) do lu.assertAlmostEquals(got[step], loss, 1e-12) end
end

local TestMlpLayers = {}

-- The parameters of both models have the same names, so they begin with the same values.
function TestMlpLayers:test_losses_are_those_of_the_ordinary_model()
  assert_close(losses_of(program_of(gpt{mlp = of_layers})), losses_of(program_of(gpt())))
end

function TestMlpLayers:test_recompute_and_split_backwards_change_no_bit()
  for _, dropout in ipairs{0, 0.2} do
    local function program() return program_of(gpt{mlp = of_layers, dropout = dropout}) end
    local wanted = losses_of(program())
    lu.assertEquals(losses_of(program():apply(zt.recompute())), wanted)
    lu.assertEquals(losses_of(program():apply(zt.split_backward())), wanted)
    lu.assertEquals(losses_of(program():apply(zt.recompute()):apply(zt.split_backward())), wanted)
  end
end

function TestMlpLayers:test_dropout_does_not_depend_on_micro_batches()
  local function losses(micro_batches) return losses_of(program_of(gpt{mlp = of_layers, dropout = 0.2}, micro_batches)) end
  assert_close(losses(4), losses(1))
end

function TestMlpLayers:test_by_hand_in_a_sequential()
  local model = nn.sequential{
    {"embedding", nn.embedding{vocab = VOCAB, hidden = HIDDEN}},
    {"block", {
      {"attention", nn.attention_block{hidden = HIDDEN, heads = 2, norm = "none"}},
      {"mlp", mlp()},
      {"add", nn.residual{dropout = 0.1}},
    }},
    {"head", nn.lm_loss{vocab = VOCAB, hidden = HIDDEN}},
    seed = 1,
  }
  local names = {}
  for index, parameter in ipairs(model:parameters()) do names[index] = parameter.name end
  lu.assertItemsEquals(names, {
    "embedding.weight", "block.attention.attention.qkv.weight", "block.attention.attention.qkv.bias",
    "block.attention.attention.out.weight", "block.attention.attention.out.bias", "block.mlp.up.weight",
    "block.mlp.down.weight", "head.norm.weight", "head.norm.bias", "head.weight",
  })
  local losses = losses_of(program_of(model))
  lu.assertTrue(losses[3] < losses[1])
end

function TestMlpLayers:test_a_plan_needs_no_values()
  local trainer = trainer_of(program_of(gpt{mlp = of_layers, dropout = 0.1}))
  lu.assertTrue(trainer:predict_activations(batch()) > 0)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestMlpLayers", TestMlpLayers}})
