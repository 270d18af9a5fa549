-- Tests options of experts and routers beside the axes tp and cp: noise, branches, layers within layers, what is refused. Also
-- runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local one_rank = require "support.one_rank"
local router_alone = require "support.router_alone"
local comm, moe, nn = require "zt.comm", require "zt.moe", require "zt.nn"
local optim, zero = require "zt.optim", require "zt.zero"

local ranks = zt.world.size
local tokens_mesh, tensor_mesh = comm.mesh{dp = 1, cp = -1}, comm.mesh{dp = 1, ep = 1, tp = -1}
local SAMPLES, TOKENS, VOCAB, HIDDEN, EXPERTS = 2, 11, 17, 8, 4

local function fails(text, ...) lu.assertErrorMsgContains(text, ...) end

local function merged(...)
  local all = {}
  for _, options in ipairs{...} do
    for key, value in pairs(options) do all[key] = value end
  end
  return all
end

local function batch(step)
  local tokens = zt.randint(VOCAB, {SAMPLES, TOKENS}, {generator = zt.generator(step), dtype = "int64"})
  return {tokens = tokens, labels = (tokens + 1):remainder(VOCAB)}
end

-- Returns a model of these layers, between an embedding and lm_loss.
local function between(layers)
  table.insert(layers, 1, {"embedding", nn.embedding{vocab = VOCAB, hidden = HIDDEN, std = 0.5}})
  layers[#layers + 1] = {"head", nn.lm_loss{vocab = VOCAB, hidden = HIDDEN}}
  return nn.sequential(layers)
end

-- Returns a trainer over the axes of a mesh, or of one rank.
local function trainer_of(model, mesh)
  local program = zt.program(model, {precision = "fp64"})
  if mesh then program = program:apply(zero.shard{axis = mesh.dp, stage = 1}) end
  return zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, separate = not mesh})
end

local function mixture(options) return moe.layers(merged({experts = EXPERTS, hidden = HIDDEN, ffn = 6}, options)) end

local TestNoise = {}

-- All that a router draws is what one rank draws for the same tokens.
function TestNoise:test_is_that_of_one_rank()
  local logits = zt.randn({SAMPLES, TOKENS, EXPERTS}, {generator = zt.generator(4), dtype = "float64"})
  for _, options in ipairs{
    {noise = "jitter", jitter = 0.5}, {noise = "gumbel"}, {noise = "gumbel_second"}, {noise = "noisy_top_k"},
    {routes = "balanced"},
  } do
    local function routed(context)
      local router = moe.router(merged(options, {hidden = EXPERTS, experts = EXPERTS, context = context}))
      local passes = context and {zero.shard{axis = tokens_mesh.dp}} or {}
      local trainer, seen = router_alone.trainer(router, EXPERTS, {precision = "fp64", passes = passes, alone = not context})
      trainer:step{tokens = zt.zeros({SAMPLES, TOKENS}, {dtype = "int64"}), logits = logits}
      return seen
    end
    local wanted = routed()
    for _, layout in ipairs{"balanced", "contiguous"} do
      local seen, own = routed{axis = tokens_mesh.cp, layout = layout, fields = {"tokens", "logits"}}, 0
      for _, range in ipairs(seen.places) do
        for _, name in ipairs{"weights", "experts"} do
          local all = wanted[name]:narrow(1, range.begin, range.count)
          lu.assertTrue(all:equal(seen[name]:narrow(1, own, range.count)), ("%s, %s"):format(name, layout))
        end
        own = own + range.count
      end
      lu.assertEquals(seen.weights:size(1), own)
    end
  end
end

local TestBranches = {}

-- A branch may count tokens, add a loss, have a metric and work on some tokens of each sample.
function TestBranches:test_states_what_its_layer_states()
  local function model_of(context)
    local attention = nn.attention{hidden = HIDDEN, heads = 2, context = context, dropout = 0.3}
    local measured = nn.layer{
      layers = {attention = attention},
      io = {losses = {size = "token"}, metrics = {"mean"}},
      count = function(fields) return fields "labels":numel() end,
      forward = function(layer, h, ctx)
        local out = layer.attention:forward(h, ctx)
        ctx:loss("size", out:square():sum(), "token")
        ctx:metric("mean", out:sum(), out:numel())
        return out
      end,
    }
    return between{{"mixture", mixture{context = context, shared = {layer = measured},
                                       router = {losses = {balance = 0.1}}}}}
  end
  local function run(trainer)
    local numbers, result = one_rank.run(trainer, batch), trainer:step(batch(5))
    numbers[5] = {result.terms.size, result.stats["mixture.shared.mean"], result.terms.balance}
    return numbers
  end
  local wanted = run(trainer_of(model_of()))
  for _, layout in ipairs{"balanced", "contiguous"} do
    local model = model_of{axis = tokens_mesh.cp, layout = layout}
    one_rank.assert_close(run(trainer_of(model, tokens_mesh)), wanted, layout)
  end
end

function TestBranches:test_may_be_cut()
  local function model_of(tensor)
    return between{
      {"shared", mixture{tensor = tensor, shared = {layer = nn.mlp{hidden = HIDDEN, ffn = 5, tensor = tensor}, gate = true}}},
      {"residual", moe.layers{experts = EXPERTS, hidden = HIDDEN, expert = nn.mlp{hidden = HIDDEN, ffn = 3},
                              residual = {layer = nn.mlp{hidden = HIDDEN, ffn = 7, tensor = tensor}}}},
    }
  end
  local wanted = one_rank.run(trainer_of(model_of()), batch)
  one_rank.assert_close(one_rank.run(trainer_of(model_of(tensor_mesh.tp), tensor_mesh), batch), wanted, "branches")
end

function TestBranches:test_refusals()
  if ranks == 1 then return end
  local cut = nn.residual{tensor = tensor_mesh.tp, sequence_parallel = true}
  fails("a branch beside experts takes one value", mixture, {shared = {layer = cut}})
  local block = nn.block{hidden = HIDDEN, heads = 2, tensor = tensor_mesh.tp, sequence_parallel = true}
  fails("gets all tokens, but with sequence_parallel 'block' takes or returns some", mixture, {residual = {layer = block}})
end

local TestLuaLayers = {}

local function layer_with(attention, context)
  return nn.layer{layers = {attention = attention}, context = context,
                  forward = function(layer, h, ctx) return h + layer.attention:forward(h, ctx) end}
end

function TestLuaLayers:test_cuts_of_tokens_must_agree()
  if ranks == 1 then return end
  local function attention(layout)
    return nn.attention{hidden = HIDDEN, heads = 2, context = {axis = tokens_mesh.cp, layout = layout}}
  end
  fails("its option 'context' and the inner layer 'attention' cut the tokens of samples differently (axis = cp, layout = bal",
        layer_with, attention "contiguous", {axis = tokens_mesh.cp})
  fails("the inner layer 'a' and the inner layer 'b' cut the tokens of samples differently", nn.layer,
        {layers = {a = attention "balanced", b = attention "contiguous"}, forward = function(_, h) return h end})
  layer_with(attention "balanced", {axis = tokens_mesh.cp})
  fails("nn.layer.context: 'dp+cp' joins several axes", nn.layer,
        {context = {axis = tokens_mesh:join{"dp", "cp"}}, forward = function(_, h) return h end})
end

-- What an inner layer says of plans is said of the outer one.
function TestLuaLayers:test_assumptions_of_inner_layers()
  local attention = nn.attention{hidden = HIDDEN, heads = 2, context = {axis = tokens_mesh.cp, layout = "contiguous"}}
  local trainer = trainer_of(between{{"outer", layer_with(attention)}}, tokens_mesh)
  local said = table.concat(trainer:plan(batch(1))[1].assumptions)
  if ranks == 1 then lu.assertEquals(said, "") else lu.assertStrContains(said, "of causal attention: layout") end
end

local TestRefusals = {}

local function router(options) return moe.router(merged({hidden = HIDDEN, experts = EXPERTS}, options)) end

function TestRefusals:test_routers_of_cut_tokens()
  fails("context: option 'axis' is missing", router, {context = {layout = "balanced"}})
  fails("context.layout must be one of", router, {context = {axis = tokens_mesh.cp, layout = "zigzag"}})
  if ranks == 1 then return end
  local context = {axis = tokens_mesh.cp}
  fails("moe.router: capacity needs all tokens of a sample on one rank, and they are cut over the ranks of axis 'cp'", router,
        {context = context, capacity = {}})
  fails("moe.router: choice = \"expert\" needs all tokens", router, {context = context, choice = "expert", capacity = {}})
  fails("batch_axes has 'cp', the axis of `context`", router,
        {context = context, losses = {balance = 1, per = "batch"}, batch_axes = {"dp", "cp"}})
  fails("joins several axes", router, {context = {axis = tokens_mesh:join{"dp", "cp"}}})

  -- Without `context` the model refuses the router.
  local function model_of(options, more)
    return nn.gpt{layers = 1, hidden = HIDDEN, heads = 2, vocab = VOCAB, seq = TOKENS, context = context, mlp = function()
      local layers = mixture(options)
      if more then table.insert(layers, 1, more) end
      return layers
    end}
  end
  local norm = {"norm", nn.rmsnorm{hidden = HIDDEN}}
  for _, options in ipairs{{losses = {z = 0.1}}, {capacity = {}}, {capacity = {}, choice = "expert"}} do
    for _, more in ipairs{false, norm} do
      fails("the layer 'blocks.0.router' (router) would miss the tokens of other ranks", model_of, {router = options}, more)
    end
  end
  local trainer = trainer_of(model_of{}, tokens_mesh) -- a router without losses needs no sums
  lu.assertTrue(trainer:step(batch(1)).loss > 0)
end

-- Only one rank's tokens have the mistake.
function TestRefusals:test_recorded_routes_are_checked_before_communication()
  local context = {axis = tokens_mesh.cp, layout = "contiguous", fields = {"tokens", "labels", "positions", "routes"}}
  local model = nn.gpt{layers = 1, hidden = HIDDEN, heads = 2, vocab = VOCAB, seq = TOKENS, context = context, mlp = function()
    return mixture{context = context, router = {routes = "routes"}}
  end}
  local trainer, fields = trainer_of(model, tokens_mesh), batch(1)
  fields.routes = zt.arange(2):view({1, 1, 2}):expand({SAMPLES, TOKENS, 2}):to "int64":contiguous()
  local loss = trainer:step(fields).loss
  fields.routes:narrow(1, 0, 1):fill_(EXPERTS)
  fails("the recorded routes 'routes' name experts outside of 0 to 3", function() trainer:step(fields) end)
  fields.routes:narrow(1, 0, 1):fill_(-1)
  lu.assertTrue(loss > 0 and trainer:step(fields).loss > 0)
end

function TestRefusals:test_cut_experts()
  local tp = tensor_mesh.tp
  fails("moe.layers.tp_dtype has an effect only with tensor", mixture, {tp_dtype = "fp32"})
  fails("moe.layers.tensor has an effect only on MLPs", moe.layers,
        {experts = 4, hidden = HIDDEN, expert = nn.mlp{hidden = HIDDEN, ffn = 4}, tensor = tp})
  if ranks == 1 then return end
  fails("1 inner columns cannot be cut over the " .. ranks .. " ranks of axis 'tp'", mixture, {ffn = 1, tensor = tp})
  fails("axis 'tp' is given as `axis`, whose ranks hold other groups, and as `tensor`", mixture, {axis = tp, tensor = tp})
  fails("'tp+ep' joins several axes", mixture, {tensor = comm.mesh{tp = -1, ep = 1, order = {"tp", "ep"}}:join{"tp", "ep"}})
  fails("grouped_gemm takes hidden and ffn that are multiples of 4 in float32 on each of the " .. ranks .. " ranks of axis 'tp'",
        function()
          local model = between{{"mixture", mixture{bias = false, grouped_gemm = true, tensor = tp, ffn = 4}}}
          zt.trainer(zt.program(model):apply(zero.shard{axis = tensor_mesh.dp}), {optimizer = optim.sgd{lr = 1}}):step(batch(1))
        end)
  -- The ranks of a cut layer have the same tokens.
  fails("'1.dispatch' (dispatch) sends rows to the ranks along 'tp', over which another layer shares its work", nn.sequential,
        {nn.embedding{vocab = VOCAB, hidden = HIDDEN}, mixture{axis = tp}, nn.mlp{hidden = HIDDEN, ffn = 8, tensor = tp},
         nn.lm_loss{vocab = VOCAB, hidden = HIDDEN}})
end

local TestModels = {}

function TestModels:test_what_belongs_to_the_run_is_not_recorded()
  local options = {layers = 1, hidden = HIDDEN, heads = 2, vocab = VOCAB, seq = TOKENS, moe = {experts = EXPERTS, ffn = 6}}
  local run = {axis = tensor_mesh.ep, tensor = tensor_mesh.tp, sequence_parallel = true, tp_dtype = "fp32"}
  for _, model in ipairs{moe.gpt(options, run), moe.gpt(merged(options, {tensor = tensor_mesh.tp}))} do
    lu.assertEquals(model.options, options)
  end
  local dense = merged(options)
  dense.moe = nil
  lu.assertEquals(moe.gpt(dense, {tensor = tensor_mesh.tp}).options, dense)
  fails("moe.gpt: tensor is given in both tables", moe.gpt, merged(options, {tensor = tensor_mesh.tp}), run)
  fails("moe.gpt: moe.context belongs to the run", moe.gpt,
        merged(options, {moe = {experts = 4, ffn = 6, context = {axis = tokens_mesh.cp}}}))
end

-- DeepSpeed's experts that are cut over ranks, and its routers.
function TestModels:test_experts_of_deepspeed()
  local function model_of(more)
    return between{{"mixture", moe.from_deepspeed(merged({hidden_size = HIDDEN, num_experts = EXPERTS, ffn = 5, k = 2,
                                                          use_residual = true, drop_tokens = false}, more))}}
  end
  local wanted = one_rank.run(trainer_of(model_of{}), batch)
  local cut = {enable_expert_tensor_parallelism = true, tensor = tensor_mesh.tp}
  one_rank.assert_close(one_rank.run(trainer_of(model_of(cut), tensor_mesh), batch), wanted, "cut over tp")
  local context = {context = {axis = tokens_mesh.cp}}
  one_rank.assert_close(one_rank.run(trainer_of(model_of(context), tokens_mesh), batch), wanted, "tokens cut over cp")
  fails("give tensor = mesh.tp", model_of, {enable_expert_tensor_parallelism = true})
  fails("tensor has an effect only with enable_expert_tensor_parallelism", model_of, {tensor = tensor_mesh.tp})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{
  {"TestNoise", TestNoise}, {"TestBranches", TestBranches}, {"TestLuaLayers", TestLuaLayers}, {"TestRefusals", TestRefusals},
  {"TestModels", TestModels},
})
