-- Tests nn.grouped_mlp in models: as the MLP of a block of nn.gpt, with recompute, split backwards and several micro-batches.
local lu = require "luaunit"
local zt = require "zt"
local nn, optim = require "zt.nn", require "zt.optim"

local VOCAB, SEQ, SAMPLES, HIDDEN, EXPERTS = 11, 4, 4, 8, 3

-- Returns layers that send each token to the expert of its number modulo 3, or all tokens to expert 1. The last layer restores
-- the order of the tokens.
local function experts(is_uneven)
  local function order(ctx)
    local expert = ctx:batch("tokens"):flatten():remainder(EXPERTS)
    if is_uneven then expert = expert * 0 + 1 end
    local places = expert:argsort{stable = true}
    return places, expert:bincount{minlength = EXPERTS}
  end
  local dispatch = nn.layer{
    kind = "dispatch",
    io = {outputs = {"rows", {name = "group_rows", differentiable = false}}},
    forward = function(_, h, ctx)
      local places, group_rows = order(ctx)
      return h:flatten(0, 1):index_select(0, places), group_rows
    end,
  }
  local combine = nn.layer{
    kind = "combine",
    io = {inputs = {"rows"}},
    forward = function(_, rows, ctx)
      return rows:index_select(0, order(ctx):argsort()):view{-1, SEQ, HIDDEN}
    end,
  }
  local mlps = nn.grouped_mlp{groups = EXPERTS, hidden = HIDDEN, ffn = 12, activation = "swiglu", bias = true}
  return {{"moe", {{"dispatch", dispatch}, {"experts", mlps}, {"combine", combine}}}}
end

local function model(is_uneven)
  return nn.gpt{
    layers = 2, hidden = HIDDEN, heads = 2, vocab = VOCAB, ffn = 12, family = "llama", seed = 3,
    mlp = function(i) return i == 1 and experts(is_uneven) or nil end,
  }
end

local function trainer_of(passes, options)
  options = options or {}
  local program = zt.program(model(options.is_uneven), {micro_batches = options.micro_batches or 2, precision = "fp64"})
  for _, pass in ipairs(passes) do program = program:apply(pass) end
  return zt.trainer(program, {optimizer = optim.sgd{lr = 0.5}})
end

local function batch()
  local tokens = (zt.arange(SAMPLES * SEQ) * 7):remainder(VOCAB):view({SAMPLES, SEQ}):to "int64"
  return {tokens = tokens, labels = (tokens * 3 + 1):remainder(VOCAB)}
end

local function losses_of(passes, options)
  local trainer, losses = trainer_of(passes, options), {}
  for step = 1, 3 do losses[step] = trainer:step(batch()).loss end
  return losses
end

local TestExperts = {}

function TestExperts:test_parameters()
  local names = {}
  for _, parameter in ipairs(model():parameters()) do names[parameter.name] = parameter.shape end
  lu.assertEquals(names["blocks.1.moe.experts.up.weight"], {EXPERTS, 24, HIDDEN})
  lu.assertEquals(names["blocks.1.moe.experts.down.bias"], {EXPERTS, HIDDEN})
end

function TestExperts:test_recompute_and_split_backwards_change_no_bit()
  for _, is_uneven in ipairs{false, true} do
    local options = {is_uneven = is_uneven}
    local wanted = losses_of({}, options)
    lu.assertTrue(wanted[3] < wanted[1])
    lu.assertEquals(losses_of({zt.recompute()}, options), wanted)
    lu.assertEquals(losses_of({zt.split_backward()}, options), wanted)
    lu.assertEquals(losses_of({zt.recompute(), zt.split_backward()}, options), wanted)
  end
end

function TestExperts:test_micro_batches_add_to_the_same_gradients()
  local wanted = losses_of({}, {micro_batches = 1})
  for _, micro_batches in ipairs{2, 4} do
    local got = losses_of({}, {micro_batches = micro_batches})
    for step, loss in ipairs(wanted) do lu.assertAlmostEquals(got[step], loss, 1e-12) end
  end
end

-- An expert without rows gets the gradient zero, though its buffer held another gradient before.
function TestExperts:test_an_expert_without_rows_gets_no_gradient()
  local trainer = trainer_of({}, {is_uneven = true})
  for _ = 1, 2 do trainer:step(batch()) end
  local gradient = trainer:gradient "blocks.1.moe.experts.up.weight"
  lu.assertEquals(gradient[0]:abs():max():item(), 0)
  lu.assertTrue(gradient[1]:abs():max():item() > 0)
  lu.assertEquals(gradient[2]:abs():max():item(), 0)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestExperts", TestExperts}})
