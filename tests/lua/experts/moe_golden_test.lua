-- Compares mixtures of experts with a golden file of plain PyTorch (tests/oracle/make_moe.py), in fp64: the output, the loss, the
-- gradients of the input and of all parameters, and which tokens experts got.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, moe, nn, optim, zero = require "zt.comm", require "zt.moe", require "zt.nn", require "zt.optim", require "zt.zero"
local safetensors = require "support.safetensors"

local BOUND = 1e-12 -- relative to the largest wanted number
local golden = safetensors.read "tests/golden/moe.safetensors"

-- The options of moe.layers per case.
local CASES = {
  softmax = {router = {losses = {balance = 0.3, per = "sample", z = 0.2}}},
  softmax_selected = {router = {normalise = "selected", losses = {balance = 0.3, per = "micro_batch"}}},
  softmax_selected_batch = {golden = "softmax_selected",
                            router = {normalise = "selected", losses = {balance = 0.3, per = "batch"}, batch_axes = {"dp"}}},
  softmax_after = {top_k = 3, activation = "swiglu", bias = false, router = {softmax_after = true, losses = {z = 0.4}}},
  first_routes = {router = {normalise = "selected", losses = {balance = 0.3, per = "micro_batch", of = "first"}}},
  top_1 = {top_k = 1, activation = "relu", router = {losses = {balance = 0.5, per = "sample"}}},
  sigmoid_bias = {router = {score = "sigmoid", bias = true, bias_rate = 0.05, normalise = "selected", scale = 2.5,
                            losses = {balance = 0.3, per = "sample"}}},
  groups = {router = {score = "sigmoid", bias = true, bias_rate = 0.05, groups = 3, top_groups = 2, normalise = "selected"}},
  expert_choice = {router = {choice = "expert", capacity = {train = 1, eval = 1, min = 1}}},
  drop_probability = {router = {capacity = {train = 0.7, eval = 0.7, min = 1, keep = "probability"}, normalise = "kept",
                                losses = {balance = 0.3, per = "sample"}}},
  drop_place = {router = {capacity = {train = 0.7, eval = 0.7, min = 1, keep = "place"}}},
  drop_micro_batch = {top_k = 3, router = {capacity = {train = 0.6, eval = 0.6, min = 1, keep = "place", per = "micro_batch"},
                                           normalise = "selected"}},
  shared = {activation = "swiglu", bias = false, shared = {ffn = 5, gate = true}},
  residual = {top_k = 1, residual = {ffn = 5}},
}

-- Returns the tensors of a case: {["in"] = ..., ["param/router.weight"] = ..., ...}.
local function tensors_of(name)
  local tensors, prefix = {}, name .. "/"
  for key, tensor in pairs(golden) do
    if key:sub(1, #prefix) == prefix then tensors[key:sub(#prefix + 1)] = tensor end
  end
  return tensors
end

local function assert_close(got, wanted, what)
  lu.assertEquals(got:size(), wanted:size(), what)
  local largest = math.max(wanted:abs():max():item(), 1e-3)
  local off = (got - wanted):abs():max():item() / largest
  lu.assertTrue(off <= BOUND, ("%s: %g off"):format(what, off))
end

-- Returns a trainer of a model that is the mixture alone: its input is the table of an embedding, one row per token.
local function trainer_of(options, wanted)
  local given = {experts = 6, hidden = 7, ffn = 5}
  for key, value in pairs(options) do given[key] = value end
  given.golden = nil
  local tokens = wanted["in"]:size(0)
  local model = nn.sequential{
    {"input", nn.embedding{vocab = tokens, hidden = 7}}, {"moe", moe.layers(given)},
    zt.loss(function(out, ctx) return (out.h * ctx:batch "cot"):sum() end, {inputs = {"h"}, per = "sample", reduction = "sum"}),
  }
  local values = {["input.weight"] = wanted["in"]}
  for key, tensor in pairs(wanted) do
    local name = key:match "^param/(.*)"
    if name then values["moe." .. name] = tensor end
  end
  model:initialise(values)
  local program = zt.program(model, {precision = "fp64"}):apply(zero.shard{stage = 1, axis = comm.mesh{dp = -1}.dp})
  return zt.trainer(program, {optimizer = optim.sgd{lr = 0}})
end

local TestGolden = {}

for name, options in pairs(CASES) do
  TestGolden["test_" .. name] = function()
    local wanted = tensors_of(options.golden or name)
    local trainer = trainer_of(options, wanted)
    local samples, count = wanted.cot:size(0), wanted.cot:size(1)
    local batch = {tokens = zt.arange(samples * count):to("int64"):view{samples, count}, cot = wanted.cot}
    if options.router and options.router.bias then trainer:step(batch) end -- the bias of the golden file is that after one step
    assert_close(trainer:infer(batch).h, wanted.out, "output")
    local result = trainer:step(batch)
    lu.assertAlmostEquals(result.loss, wanted.loss:item(), BOUND * math.abs(wanted.loss:item()))
    lu.assertEquals(result.stats["moe.router.load"], wanted.load:tolist())
    lu.assertEquals(result.stats["moe.router.dropped"], wanted.dropped:item())
    assert_close(trainer:gradient "input.weight", wanted.grad_in, "gradient of the input")
    local compared = 1
    for key, tensor in pairs(wanted) do
      local parameter = key:match "^grad/(.*)"
      if parameter then
        compared = compared + 1
        assert_close(trainer:gradient("moe." .. parameter), tensor, parameter)
      end
    end
    lu.assertEquals(compared, #trainer:parameters())
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestGolden", TestGolden}})
