-- Tests a script's own choice of experts, moe.layers{select = function(scores) ... end}. Runs on one rank and on two.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, moe, nn = require "zt.comm", require "zt.moe", require "zt.nn"
local optim, zero = require "zt.optim", require "zt.zero"
local small = require "support.small_mixture"

local ranks = zt.world.size
local own = small.samples / ranks -- samples of a rank

local function largest(scores)
  local _, experts = scores:topk(2)
  return experts
end

-- The experts 0 and 3, or 1 and 2, in turn.
local function in_turn(scores)
  local first = zt.arange(scores:size(0) * scores:size(1)):remainder(2):view{scores:size(0), scores:size(1), 1}:to "int64"
  return zt.cat({first, 3 - first}, 2)
end

-- Returns the results of three steps.
local function trained(options, more)
  local trainer, results = small.trainer(small.model(options), more), {}
  for step = 0, 2 do results[step + 1] = trainer:step(small.batch(step)) end
  return results, trainer
end

local function losses(results)
  local out = {}
  for i, result in ipairs(results) do out[i] = {result.loss, result.grad_norm, result.stats["blocks.1.router.load"]} end
  return out
end

local TestSelect = {}

function TestSelect:test_the_largest_scores_are_the_default()
  for _, more in ipairs{
    {}, {dispatcher = "all_gather"}, {router = {score = "sigmoid", normalise = "selected", losses = {balance = 0.1, z = 0.01}}},
    {router = {capacity = {train = 0.5, min = 1}}},
  } do
    local wanted = losses((trained(more)))
    more.select = largest
    lu.assertEquals(losses((trained(more))), wanted)
  end
end

-- The gradient flows through the scores of the chosen experts, as it does for recorded ones.
function TestSelect:test_gradients_are_those_of_recorded_routes()
  local routes = in_turn(zt.zeros{small.samples, small.seq, 4})
  local recorded = small.trainer(small.model{router = {routes = "routes"}})
  local chosen = small.trainer(small.model{select = in_turn})
  local a, b = recorded:step(small.batch(0, {routes = routes})), chosen:step(small.batch(0))
  lu.assertEquals(a.loss, b.loss)
  local gradient = chosen:gradient "blocks.1.router.weight"
  lu.assertTrue(gradient:abs():max():item() > 0)
  lu.assertTrue(gradient:equal(recorded:gradient "blocks.1.router.weight"))
  lu.assertEquals(b.stats["blocks.1.router.load"], {16, 16, 16, 16})
end

-- A token without experts keeps its residual stream. No weight depends on its scores.
function TestSelect:test_routes_may_be_empty()
  local function none(scores) return zt.full({scores:size(0), scores:size(1), 2}, -1, {dtype = "int64"}) end
  local results, trainer = trained{select = none}
  lu.assertEquals(results[1].stats["blocks.1.router.load"], {0, 0, 0, 0})
  lu.assertEquals(trainer:gradient "blocks.1.router.weight":abs():max():item(), 0)
  local function half(scores)
    local experts = largest(scores)
    experts:narrow(2, 1, 1):fill_(-1)
    return experts
  end
  lu.assertEquals(losses((trained{select = half})), losses((trained{select = half, dispatcher = "all_gather"})))
end

function TestSelect:test_it_gets_a_copy_of_the_scores()
  local seen
  local function spoils(scores)
    seen = {scores:size(0), scores:size(1), scores:size(2), scores:dtype()}
    local experts = largest(scores)
    scores:zero_()
    return experts
  end
  lu.assertEquals(losses((trained{select = spoils})), losses((trained{})))
  lu.assertEquals(seen, {own, small.seq, small.experts, "float64"})
end

-- The function would choose other experts in the recompute.
function TestSelect:test_a_recompute_uses_the_same_experts()
  local function counting()
    local calls = 0
    return function(scores)
      calls = calls + 1
      return calls % 2 == 0 and largest(scores) or in_turn(scores)
    end, function() return calls end
  end
  local plain, calls = counting()
  local wanted = losses((trained{select = plain}))
  lu.assertEquals(calls(), 3)
  local repeated, more_calls = counting()
  lu.assertEquals(losses((trained({select = repeated}, {passes = {zt.recompute()}}))), wanted)
  lu.assertEquals(more_calls(), 3)
end

function TestSelect:test_evaluation_inference_generation_and_plans()
  local calls = 0
  local function counted(scores)
    calls = calls + 1
    return largest(scores)
  end
  local chosen, plain = small.trainer(small.model{select = counted}), small.trainer(small.model())
  local batch = small.batch(0)
  chosen:plan(batch)
  lu.assertEquals(calls, 0)
  lu.assertEquals(chosen:evaluate(batch).loss, plain:evaluate(batch).loss)
  lu.assertEquals(calls, 1)
  local of_chosen, of_plain = chosen:infer{tokens = batch.tokens}, plain:infer{tokens = batch.tokens}
  for name, value in pairs(of_plain) do lu.assertTrue(of_chosen[name]:equal(value)) end
  local options = {seq = small.seq, max_tokens = 4, seed = 1}
  lu.assertEquals(zt.generate(chosen, {1, 2, 3}, options), zt.generate(plain, {1, 2, 3}, options))
end

-- The experts of a token do not depend on the layout.
function TestSelect:test_layouts()
  local function trained_on(mesh)
    local model = nn.gpt{layers = 1, hidden = 16, heads = 2, vocab = small.vocab, seq = small.seq, seed = 1, mlp = function()
      return moe.layers{experts = 4, hidden = 16, ffn = 8, axis = mesh.ep, select = in_turn}
    end}
    local program = zt.program(model, {precision = "fp64"}):apply(zero.shard{stage = 1, axis = mesh:join{"dp", "ep"}})
    local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 1e-2}})
    trainer:step(small.batch(0))
    return trainer:step(small.batch(1)).loss
  end
  lu.assertAlmostEquals(trained_on(comm.mesh{dp = 1, ep = ranks}), trained_on(comm.mesh{dp = ranks, ep = 1}), 1e-12)
end

local TestWrong = {}

local function refused(text, select)
  local trainer = small.trainer(small.model{select = select})
  local is_done, message = pcall(trainer.step, trainer, small.batch(0))
  lu.assertFalse(is_done)
  lu.assertStrContains(message, text)
  lu.assertStrMatches(message, ".*in the function `select` at [^ ]*moe_select_test%.lua:%d+.*")
end

function TestWrong:test_what_it_returns()
  local shape = ("must be int64 [%d, 8, 2], got "):format(own)
  refused("it must return a tensor of experts, got nil", function() end)
  refused("it must return a tensor of experts, got number", function() return 1 end)
  refused("it must return one tensor, got more values: `local _, experts = scores:topk(2)`", function(s) return s:topk(2) end)
  refused("the experts that it returns " .. shape .. "float64", function(s) return (s:topk(2)) end)
  refused("the experts that it returns " .. shape .. "int32", function(s) return largest(s):to "int32" end)
  refused("the experts that it returns " .. shape .. "int64", function(s) return largest(s):flatten(0, 1) end)
  refused("the experts that it returns " .. shape, function(s) return (select(2, s:topk(3))) end)
  refused("the experts that it returns name experts outside of 0 to 3", function(s) return largest(s) + 3 end)
  refused("the experts that it returns name experts outside of 0 to 3", function(s) return largest(s) - 3 end)
end

function TestWrong:test_an_expert_twice()
  refused("must differ for each token, but token 0 of sample 0 has expert 1 twice: give -1 for an empty route",
          function(s) return zt.ones({s:size(0), s:size(1), 2}, {dtype = "int64"}) end)
  local function last_one(s)
    local experts = largest(s)
    experts:narrow(0, s:size(0) - 1, 1):narrow(1, s:size(1) - 1, 1):fill_(3)
    return experts
  end
  refused(("token 7 of sample %d has expert 3 twice"):format(own - 1), last_one)
end

function TestWrong:test_errors_of_the_function()
  refused("my own mistake", function() error "my own mistake" end)
  refused("generator", function(s) return largest(s + zt.rand_like(s)) end)
end

function TestWrong:test_options()
  local function fails(text, options) lu.assertErrorMsgContains(text, small.model, options) end
  fails("moe.layers.select must be a function, got a string", {select = "top_k"})
  fails("moe.router.select must be a function(scores), got a table", {router = {select = {}}})
  fails("moe.router.routes has an effect only without select", {select = largest, router = {routes = "balanced"}})
  fails("moe.router.bias has an effect only without routes and select", {select = largest, router = {bias = true}})
  fails("moe.router.groups has an effect only without routes and select", {select = largest, router = {groups = 2}})
  fails("moe.router.noise has an effect only where experts are left to draw", {select = largest, router = {noise = "gumbel"}})
  fails("bias, groups, routes, select, softmax_after and gumbel noise are for tokens that choose",
        {select = largest, router = {choice = "expert", capacity = {}}})
  fails("moe.layers: select is ", {select = largest, router = {select = in_turn}})
  fails("5 experts per token, but there are only 4", {select = largest, top_k = 5})
  lu.assertNotNil(small.model{router = {select = largest}})
end

local TestNonfinite = {}

-- The function would fail, but the step has failed before: the message names the logits, and a step may be skipped.
function TestNonfinite:test_scores()
  local function fails_for_nan(scores)
    assert(scores:isfinite():all():item(), "the function was called")
    return largest(scores)
  end
  local scaled = {"scaled", nn.layer{forward = function(_, h, ctx) return h * ctx:batch "factor" end}}
  local function factors(factor)
    local all = zt.ones({small.samples, 1, 1}, {dtype = "float64"})
    all:narrow(0, small.samples - 1, 1):fill_(factor)
    return {factor = all}
  end
  local function trainer_of(on_nonfinite)
    return small.trainer(small.model({select = fails_for_nan}, scaled), {trainer = {on_nonfinite = on_nonfinite}})
  end
  local trainer = trainer_of "error"
  lu.assertErrorMsgContains("the first thing that is not finite is ", trainer.step, trainer, small.batch(0, factors(0 / 0)))
  trainer = trainer_of "error"
  trainer:set_parameter("blocks.1.router.weight", trainer:parameter "blocks.1.router.weight":fill_(1e300))
  lu.assertErrorMsgContains("the logits of layer 'blocks.1.router' in sample", trainer.step, trainer,
                            small.batch(0, factors(1e30)))
  trainer = trainer_of "skip"
  lu.assertTrue(trainer:step(small.batch(0, factors(0 / 0))).skipped)
  lu.assertFalse(trainer:step(small.batch(0, factors(1))).skipped)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{
  {"TestSelect", TestSelect}, {"TestWrong", TestWrong}, {"TestNonfinite", TestNonfinite},
})
