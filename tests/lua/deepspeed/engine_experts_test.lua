-- Tests expert_parallel of DeepSpeed's JSON: the engine's mesh, the options of the router, mistakes. Runs on one rank and on two.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, moe, nn = require "zt.comm", require "zt.moe", require "zt.nn"
local small = require "support.small_engine"
local stand_ins = require "support.stand_ins"

local ranks = zt.world.size

-- Returns the model with experts for the mesh and the options of the configuration.
local function model(mesh, experts)
  return nn.gpt{layers = 2, hidden = 8, heads = 2, vocab = small.vocab, seq = small.seq, seed = 3, mlp = function(i)
    if i == 0 then return nil end
    return moe.layers{experts = 4, hidden = 8, ffn = 12, top_k = experts.top_k, router = experts.router, axis = mesh.ep}
  end}
end

local function engine_of(block, more, options)
  local all = {model = model}
  for key, value in pairs(options or {}) do all[key] = value end
  local config = {expert_parallel = block}
  for key, value in pairs(more or {}) do config[key] = value end
  return small.engine_of(config, all)
end

local TestExperts = {}

function TestExperts:test_the_engine_makes_the_mesh_and_the_model_takes_the_options()
  local block = {enabled = true, autoep_size = ranks, top_k = 2, score_func = "sigmoid", route_norm = true, route_scale = 2.5,
                 num_expert_groups = 2, num_limited_groups = 1, preset_model = "mixtral", score_apply = "post"}
  local engine = engine_of(block, {zero_optimization = {stage = 2}})
  lu.assertEquals(engine.mesh.ep.size, ranks)
  lu.assertEquals(engine.axis.size, ranks)
  lu.assertEquals(engine.config.experts, {size = ranks, data_first = false, tensor_size = 1, top_k = 2, router = {
    score = "sigmoid", normalise = "selected", scale = 2.5, groups = 2, top_groups = 1}})
  local first = engine:train_batch(small.batch(0))
  for _ = 1, 4 do engine:train_batch(small.batch(0)) end
  lu.assertTrue(engine:train_batch(small.batch(0)) < first)
  local load = 0
  for _, routes in ipairs(engine.result.stats["blocks.1.router.load"]) do load = load + routes end
  lu.assertEquals(load, 2 * ranks * small.rows * small.seq) -- two experts per token
end

-- The ranks may share the experts or not: the losses are the same.
function TestExperts:test_losses_do_not_depend_on_the_layout()
  local losses = {}
  for _, size in ipairs{1, ranks} do
    local engine = engine_of({enabled = true, autoep_size = size}, {zero_optimization = {stage = 3}})
    for step = 0, 2 do
      losses[step + 1] = losses[step + 1] or {}
      table.insert(losses[step + 1], engine:train_batch(small.batch(step)))
    end
  end
  for _, pair in ipairs(losses) do lu.assertAlmostEquals(pair[1], pair[2], 1e-5) end
end

function TestExperts:test_the_scripts_own_mesh()
  local mesh = comm.mesh{dp = 1, ep = ranks}
  local engine = engine_of({enabled = true, autoep_size = ranks}, nil, {mesh = mesh, model = model(mesh, {})})
  lu.assertEquals(engine.axis.size, ranks)
  lu.assertTrue(engine:train_batch(small.batch(0)) > 0)
  local axis = stand_ins.of("Axis", {size = 2})
  local other = stand_ins.of("Mesh", {dp = {size = 1}, ep = axis, join = function() return axis end})
  lu.assertErrorMsgContains("expert_parallel.autoep_size = 1, but the axis ep of the mesh has 2 ranks", engine_of,
                            {enabled = true}, nil, {mesh = other})
end

function TestExperts:test_data_before_experts()
  local engine = engine_of({enabled = true}, {use_data_before_expert_parallelism = true})
  lu.assertStrContains(tostring(engine.mesh), ("ep=1 x dp=%d"):format(ranks))
  lu.assertTrue(engine:train_batch(small.batch(0)) > 0)
end

function TestExperts:test_mistakes()
  local function fails(text, block, options) lu.assertErrorMsgContains(text, engine_of, block, nil, options) end
  fails("autoep_size = 3 does not divide the " .. ranks .. " data-parallel ranks", {enabled = true, autoep_size = 3})
  fails("give model = function(mesh, experts, cut)", {enabled = true, top_k = 2}, {model = small.gpt()})
  fails("num_limited_groups needs num_expert_groups", {enabled = true, num_limited_groups = 2})
  fails("expert_parallel.load_balance_coeff = 0.5 is refused", {enabled = true, load_balance_coeff = 0.5})
  fails("expert_parallel.score_apply must be 'post', got 'pre'", {enabled = true, score_apply = "pre"})
  fails("expert_tensor_parallel_size = 2 must be 1, for whole experts, or the number of ranks that share matrices",
        {enabled = true, expert_tensor_parallel_size = 2})
  fails("unknown key 'autoep_sise': did you mean 'autoep_size'", {enabled = true, autoep_sise = 1})
  if ranks == 2 then
    fails("autoep_size = 2: the model's experts need the mesh", {enabled = true, autoep_size = 2}, {model = small.gpt()})
  end
  lu.assertTrue(engine_of({enabled = false, autoep_size = 3}, nil, {model = small.gpt()}):train_batch(small.batch(0)) > 0)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestExperts", TestExperts}})
