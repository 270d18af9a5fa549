-- Tests mixtures of experts from scripts: models, errors, experts in Lua, checkpoints on other layouts, generation. Runs on one
-- rank and on two.
local lu = require "luaunit"
local zt = require "zt"
local ckpt, comm, moe, nn = require "zt.ckpt", require "zt.comm", require "zt.moe", require "zt.nn"
local optim, zero = require "zt.optim", require "zt.zero"

package.path = (arg[0]:match "^(.*)/" or ".") .. "/../support/?.lua;" .. package.path
local temporary = require "temporary"

local HIDDEN, VOCAB, SEQ = 16, 29, 8
local ranks = zt.world.size
local meshes = {experts = comm.mesh{dp = 1, ep = ranks}, data = comm.mesh{dp = ranks, ep = 1}}

local function model_of(mesh, options, seed)
  return nn.gpt{layers = 2, hidden = HIDDEN, heads = 2, vocab = VOCAB, seq = SEQ, seed = seed or 1, mlp = function(i)
    local given = {experts = 4, hidden = HIDDEN, axis = mesh.ep}
    for key, value in pairs(options or {}) do given[key] = value end
    if not given.expert then given.ffn = given.ffn or 24 end
    return i == 1 and moe.layers(given) or nil
  end}
end

local function trainer_of(mesh, stage, options, seed)
  local program = zt.program(model_of(mesh, options, seed), {precision = "fp64"})
    :apply(zero.shard{stage = stage, axis = mesh:join{"dp", "ep"}})
  return zt.trainer(program, {optimizer = optim.adamw{lr = 1e-2}})
end

-- This rank's part of a batch of 4 samples.
local function batch(step)
  local all = zt.arange(4 * SEQ):add(3 * step):remainder(VOCAB):view({4, SEQ}):to "int64"
  local part = 4 / ranks
  local tokens = all:narrow(0, zt.world.rank * part, part):contiguous()
  return {tokens = tokens, labels = tokens:add(1):remainder(VOCAB)}
end

local TestMoe = {}

local FROZEN = {"router", "^blocks\\.1\\.router\\.", "^(embedding|blocks)", "router\\.bias$"}

-- The bias is no parameter. A pattern that freezes the router freezes it, too.
function TestMoe:test_a_frozen_router_stays_as_it_is()
  local options = {router = {score = "sigmoid", normalise = "selected", bias = true, bias_rate = 0.1}}
  local function norm_after(change)
    local model = model_of(meshes.experts, options)
    change(model)
    local program = zt.program(model, {precision = "fp64"}):apply(zero.shard{stage = 1, axis = meshes.experts:join{"dp", "ep"}})
    local trainer, norm = zt.trainer(program, {optimizer = optim.adamw{lr = 1e-2}}), nil
    for _ = 1, 3 do norm = trainer:step(batch(0)).stats["blocks.1.router.bias_norm"] end
    return norm, program:text():find "UPDATE" ~= nil
  end
  for _, pattern in ipairs(FROZEN) do
    local norm, updates = norm_after(function(model) model:freeze(pattern) end)
    lu.assertEquals({norm, updates}, {0, false}, pattern)
  end
  for _, change in ipairs{
    function() end, function(model) model:freeze "router\\.weight" end,
    function(model) model:freeze "router" model:unfreeze "router\\.bias" end,
  } do
    local norm, updates = norm_after(change)
    lu.assertTrue(norm > 0.1 and updates)
  end
  lu.assertEquals(model_of(meshes.experts, options):freeze "router", 2)
end

-- A program keeps what was frozen when it was made, so a text with other actions is refused.
function TestMoe:test_a_text_from_before_the_freeze_is_refused()
  local model = model_of(meshes.experts, {router = {score = "sigmoid", bias = true}})
  local program = zt.program(model):apply(zero.shard{stage = 1, axis = meshes.experts:join{"dp", "ep"}})
  local actions = program:text()
  lu.assertNotNil(actions:find "UPDATE")
  model:freeze "router\\.bias"
  lu.assertNotNil(zt.trainer(program:with_actions(actions), {optimizer = optim.sgd{lr = 0.1}}))
  local later = zt.program(model):apply(zero.shard{stage = 1, axis = meshes.experts:join{"dp", "ep"}})
  lu.assertErrorMsgContains("has no buffers that change after a step, or they are frozen: remove it", zt.trainer,
                            later:with_actions(actions), {optimizer = optim.sgd{lr = 0.1}})
end

-- One layer object in several roles is like layers of their own with equal options: experts have parameters of their own.
function TestMoe:test_the_layer_of_an_expert_may_be_elsewhere_too()
  local function mlp() return nn.mlp{hidden = HIDDEN, ffn = 24} end
  local function losses(make, stage, split)
    local model = nn.gpt{layers = 3, hidden = HIDDEN, heads = 2, vocab = VOCAB, seq = SEQ, seed = 1, mlp = make}
    local program = zt.program(model, {precision = "fp64", micro_batches = 2})
    if split then program = program:apply(zt.split_backward()) end
    local trainer = zt.trainer(program:apply(zero.shard{stage = stage, axis = meshes.experts:join{"dp", "ep"}}),
                               {optimizer = optim.sgd{lr = 0.5}})
    local list = {}
    for step = 0, 2 do list[step + 1] = trainer:step(batch(step)).loss end
    return list
  end
  local function roles(first, second)
    local function mixture(more)
      local options = {experts = 4, hidden = HIDDEN, expert = first, axis = meshes.experts.ep}
      for key, value in pairs(more) do options[key] = value end
      return moe.layers(options)
    end
    return {
      function(i) return i == 1 and mixture{residual = {layer = second}} or nil end,
      function(i) return i == 1 and mixture{shared = {layer = second}} or nil end,
      function(i) return i == 1 and mixture{} or i == 2 and {{"mlp", second}} or nil end,
      function(i) return i == 0 and {{"mlp", second}} or i == 1 and mixture{} or nil end,
    }
  end
  for place = 1, 4 do
    for _, stage in ipairs{0, 3} do
      local wanted = losses(roles(mlp(), mlp())[place], stage)
      for _, split in ipairs{false, true} do
        local one = mlp()
        lu.assertEquals(losses(roles(one, one)[place], stage, split), wanted)
      end
    end
  end
end

function TestMoe:test_layers_and_their_names()
  local trainer = trainer_of(meshes.experts, 1, {shared = {ffn = 8, gate = true}})
  local names = {}
  for _, name in ipairs(trainer:parameters()) do names[name] = trainer:describe_parameter(name).shape end
  lu.assertEquals(names["blocks.1.experts.up.weight"], {4, 24, HIDDEN})
  lu.assertEquals(names["blocks.1.router.weight"], {4, HIDDEN})
  lu.assertEquals(names["blocks.1.shared.gate"], {1, HIDDEN})
  lu.assertNotNil(names["blocks.0.mlp.up.weight"])
  local result = trainer:step(batch(0))
  local load = 0
  for _, tokens in ipairs(result.stats["blocks.1.router.load"]) do load = load + tokens end
  lu.assertEquals(load, 4 * SEQ * 2)
  lu.assertEquals(result.stats["blocks.1.router.dropped"], 0)
end

function TestMoe:test_layouts_agree()
  local losses = {}
  for _, name in ipairs{"experts", "data"} do
    local trainer = trainer_of(meshes[name], 3, {router = {losses = {balance = 0.1}}})
    for step = 0, 2 do losses[name] = trainer:step(batch(step)).loss end
  end
  lu.assertAlmostEquals(losses.experts, losses.data, 1e-12 * losses.data)
end

function TestMoe:test_experts_in_lua_are_like_mlps()
  local function expert()
    return nn.layer{
      params = {up = zt.randn({24, HIDDEN}, {seed = 1}):mul(0.1), down = zt.randn({HIDDEN, 24}, {seed = 2}):mul(0.1)},
      forward = function(layer, x) return x:matmul(layer.up:t()):relu():matmul(layer.down:t()) end,
    }
  end
  local trainer = trainer_of(meshes.experts, 2, {expert = expert()})
  local first = trainer:step(batch(0)).loss
  for step = 1, 8 do trainer:step(batch(step % 2)) end
  lu.assertTrue(trainer:step(batch(0)).loss < first)
  lu.assertEquals(trainer:describe_parameter("blocks.1.experts.up").shape, {4, 24, HIDDEN})
end

-- The bias of the router is saved, too.
function TestMoe:test_a_checkpoint_loads_on_another_layout()
  local options = {router = {score = "sigmoid", normalise = "selected", bias = true, bias_rate = 0.1}}
  local saved = trainer_of(meshes.experts, 3, options)
  for step = 0, 2 do saved:step(batch(step)) end
  local folder = temporary()
  ckpt.save(folder, {trainer = saved}, {step = 3, async = false})
  local loaded = trainer_of(meshes.data, 1, options, 5)
  ckpt.load(folder, {trainer = loaded})
  lu.assertEquals(loaded.global_step, saved.global_step)
  for _, name in ipairs(saved:parameters()) do lu.assertTrue(saved:master(name):equal(loaded:master(name))) end
  local a, b = saved:step(batch(3)), loaded:step(batch(3))
  lu.assertAlmostEquals(a.loss, b.loss, 1e-12)
  lu.assertEquals(a.stats["blocks.1.router.load"], b.stats["blocks.1.router.load"])
end

function TestMoe:test_tokens_are_generated()
  local trainer = trainer_of(meshes.experts, 1)
  local tokens = zt.generate(trainer, {1, 2, 3}, {seq = SEQ, max_tokens = 4, seed = 1})
  lu.assertTrue(#tokens >= 4)
end

-- With k = 2, at most ceil(32 * 2 / 4 * 0.5) = 8 tokens of a rank's micro-batch have room at an expert.
function TestMoe:test_options_of_deepspeed()
  local function mlp(k, more)
    local given = {hidden_size = HIDDEN, num_experts = 4, ffn = 24, k = k, axis = meshes.experts.ep, ep_size = ranks}
    for key, value in pairs(more or {}) do given[key] = value end
    return function(i) return i == 1 and moe.from_deepspeed(given) or nil end
  end
  for k, more in ipairs{{use_residual = true}, {capacity_factor = 0.5, noisy_gate_policy = "RSample"}, {drop_tokens = false}} do
    local model = nn.gpt{layers = 2, hidden = HIDDEN, heads = 2, vocab = VOCAB, seq = SEQ, seed = 1, mlp = mlp(k, more)}
    local program = zt.program(model):apply(zero.shard{stage = 2, axis = meshes.experts:join{"dp", "ep"}})
    local result = zt.trainer(program, {optimizer = optim.adamw{lr = 1e-2}}):step(batch(0))
    lu.assertTrue(result.loss > 0)
    local dropped = result.stats["blocks.1.router.dropped"]
    if k == 2 then lu.assertTrue(dropped >= 32 * 2 - 4 * 8) end
    if k == 3 then lu.assertEquals(dropped, 0) end
  end
  lu.assertErrorMsgContains("moe.from_deepspeed: k is 3, but there are only 2 experts", moe.from_deepspeed,
                            {hidden_size = HIDDEN, ffn = 8, num_experts = 2, k = 3})
  lu.assertErrorMsgContains("ep_size is 3", moe.from_deepspeed, {hidden_size = HIDDEN, ffn = 8, ep_size = 3})
  lu.assertErrorMsgContains("must be one of", moe.from_deepspeed, {hidden_size = HIDDEN, ffn = 8, noisy_gate_policy = "Gumbel"})
end

-- moe.gpt makes from a table what nn.gpt makes from a function, with the family's activation, biases and initial values.
function TestMoe:test_models_from_plain_tables()
  local ep = meshes.experts.ep
  local function described(model)
    local list = {}
    for index, parameter in ipairs(model:parameters()) do list[index] = {parameter.name, parameter.shape} end
    return list
  end
  local function options(family, with_experts, more)
    local o = {layers = 3, hidden = HIDDEN, heads = 2, vocab = VOCAB, seq = SEQ, family = family, seed = 7}
    if with_experts then
      o.moe = {experts = 4, ffn = 24, blocks = {0, 2}}
      for key, value in pairs(more or {}) do o.moe[key] = value end
    end
    return o
  end
  local families = {{"gpt2", {residual_std = 0.02 / math.sqrt(6)}}, {"llama", {activation = "swiglu", bias = false}}}
  for _, row in ipairs(families) do -- in one order on all ranks
    local family, of_family = unpack(row)
    local by_function = options(family)
    by_function.mlp = function(i)
      local given = {experts = 4, hidden = HIDDEN, ffn = 24, axis = ep}
      for key, value in pairs(of_family) do given[key] = value end
      return i ~= 1 and moe.layers(given) or nil
    end
    local wanted, got = nn.gpt(by_function), moe.gpt(options(family, true), {axis = ep})
    lu.assertEquals(described(got), described(wanted))
    local function trained(model)
      local program = zt.program(model, {precision = "fp64"}):apply(zero.shard{stage = 1, axis = meshes.experts:join{"dp", "ep"}})
      return zt.trainer(program, {optimizer = optim.adamw{lr = 1e-2}}):step(batch(0)).loss
    end
    lu.assertEquals(trained(got), trained(wanted))
  end
  lu.assertEquals(#moe.gpt(options("llama")):parameters(), #nn.gpt(options("llama")):parameters())
  lu.assertErrorMsgContains("moe.blocks names block 3, but the model's 3 blocks are 0 to 2", moe.gpt,
    options("llama", true, {blocks = {3}}))
  lu.assertErrorMsgContains("moe.blocks must be a list", moe.gpt, options("llama", true, {blocks = 1}))
  lu.assertErrorMsgContains("unknown option 'axes'", moe.gpt, options("llama", true), {axes = ep})
  lu.assertErrorMsgContains("unknown option 'expert_count'", moe.gpt, options("llama", true, {expert_count = 4}))
  local both = options("llama", true)
  both.mlp = function() return nil end
  lu.assertErrorMsgContains("give either `moe`", moe.gpt, both)
end

function TestMoe:test_mistakes_are_named()
  local function fails(text, options)
    local given = {experts = 4, hidden = HIDDEN, ffn = not options.expert and 8 or nil}
    for key, value in pairs(options) do given[key] = value end
    lu.assertErrorMsgContains(text, moe.layers, given)
  end
  fails("5 experts per token, but there are only 4", {top_k = 5})
  fails("capacity.train must be above 0", {router = {capacity = {train = 0}}})
  fails("unknown option 'expert_count'", {expert_count = 3})
  fails("did you mean 'losses'", {router = {loss = {}}})
  fails("bias by scores: use one of them", {router = {noise = "gumbel", bias = true}})
  fails("experts that choose drop no route", {router = {choice = "expert", capacity = {}, normalise = "kept"}})
  fails("leave out capacity.per and capacity.keep", {router = {choice = "expert", capacity = {keep = "place"}}})
  fails("are for tokens that choose", {router = {choice = "expert", capacity = {}, noise = "gumbel"}})
  fails("is for tokens that choose", {router = {choice = "expert", capacity = {}, losses = {balance = 1, of = "first"}}})
  fails("are for dispatcher = \"all_to_all\"", {dispatcher = "all_gather", transport = "bf16"})
  fails("are for dispatcher = \"all_to_all\"", {dispatcher = "all_gather", router = {capacity = {pad = true}}})
  fails("give `shared` or `residual`, not both", {shared = {ffn = 8}, residual = {ffn = 8}})
  fails("shared: give ffn", {shared = {}})
  lu.assertErrorMsgContains("give ffn", moe.layers, {experts = 4, hidden = HIDDEN})
  fails("an expert takes one value and returns one", {expert = nn.residual{}})
  fails("has no parameters", {expert = nn.dropout{p = 0.1}})
  if ranks == 2 then
    fails("3 experts cannot be divided over the 2 ranks of axis 'ep' evenly", {experts = 3, axis = meshes.experts.ep})
  end
end

function TestMoe:test_an_expert_is_a_function_of_its_rows()
  local random = nn.layer{
    params = {w = zt.ones{HIDDEN}},
    forward = function(layer, x, ctx) return ctx:dropout(x * layer.w, 0.5) end,
  }
  local trainer = trainer_of(meshes.data, 1, {expert = random})
  lu.assertErrorMsgContains("put dropout after the experts", trainer.step, trainer, batch(0))
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestMoe", TestMoe}})
