-- Tests what is seen of a mixture of experts: the metrics of a step, the planned and the counted bytes, logits that are not
-- finite, and wrong input. Runs on one rank and on two.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local moe, nn, optim = require "zt.moe", require "zt.nn", require "zt.optim"
local command = require "support.command" "run --threads 2"
local small = require "support.small_mixture"

local ranks = zt.world.size
local ROUTES = small.samples * small.seq * 2

local function of_router(result, name) return result.stats["blocks.1.router." .. name] end

local TestMetrics = {}

function TestMetrics:test_numbers_that_follow_from_the_load()
  local routes = zt.arange(2):expand{small.samples, small.seq, 2}:contiguous():to "int64"
  local trainer = small.trainer(small.model{router = {routes = "routes"}})
  local result = trainer:step(small.batch(0, {routes = routes}))
  lu.assertEquals(of_router(result, "load"), {ROUTES / 2, ROUTES / 2, 0, 0})
  lu.assertEquals(of_router(result, "load_max_over_mean"), 2)
  lu.assertEquals(of_router(result, "load_cv"), 1)
  lu.assertEquals(of_router(result, "idle_experts"), 2)
  lu.assertEquals(of_router(result, "tokens"), ROUTES / 2)
  lu.assertEquals(of_router(result, "dropped_share"), 0)
  lu.assertNil(of_router(result, "bias_norm"))
end

-- With a weight of zeros, all experts are equally likely.
function TestMetrics:test_entropy_logits_and_drops()
  local trainer = small.trainer(small.model{router = {std = 0, capacity = {train = 0.5, min = 1}}})
  local result = trainer:step(small.batch())
  lu.assertAlmostEquals(of_router(result, "entropy"), math.log(small.experts), 1e-12)
  lu.assertEquals(of_router(result, "logit_rms"), 0)
  -- All tokens choose the experts 0 and 1, which have room for 2 tokens of each sample.
  lu.assertEquals(of_router(result, "dropped"), ROUTES - small.samples * 2 * 2)
  lu.assertEquals(of_router(result, "dropped_share"), 1 - small.samples * 4 / ROUTES)
end

-- The first step moves the bias of each expert by 0.125 up or down.
function TestMetrics:test_bias()
  local router = {score = "sigmoid", normalise = "selected", bias = true, bias_rate = 0.125, std = 0}
  local trainer = small.trainer(small.model{router = router}, {program = {precision = "fp64", micro_batches = 2 / ranks}})
  lu.assertEquals(of_router(trainer:step(small.batch()), "bias_norm"), 0)
  lu.assertAlmostEquals(of_router(trainer:step(small.batch()), "bias_norm"), 0.125 * 2, 1e-12)
end

function TestMetrics:test_an_evaluation_has_them_too()
  local result = small.trainer(small.model()):evaluate(small.batch())
  lu.assertTrue(of_router(result, "entropy") > 0)
  lu.assertEquals(result.stats["blocks.1.dispatch.bytes_sent"] ~= nil, ranks > 1)
end

local TestBytes = {}

-- Runs a step with balanced routes. Returns the bytes that all ranks sent, and those that the plan has.
local function bytes(options, passes)
  options.router = options.router or {routes = "balanced"}
  local program = {precision = "fp32", micro_batches = 2 / ranks}
  local trainer = small.trainer(small.model(options), {passes = passes, program = program})
  local planned = trainer:plan(small.batch())
  local stats, sent = trainer:step(small.batch()).stats, planned[1].sent
  local prefix = options.dispatcher and "gather_" or ""
  lu.assertEquals(#planned, 1)
  local counted = {stats["blocks.1.dispatch.bytes_sent"], stats["blocks.1.combine.bytes_sent"]}
  if ranks > 1 then lu.assertTrue(stats["blocks.1.dispatch.seconds"] > 0 and stats["blocks.1.combine.seconds"] > 0) end
  return counted, {sent[prefix .. "dispatch"], sent[prefix .. "combine"]}
end

function TestBytes:test_planned_bytes_are_those_counted()
  if ranks == 1 then
    lu.assertEquals({bytes{}}, {{}, {}})
    return
  end
  local function check(wanted, options, passes)
    local counted, planned = bytes(options, passes)
    lu.assertEquals(counted, {ranks * planned[1], ranks * planned[2]})
    lu.assertEquals(planned, wanted)
  end
  -- Half of a rank's rows go to the other rank: 2 samples x 8 tokens x 2 routes / 2 rows of 16 columns.
  local way = 2 * small.seq * small.hidden * 4
  check({2 * way, 2 * way}, {})
  check({way, way}, {transport = "bf16"})
  check({2 * way, 2 * way}, {}, {zt.recompute()}) -- exchanges are not repeated
  -- The rows of both ranks are gathered, or summed; and the routes, the weights and their gradients.
  local tokens = 2 * small.seq
  check({2 * way + tokens * 2 * 8, 2 * way + 2 * tokens * 2 * 4}, {dispatcher = "all_gather"})
  -- Room for 6 rows per sample and expert.
  local padded = 2 * 6 * small.experts / 2 * small.hidden * 4
  check({2 * padded, 2 * padded}, {router = {routes = "balanced", capacity = {train = 1.5, min = 1, pad = true}}})
end

function TestBytes:test_plans_say_what_they_assume()
  local function assumed(options) return table.concat(small.trainer(small.model(options)):plan(small.batch())[1].assumptions) end
  local without = assumed{planned_rows = 1.25}
  if ranks == 1 then lu.assertEquals(without, "")
  else lu.assertStrContains(without, "dispatch: the experts of a rank get 1.25 times the rows of balanced routing") end
  lu.assertStrContains(assumed{router = {capacity = {train = 1.5}}}, "experts get as many rows as the capacity allows")
end

function TestBytes:test_a_capacity_bounds_the_planned_memory()
  local function planned(options)
    options.ffn = 512 -- so wide that the experts, and not attention, hold the most
    return small.trainer(small.model(options)):plan(small.batch())[1].memory.activations
  end
  local tight, wide = planned{router = {capacity = {train = 1, min = 1}}}, planned{router = {capacity = {train = 3, min = 1}}}
  if ranks == 1 then lu.assertEquals(tight, wide) -- one rank has no more rows than its own routes
  else lu.assertTrue(tight < wide) end
  lu.assertTrue(planned{planned_rows = 2} > planned{planned_rows = 1})
end

-- Index tensors of the router and small temporaries are not planned.
function TestBytes:test_planned_memory_is_that_measured()
  for _, options in ipairs{{}, {shared = {ffn = 64}}} do
    local given = {experts = 4, hidden = 128, ffn = 64, axis = small.mesh.ep, router = {routes = "balanced"}}
    for key, value in pairs(options) do given[key] = value end
    local model = nn.gpt{layers = 2, hidden = 128, heads = 2, vocab = small.vocab, seq = 64, seed = 1,
                         mlp = function(i) return i == 1 and moe.layers(given) or nil end}
    local trainer = small.trainer(model, {program = {precision = "fp32"}})
    local tokens = zt.arange(2 * 64):remainder(small.vocab):view({2, 64}):to "int64"
    trainer:step{tokens = tokens, labels = tokens}
    local activations = trainer:memory().activations
    lu.assertTrue(activations.predicted <= activations.measured)
    lu.assertTrue(activations.predicted > 0.99 * activations.measured,
                  ("%d planned, %d measured"):format(activations.predicted, activations.measured))
  end
end

local TestNonfinite = {}

-- A layer that multiplies the values by the batch field `factor`.
local function scaled()
  return {"scaled", nn.layer{
    forward = function(_, h, ctx) return h * ctx:batch("factor") end,
  }}
end

-- Returns factors [samples, 1, 1] of 1, with `factor` in the last sample.
local function factors(factor)
  local all = zt.ones({small.samples, 1, 1}, {dtype = "float32"})
  all:narrow(0, small.samples - 1, 1):fill_(factor)
  return {factor = all}
end

local function poisoned(options, more)
  local model = small.model(options, scaled())
  local all = {program = {precision = "fp32", micro_batches = 2 / ranks}}
  for key, value in pairs(more or {}) do all[key] = value end
  return small.trainer(model, all)
end

-- The last sample is the second one of the last rank's last micro-batch.
function TestNonfinite:test_a_router_names_layer_sample_and_rank()
  local trainer = poisoned{}
  local weight = trainer:parameter "blocks.1.router.weight"
  trainer:set_parameter("blocks.1.router.weight", weight:fill_(1e10))
  local place = ("the logits of layer 'blocks.1.router' in sample 1 on rank %d in micro-batch %d"):format(ranks - 1, 2 - ranks)
  lu.assertErrorMsgContains("the first thing that is not finite is " .. place, trainer.step, trainer,
                            small.batch(0, factors(1e30)))
end

-- Sigmoid scores of infinite logits are finite, and so is the loss.
function TestNonfinite:test_infinite_logits_with_a_finite_loss()
  local trainer = poisoned{router = {score = "sigmoid"}}
  local weight = trainer:parameter "blocks.1.router.weight"
  trainer:set_parameter("blocks.1.router.weight", weight:fill_(3e38))
  lu.assertErrorMsgContains("the logits of layer 'blocks.1.router' in sample 0", trainer.step, trainer,
                            small.batch(0, factors(1)))
end

-- A layer before the router is named if its output is the first that is not finite.
function TestNonfinite:test_an_earlier_layer_is_named()
  local trainer = poisoned{}
  lu.assertErrorMsgContains("the output 'h' of layer 'blocks.1.scaled' in sample 1", trainer.step, trainer,
                            small.batch(0, factors(0 / 0)))
end

function TestNonfinite:test_a_step_may_be_skipped()
  for _, options in ipairs{{}, {router = {capacity = {train = 1}, groups = 2, top_groups = 1}}, {dispatcher = "all_gather"}} do
    local trainer = poisoned(options, {trainer = {on_nonfinite = "skip"}})
    local before = trainer:parameter "blocks.1.router.weight"
    local result = trainer:step(small.batch(0, factors(0 / 0)))
    lu.assertTrue(result.skipped)
    lu.assertTrue(trainer:parameter "blocks.1.router.weight":equal(before))
    lu.assertFalse(trainer:step(small.batch(0, factors(1))).skipped)
  end
end

-- The step is skipped as one whose loss is not finite, with the place. It counts as an overflow all the same.
function TestNonfinite:test_a_loss_scale_skips_the_step()
  local trainer = poisoned({}, {program = {precision = "fp16", micro_batches = 2 / ranks}})
  for _, scale in ipairs{65536, 32768} do -- the second of two overflows halves it
    lu.assertTrue(trainer:step(small.batch(0, factors(0 / 0))).skipped)
    lu.assertEquals(trainer.loss_scale, scale)
  end
end

local TestGroups = {}

-- After a step of SGD, a parameter has moved by its group's rate times its gradient.
function TestGroups:test_experts_have_a_rate_and_a_decay_of_their_own()
  local optimizer = optim.sgd{lr = 0.5, groups = {{match = "\\.experts\\.", lr_scale = 0.25, weight_decay = 0.125}}}
  local trainer = small.trainer(small.model(), {optimizer = optimizer})
  local before = {}
  for _, name in ipairs(trainer:parameters()) do before[name] = trainer:master(name) end
  trainer:step(small.batch())
  for _, name in ipairs(trainer:parameters()) do
    local gradient, old = trainer:gradient(name), before[name]
    local wanted = name:find "%.experts%." and old - (gradient + old * 0.125) * 0.125 or old - gradient * 0.5
    lu.assertTrue((trainer:master(name) - wanted):abs():max():item() < 1e-15, name)
  end
end

local TestMistakes = {}

function TestMistakes:test_recorded_routes()
  local function fails(text, routes)
    local trainer = small.trainer(small.model{router = {routes = "routes"}})
    lu.assertErrorMsgContains(text, trainer.step, trainer, small.batch(0, {routes = routes}))
  end
  local function whole(columns, value, dtype)
    return zt.full({small.samples, small.seq, columns}, value, {dtype = dtype or "int64"})
  end
  local own = small.samples / ranks
  fails(("the recorded routes 'routes' must be int64 [%d, 8, 2], got"):format(own), whole(3, 0))
  fails("must be int64", whole(2, 0, "float32"))
  fails("name experts outside of 0 to 3", whole(2, 4))
  fails("name experts outside of 0 to 3", whole(2, -2))
end

function TestMistakes:test_options()
  local function fails(text, options)
    lu.assertErrorMsgContains(text, small.model, options)
  end
  fails("5 experts per token, but there are only 4", {top_k = 5})
  fails("capacity.train must be above 0", {router = {capacity = {train = 0}}})
  fails("capacity.min must be at least 1", {router = {capacity = {min = 0}}})
  lu.assertErrorMsgContains("an expert takes one value", moe.experts, {experts = 4, expert = nn.residual{}})
  if ranks == 2 then fails("3 experts cannot be divided over the 2 ranks of axis 'ep' evenly", {experts = 3, top_k = 1}) end
end

-- The routes of rank 1 have another shape than those of rank 0, which waits for rank 1 to send its tokens.
local SCRIPT = [[
package.path = "tests/lua/?.lua;" .. package.path
local zt = require "zt"
local small = require "support.small_mixture"
local trainer = small.trainer(small.model{router = {routes = "routes"}})
local routes = zt.zeros({small.samples, small.seq, 2 + zt.world.rank}, {dtype = "int64"})
trainer:step(small.batch(0, {routes = routes}))
]]

function TestMistakes:test_a_rank_that_fails_ends_the_others()
  if ranks > 1 then return end
  local path = os.tmpname()
  zt.write_file(path, SCRIPT)
  local output, status = command(path)
  os.remove(path)
  lu.assertEquals(status, 1)
  lu.assertStrContains(output, "rank 1 failed")
  lu.assertStrContains(output, "the recorded routes 'routes' must be int64 [2, 8, 2], got int64[2, 8, 3]")
end

-- Every rank says that the models differ, before any of them runs.
function TestMistakes:test_ranks_with_other_models()
  if ranks == 1 then return end
  local function model_of(own) return small.model(zt.world.rank == 1 and own or {}) end
  lu.assertErrorMsgContains("'shared' of layer 'blocks.1.combine' is false on rank 0 and true on rank 1", small.trainer,
                            model_of{shared = {ffn = 8}})
  lu.assertErrorMsgContains("'experts' of layer 'blocks.1.router' is 4 on rank 0 and 8 on rank 1", small.trainer,
                            model_of{experts = 8})
  lu.assertErrorMsgContains("'top_k' of layer 'blocks.1.router' is 2 on rank 0 and 1 on rank 1", small.trainer,
                            model_of{top_k = 1})
  lu.assertErrorMsgContains("of layer 'blocks.1.router' is not given on rank 0 and ", small.trainer,
                            model_of{router = {capacity = {train = 2}}})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{
  {"TestMetrics", TestMetrics}, {"TestBytes", TestBytes}, {"TestNonfinite", TestNonfinite}, {"TestGroups", TestGroups},
  {"TestMistakes", TestMistakes},
})
