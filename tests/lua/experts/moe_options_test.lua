-- Tests options of mixtures that contradict each other or have no effect. Runs on one rank and on two.
local lu = require "luaunit"
local zt = require "zt"
local comm, moe, nn = require "zt.comm", require "zt.moe", require "zt.nn"
local optim, zero = require "zt.optim", require "zt.zero"

local HIDDEN, VOCAB, SEQ = 16, 29, 8
local ranks = zt.world.size

local function merged(base, more)
  local out = {}
  for key, value in pairs(base) do out[key] = value end
  for key, value in pairs(more) do out[key] = value end
  return out
end

local function layers(options) return moe.layers(merged({experts = 4, hidden = HIDDEN, ffn = 8}, options)) end
local function router(options) return moe.router(merged({experts = 4, hidden = HIDDEN}, options)) end
local function fails(text, make, options) lu.assertErrorMsgContains(text, make, options) end

local TestOptions = {}

function TestOptions:test_the_table_router_contradicts_the_layers()
  fails("moe.layers: experts is 4, but router.experts is 2: give experts once, beside router", layers, {router = {experts = 2}})
  fails("moe.layers: select is a function, but router.select is another one", layers,
        {select = function() end, router = {select = function() end}})
  fails("moe.layers: top_k is 2, but router.top_k is 3", layers, {router = {top_k = 3}})
  fails("moe.layers: hidden is 16, but router.hidden is 8", layers, {router = {hidden = 8}})
  lu.assertEquals(#layers{top_k = 3, router = {top_k = 3, experts = 4, hidden = HIDDEN, std = 0.5}}, 4)
end

function TestOptions:test_options_of_layers_without_effect()
  local expert = nn.mlp{hidden = HIDDEN, ffn = 8}
  local function own(more) return moe.layers(merged({experts = 4, hidden = HIDDEN, expert = expert}, more)) end
  fails("moe.layers.residual: unknown option 'gate'", layers, {residual = {ffn = 8, gate = true}})
  fails("moe.layers.shared.ffn has an effect only without layer: change that, or leave ffn out", layers,
        {shared = {ffn = 8, layer = expert}})
  fails("moe.layers.ffn has an effect only without expert", own, {ffn = 8})
  fails("moe.layers.activation has an effect only on MLPs", own, {activation = "relu"})
  fails("moe.layers.bias has an effect only on MLPs", own, {bias = false, shared = {layer = expert}})
  fails("moe.layers.grouped_gemm has an effect only without expert", own, {grouped_gemm = true})
  fails("moe.layers.planned_rows has an effect only without router.capacity", layers,
        {planned_rows = 2, router = {capacity = {}}})
  lu.assertEquals(#own{activation = "relu", bias = false, shared = {ffn = 8}}, 5)
  fails("moe.dispatch.planned_rows has an effect only without capacity", moe.dispatch,
        {experts = 4, hidden = HIDDEN, planned_rows = 2, capacity = {}})
end

function TestOptions:test_options_of_the_router_without_effect()
  local function refused(key, when, options)
    fails(("%s has an effect only %s: change that, or leave %s out"):format("moe.router." .. key, when, key:match "[^.]+$"),
          router, options)
  end
  refused("jitter", 'with noise = "jitter"', {jitter = 0.1})
  refused("jitter", 'with noise = "jitter"', {jitter = 0.1, noise = "gumbel"})
  refused("bias_rate", "with bias = true", {bias_rate = 0.1})
  refused("losses.per", "with balance above 0", {losses = {per = "micro_batch"}})
  refused("losses.of", "with balance above 0", {losses = {z = 1, of = "first"}})
  refused("batch_axes", 'with losses = {balance = weight, per = "batch"}', {batch_axes = {"dp"}, losses = {balance = 1}})
  refused("capacity.places", 'with keep = "place"', {capacity = {places = "by_choice"}})
  refused("normalise", "without softmax_after, whose weights have the sum 1", {softmax_after = true, normalise = "selected"})
  refused("draw_always", 'with noise = "gumbel" or "gumbel_second"', {draw_always = true})
  local left = "where experts are left to draw: without routes and select, and for gumbel_second with top_k above 1"
  refused("noise", left, {noise = "gumbel", routes = "balanced"})
  refused("noise", left, {noise = "gumbel_second", top_k = 1})
  for _, key in ipairs{"groups", "top_groups"} do refused(key, "without routes and select", {[key] = 2, routes = "balanced"}) end
  refused("bias", "without routes and select", {bias = true, routes = "field"})
  router{noise = "jitter", jitter = 0.1, routes = "balanced"} -- changes the weights
  router{noise = "jitter_gumbel_second", jitter = 0.1}
end

function TestOptions:test_blocks_without_experts()
  local options = {layers = 2, hidden = HIDDEN, heads = 2, vocab = VOCAB, seq = SEQ}
  fails("moe.gpt: moe.blocks names no block: leave moe out", moe.gpt,
        merged(options, {moe = {experts = 4, ffn = 8, blocks = {}}}))
  fails("moe.gpt: moe.blocks names block 2, but the model's 2 blocks are 0 to 1", moe.gpt,
        merged(options, {moe = {experts = 4, ffn = 8, blocks = {2}}}))
  fails("moe.gpt: moe.blocks must be a list of blocks, from 0, got 3", moe.gpt,
        merged(options, {moe = {experts = 4, ffn = 8, blocks = 3}}))
  local expert = nn.mlp{hidden = HIDDEN, ffn = 8}
  lu.assertNotNil(moe.gpt(merged(options, {moe = {experts = 4, expert = expert}})))
end

-- Messages name the user's options, not the function of moe.gpt that makes the layers.
function TestOptions:test_mistakes_in_moe()
  local options = {layers = 2, hidden = HIDDEN, heads = 2, vocab = VOCAB, seq = SEQ}
  local function refused(message, more, of_run)
    local is_done, text = pcall(function() return moe.gpt(merged(options, more), of_run) end)
    lu.assertFalse(is_done)
    lu.assertStrMatches(text, "[^:]*moe_options_test%.lua:%d+: .*")
    lu.assertStrContains(text, message)
    for _, part in ipairs {"'mlp'", "gpt.lua", "traceback"} do lu.assertNotStrContains(text, part) end
  end
  refused("moe.gpt: the option moe, for block 0: moe.layers: unknown option 'expert_s': did you mean 'experts'?",
          {moe = {expert_s = 4, ffn = 8}})
  refused("moe.gpt: the option moe, for block 1: moe.layers: give ffn", {moe = {experts = 4, blocks = {1}}})
  refused("moe.gpt.of_run.axis must be an Axis, of a mesh, such as mesh.dp, got a string", {moe = {experts = 4, ffn = 8}},
          {axis = "ep"})
  refused("moe.gpt.of_run must be a table of options, got an Axis", {moe = {experts = 4, ffn = 8}}, comm.mesh{dp = -1}.dp)
  refused("nn.gpt: unknown option 'layrs': did you mean 'layers'?", {layrs = 3, moe = {experts = 4, ffn = 8}})
end

-- The only weight of a token is 1, whatever the logits are.
function TestOptions:test_a_router_that_the_task_cannot_train()
  for _, more in ipairs{{normalise = "selected"}, {normalise = "kept"}, {softmax_after = true}} do
    local options = merged({top_k = 1}, more)
    fails("makes every weight 1, so the task's loss gives the router no gradient", router, options)
    router(merged(options, {losses = {balance = 0.01}}))
    router(merged(options, {losses = {z = 0.01}}))
    router(merged(options, {top_k = 2}))
    router(merged(options, {experts = 1}))
  end
  router{top_k = 1}
  fails("with top_k = 1, normalise = \"selected\" makes", router, {top_k = 1, normalise = "selected"})
end

-- All ranks whose tokens are others must be in batch_axes.
function TestOptions:test_batch_axes()
  local losses = {}
  for _, layout in ipairs{{dp = 1, ep = ranks}, {dp = ranks, ep = 1}} do
    local mesh = comm.mesh{order = {"dp", "ep"}, dp = layout.dp, ep = layout.ep}
    local function trained(batch_axes)
      local model = nn.gpt{layers = 1, hidden = HIDDEN, heads = 2, vocab = VOCAB, seq = SEQ, seed = 1, mlp = function()
        return layers{axis = mesh.ep, router = {losses = {balance = 0.1, per = "batch"}, batch_axes = batch_axes}}
      end}
      local program = zt.program(model, {precision = "fp64"}):apply(zero.shard{stage = 1, axis = mesh:join{"dp", "ep"}})
      local tokens = zt.arange(4 * SEQ):remainder(VOCAB):view({4, SEQ}):to "int64"
      local own = tokens:narrow(0, zt.world.rank * 4 / ranks, 4 / ranks):contiguous()
      return zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}}):step{tokens = own, labels = own}.loss
    end
    losses[#losses + 1] = trained{"dp", "ep"}
    lu.assertAlmostEquals(trained{layout.ep > 1 and "ep" or "dp"}, losses[1], 1e-12)
    if ranks > 1 then
      local used = layout.ep > 1 and "ep" or "dp"
      fails(("('blocks.0.router') sums over the batch along '%s', but ranks along '%s' have other samples: give it "
        .. "batch_axes = {\"%s\"}"):format(used == "ep" and "dp" or "ep", used, used), trained, {used == "ep" and "dp" or "ep"})
    end
  end
  lu.assertAlmostEquals(losses[2], losses[1], 1e-12)
end

-- The ranks have samples of other lengths. They learn of it before tokens are sent, and go on.
function TestOptions:test_padding_needs_equally_many_tokens()
  if ranks == 1 then return end
  local mesh = comm.mesh{dp = 1, ep = ranks}
  local model = nn.gpt{layers = 1, hidden = HIDDEN, heads = 2, vocab = VOCAB, seq = SEQ, seed = 1, mlp = function()
    return layers{axis = mesh.ep, router = {capacity = {pad = true, min = 1}}}
  end}
  local program = zt.program(model):apply(zero.shard{stage = 1, axis = mesh:join{"dp", "ep"}})
  local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
  local length = SEQ - 4 * zt.world.rank
  local tokens = zt.zeros({2, length}, {dtype = "int64"})
  lu.assertErrorMsgContains("the ranks 0 and 1 of 'dp+ep' have micro-batches of other shapes: experts with capacity.pad exchange",
    trainer.step, trainer, {tokens = tokens, labels = tokens})
  tokens = zt.zeros({2, SEQ}, {dtype = "int64"})
  lu.assertEquals(trainer:step{tokens = tokens, labels = tokens}.step, 0)
end

-- The grouped GEMM reads rows of matrices at multiples of 16 bytes.
function TestOptions:test_widths_of_a_grouped_gemm()
  local model = nn.sequential{
    {"input", nn.embedding{vocab = VOCAB, hidden = HIDDEN}}, {"moe", layers{ffn = 6, bias = false, grouped_gemm = true}},
    zt.loss(function(out) return out.h:sum() end, {inputs = {"h"}, per = "sample", reduction = "sum"}),
  }
  local trainer = zt.trainer(zt.program(model), {optimizer = optim.sgd{lr = 0.1}})
  lu.assertErrorMsgContains("grouped_gemm takes hidden and ffn that are multiples of 4 in float32, got hidden = 16, ffn = 6: "
    .. "change them, or leave grouped_gemm out", trainer.step, trainer, {tokens = zt.zeros({1, SEQ}, {dtype = "int64"})})
end

-- What a dispatch sends has a meaning for a combine of the same kind only, on one rank, too.
function TestOptions:test_a_dispatch_and_a_combine_of_different_kinds()
  local mesh = comm.mesh{dp = 1, ep = ranks}
  local function model(of_dispatch, of_combine)
    local options = {experts = 4, hidden = HIDDEN, axis = mesh.ep}
    return nn.sequential{
      {"input", nn.embedding{vocab = VOCAB, hidden = HIDDEN}}, {"first", layers{axis = mesh.ep, dispatcher = "all_gather"}},
      {"router", router{}}, {"dispatch", moe.dispatch(merged(options, of_dispatch))},
      {"experts", moe.experts{experts = 4, expert = nn.mlp{hidden = HIDDEN, ffn = 8}, axis = mesh.ep}},
      {"combine", moe.combine(merged(options, of_combine))},
    }
  end
  local function refused(text, of_dispatch, of_combine)
    lu.assertErrorMsgContains("combine): it has " .. text .. ": give moe.dispatch and moe.combine the same", model,
                              of_dispatch, of_combine)
  end
  local sent = " = %s, and the dispatch that sent the tokens has %s"
  refused("dispatcher" .. sent:format("'all_to_all'", "'all_gather'"), {dispatcher = "all_gather"}, {})
  refused("dispatcher" .. sent:format("'all_gather'", "'all_to_all'"), {}, {dispatcher = "all_gather"})
  local function axis(name, size) return ("'%s' of %d rank%s"):format(name, size, size == 1 and "" or "s") end
  refused("axis" .. sent:format(axis("dp", mesh.dp.size), axis("ep", mesh.ep.size)), {}, {axis = mesh.dp})
  refused("experts" .. sent:format(8, 4), {}, {experts = 8})
  refused("hidden" .. sent:format(8, HIDDEN), {}, {hidden = 8})
  for _, options in ipairs{{}, {dispatcher = "all_gather"}} do lu.assertNotNil(model(options, options)) end
end

-- Without the axis of the experts, the gradients of all other layers would not be summed.
function TestOptions:test_the_axes_of_zero_shard()
  if ranks == 1 then return end
  local function trainer_on(mesh, pass)
    local model = nn.gpt{layers = 1, hidden = HIDDEN, heads = 2, vocab = VOCAB, seq = SEQ, seed = 1, mlp = function()
      return layers{axis = mesh.ep}
    end}
    local program = zt.program(model)
    return zt.trainer(pass and program:apply(pass) or program, {optimizer = optim.sgd{lr = 0.1}})
  end
  local mesh = comm.mesh{dp = 1, ep = ranks}
  fails('apply zero.shard over all axes whose ranks have other samples, such as axis = mesh:join{"dp", "ep"}', trainer_on, mesh)
  local ok, message = pcall(trainer_on, mesh, zero.shard{stage = 1, axis = mesh.dp})
  lu.assertFalse(ok)
  lu.assertStrContains(tostring(message), "or give zero.shard all axes with other data, axis = mesh")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestOptions", TestOptions}})
