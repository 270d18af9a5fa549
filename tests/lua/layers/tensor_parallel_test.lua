-- Tests layers whose matrices are cut over the ranks of a mesh axis, beside the same model on one rank. Also runs on two and four
-- ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local one_rank = require "support.one_rank"
local comm, nn, optim, pipe, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.pipe", require "zt.zero"

local ranks = zt.world.size
local SAMPLES, TOKENS = 4, 9
local meshes = {comm.mesh{dp = 1, tp = -1}}
if ranks == 4 then
  meshes[2] = comm.mesh{dp = 2, tp = 2}
  meshes[3] = comm.mesh{tp = 2, dp = 2, order = {"tp", "dp"}}
  meshes[4] = comm.mesh{pp = 2, dp = 1, tp = 2}
end

local function batch(step, dp, vocab)
  local generator = zt.generator(step)
  local tokens = zt.randint(vocab, {SAMPLES, TOKENS}, {generator = generator, dtype = "int64"})
  local labels = zt.randint(vocab, {SAMPLES, TOKENS}, {generator = generator, dtype = "int64"})
  labels:narrow(1, 0, 2):fill_(-100)
  local count = dp and SAMPLES / dp.size or SAMPLES
  local first = dp and dp.rank * count or 0
  return {tokens = tokens:narrow(0, first, count):contiguous(), labels = labels:narrow(0, first, count):contiguous()}
end

-- Models of different heads, vocabularies that no number of ranks divides, and all that a layer may have.
local MODELS = {
  {family = "gpt2", heads = 3, hidden = 12, vocab = 17, dropout = 0.2},
  {family = "gpt2", heads = 4, hidden = 16, vocab = 127, tied = false, bias = false},
  {family = "llama", heads = 6, kv_heads = 3, hidden = 12, head_dim = 4, vocab = 17, qk_norm = true, ffn = 13},
  {family = "llama", heads = 6, kv_heads = 2, hidden = 12, head_dim = 2, vocab = 19, tied = true, ffn = 11, dropout = 0.1},
  {family = "llama", heads = 4, kv_heads = 1, hidden = 8, head_dim = 2, vocab = 21, qk_norm = true, ffn = 9, bias = true},
}

local function model_of(options, tensor, more)
  local all = {layers = 2, seq = TOKENS, seed = 3, std = 0.3, tensor = tensor}
  for _, given in ipairs{options, more or {}} do
    for key, value in pairs(given) do all[key] = value end
  end
  return nn.gpt(all)
end

local function train(options, mesh, how)
  how = how or {}
  local program = zt.program(model_of(options, mesh and mesh.tp, how.model), {precision = how.precision or "fp64"})
  if mesh and how.stages then program = program:apply(pipe.split{axis = how.stages}) end
  if mesh then program = program:apply(zero.shard{axis = how.dp, stage = how.stage}) end
  if how.recompute then program = program:apply(zt.recompute{}) end
  local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, clip = 0.5, separate = not mesh})
  return one_rank.run(trainer, function(step) return batch(step, mesh and how.dp, options.vocab) end), trainer
end

local TestTensorParallel = {}

function TestTensorParallel:test_trains_as_one_rank()
  for index, options in ipairs(MODELS) do
    local wanted, alone = train(options)
    for number, mesh in ipairs(meshes) do
      local stages = number == 4 and mesh.pp or nil
      if options.heads >= mesh.tp.size and not (stages and options.dropout) then
        for stage = 0, 3 do
          local what = ("model %d, mesh %d, stage %d"):format(index, number, stage)
          local results, trainer = train(options, mesh,
                                         {stage = stage, recompute = stage == 2, stages = stages, dp = mesh.dp})
          one_rank.assert_close(results, wanted, what)
          one_rank.assert_same_tensors(trainer, alone, 1e-10, what)
        end
      end
    end
  end
end

function TestTensorParallel:test_initial_weights_are_those_of_one_rank()
  local options = MODELS[3]
  local mesh = meshes[1]
  local alone = zt.trainer(zt.program(model_of(options)), {optimizer = optim.sgd{lr = 1}, separate = true})
  local program = zt.program(model_of(options, mesh.tp)):apply(zero.shard{axis = mesh.dp})
  local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 1}})
  for _, tensor in ipairs(alone:tensors()) do
    lu.assertTrue(trainer:parameter(tensor.name):equal(alone:parameter(tensor.name)), tensor.name)
  end
end

function TestTensorParallel:test_stages_and_recompute_have_the_same_bits()
  for _, mesh in ipairs{meshes[2] or meshes[1]} do
    for _, precision in ipairs{"fp32", "bf16"} do
      local wanted
      for stage = 0, 3 do
        local results = train(MODELS[1], mesh, {stage = stage, recompute = stage % 2 == 1, precision = precision, dp = mesh.dp})
        wanted = wanted or results
        lu.assertEquals(results, wanted)
      end
    end
  end
end

function TestTensorParallel:test_is_planned_and_simulated()
  for _, options in ipairs(MODELS) do
    local mesh = meshes[2] or meshes[1]
    if mesh.tp.size <= options.heads then
      local program = zt.program(model_of(options, mesh.tp)):apply(zero.shard{axis = mesh.dp, stage = 1})
      local simulation = program:simulate{costs = "h200", batch = batch(1, mesh.dp, options.vocab)}
      lu.assertTrue(simulation.seconds > 0)
      local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}})
      trainer:step(batch(1, mesh.dp, options.vocab))
    end
  end
end

function TestTensorParallel:test_generates_as_one_rank()
  local options, mesh = MODELS[2], meshes[1]
  local function outputs(tensor)
    local program = zt.program(model_of(options, tensor), {precision = "fp64"})
    if tensor then program = program:apply(zero.shard{axis = mesh.dp}) end
    local trainer = zt.trainer(program, {separate = not tensor})
    local tokens = batch(1, nil, options.vocab).tokens:narrow(0, 0, 1)
    return trainer:infer{tokens = tokens}.logits, zt.generate(trainer, {3, 1, 4}, {seq = TOKENS, max_tokens = 8})
  end
  local logits, text = outputs()
  local own_logits, own_text = outputs(mesh.tp)
  lu.assertTrue((logits - own_logits):abs():max():item() < 1e-12)
  lu.assertEquals(own_text, text)
end

function TestTensorParallel:test_single_layers()
  local mesh = meshes[1]
  local function results_of(cut)
    local tensor = cut and mesh.tp or nil
    local model = nn.sequential{
      {"embedding", nn.embedding{vocab = 17, hidden = 6, positions = TOKENS, tensor = tensor}},
      {"up", nn.linear{["in"] = 6, out = 10, tensor = tensor, split = cut and "out" or nil}},
      {"down", nn.linear{["in"] = 10, out = 6, tensor = tensor, split = cut and "in" or nil}},
      {"attention", nn.attention{hidden = 6, heads = 6, head_dim = 4, tensor = tensor}},
      {"mlp", nn.mlp{hidden = 6, ffn = 7, tensor = tensor}},
      {"head", nn.lm_loss{vocab = 17, hidden = 6, bias = true, tensor = tensor}},
    }
    local program = zt.program(model, {precision = "fp64"})
    if cut then program = program:apply(zero.shard{axis = mesh.dp, stage = 1}) end
    local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, separate = not cut})
    return one_rank.run(trainer, function(step) return batch(step, nil, 17) end)
  end
  one_rank.assert_close(results_of(true), results_of(false), "single layers")
end

function TestTensorParallel:test_refusals()
  if ranks == 1 then return end
  local tp, dp = meshes[1].tp, meshes[1].dp
  local function refused(text, fn, ...) lu.assertErrorMsgContains(text, fn, ...) end
  refused(("nn.attention: 1 heads cannot be cut over the %d ranks of axis 'tp'"):format(ranks), nn.attention,
          {hidden = 8, heads = 1, tensor = tp})
  refused("nn.mlp: 1 inner columns cannot be cut", nn.mlp, {hidden = 8, ffn = 1, tensor = tp})
  refused("nn.lm_loss.tensor: 'dp+tp' joins several axes", nn.lm_loss,
          {hidden = 8, vocab = 17, tensor = meshes[1]:join{"dp", "tp"}})
  refused("has an effect only with tensor", nn.linear, {["in"] = 4, out = 4, split = "in"})
  refused("needs split = \"out\"", nn.linear, {["in"] = 4, out = 4, tensor = tp})
  local embedding = nn.embedding{vocab = 17, hidden = 8, tensor = tp}
  refused("are cut differently", nn.lm_loss, {vocab = 17, hidden = 8, tied = embedding})
  refused("read different samples", function()
    local program = zt.program(model_of(MODELS[2], tp)):apply(zero.shard{axis = dp})
    zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}}):step(batch(tp.rank, nil, 17))
  end)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestTensorParallel", TestTensorParallel}})
