-- Tests tiles of rows in heads and MLPs, and logits of some tokens, beside the same model without them. Also runs on two and four
-- ranks, which share the matrices.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local one_rank = require "support.one_rank"
local cut_runs = require "layers.cut_runs"
local comm, nn, optim, pipe, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.pipe", require "zt.zero"
local batch, MODELS, TOKENS = cut_runs.batch, cut_runs.MODELS, cut_runs.TOKENS
local meshes = cut_runs.meshes()
local cut_tokens = zt.world.size == 4 and comm.mesh{dp = 1, cp = 2, tp = 2} or comm.mesh{dp = 1, cp = -1, tp = 1}

local TestTile = {}

function TestTile.test_trains_as_one_rank_without_tiles()
  for _, tile in ipairs{1, 5} do cut_runs.compare_with_one_rank{head_tile = tile, mlp_tile = tile} end
end

function TestTile.test_trains_as_one_rank_with_shares_of_tokens()
  cut_runs.compare_with_one_rank{head_tile = 4, mlp_tile = 3, sequence_parallel = true}
end

function TestTile.test_trains_as_one_rank_with_cut_tokens()
  local wanted, alone = cut_runs.train(MODELS[2])
  local model = {context = {axis = cut_tokens.cp}, head_tile = 2, mlp_tile = 3}
  local results, trainer = cut_runs.train(MODELS[2], cut_tokens, {stage = 1, dp = cut_tokens.dp, model = model})
  one_rank.assert_trains_alike(results, trainer, wanted, alone, "cut tokens")
end

function TestTile.test_stages_and_recompute_have_the_same_bits()
  local mesh = meshes[2] or meshes[1]
  one_rank.assert_same_bits_of_stages(function(how)
    how.dp, how.model = mesh.dp, {head_tile = 4, mlp_tile = 5}
    return (cut_runs.train(MODELS[1], mesh, how))
  end)
end

-- Trains on four micro-batches per step. `pass`: a function of the program. `separate`: each rank by itself.
local function train_in_parts(pass, precision, separate)
  local options = {family = "gpt2", layers = 4, hidden = 8, heads = 2, vocab = 17}
  local model = cut_runs.model_of(options, nil, {head_tile = 4, mlp_tile = 5})
  local program = pass(zt.program(model, {micro_batches = 4, precision = precision}))
  local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, clip = 0.5, separate = separate})
  return one_rank.run(trainer, function(step) return batch(step, nil, 17) end)
end

-- With a pipeline, the weight gradients of some schedules are computed after those of the inputs, or in two parts.
function TestTile.test_split_backwards_have_the_same_bits()
  local mesh = comm.mesh{pp = zt.world.size, dp = 1}
  for _, precision in ipairs{"fp32", "bf16"} do
    local wanted = train_in_parts(function(program) return program end, precision, true)
    lu.assertEquals(train_in_parts(function(program) return program:apply(zt.split_backward{}) end, precision, true), wanted)
    for _, schedule in ipairs{"gpipe", "one_f_one_b", "zb_h1", "zb_v"} do
      local function pass(program)
        return program:apply(pipe.split{axis = mesh.pp, schedule = schedule}):apply(zero.shard{axis = mesh.dp, stage = 1})
      end
      lu.assertEquals(train_in_parts(pass, precision), wanted, schedule)
    end
  end
end

-- `how`: {mesh =, tensor =, sequence_parallel =, context =, stages = axis, stage =}. Without a mesh: on one rank.
local function trainer_of(options, how)
  how = how or {}
  local mesh = how.mesh
  local model = cut_runs.model_of(options, how.tensor, {sequence_parallel = how.sequence_parallel, context = how.context})
  local program = zt.program(model, {precision = "fp64", eval_micro_batches = 2})
  if how.stages then program = program:apply(pipe.split{axis = how.stages}) end
  if mesh then program = program:apply(zero.shard{axis = mesh.dp, stage = how.stage}) end
  return zt.trainer(program, {separate = not mesh, optimizer = optim.sgd{lr = 0.1}})
end

local function places(list) return zt.tensor(list, {dtype = "int64"}) end

function TestTile.test_logits_of_some_tokens()
  local options, last = MODELS[2], TOKENS - 1
  local tokens = batch(1, nil, options.vocab).tokens
  local wanted = trainer_of(options):infer{tokens = tokens}.logits
  local some = places{{0, last}, {3, 3}, {last, 1}, {2, 4}}
  local hows = {{}, {mesh = cut_tokens, tensor = cut_tokens.tp, context = {axis = cut_tokens.cp}}}
  for number, mesh in ipairs(meshes) do
    local stages = number == 4 and mesh.pp or nil
    hows[#hows + 1] = {mesh = mesh, tensor = mesh.tp, stages = stages}
    hows[#hows + 1] = {mesh = mesh, tensor = mesh.tp, stages = stages, sequence_parallel = true, stage = 3}
  end
  for _, how in ipairs(hows) do
    local first, count = 0, tokens:size(0)
    if how.mesh then
      count = count / how.mesh.dp.size
      first = how.mesh.dp.rank * count
    end
    local function own(field) return field:narrow(0, first, count):contiguous() end
    if count >= 2 then
      local logits = trainer_of(options, how):infer{tokens = own(tokens), logits_of = own(some)}.logits
      lu.assertEquals(logits:size(), {count, 2, options.vocab})
      for sample = 0, count - 1 do
        for i, place in ipairs(some[first + sample]:tolist()) do
          local difference = logits:select(0, sample):select(0, i - 1) - wanted:select(0, first + sample):select(0, place)
          lu.assertTrue(difference:abs():max():item() < 1e-12)
        end
      end
    end
  end
end

function TestTile.test_refuses_places_on_all_ranks()
  local options, mesh = MODELS[2], meshes[1]
  local tokens = batch(1, nil, options.vocab).tokens
  local hows = {{mesh = mesh, tensor = mesh.tp}}
  local line = comm.mesh{pp = zt.world.size, dp = 1}
  if zt.world.size <= 2 then hows[2] = {mesh = line, stages = line.pp} end
  for _, how in ipairs(hows) do
    local trainer = trainer_of(options, how)
    local function refused(text, given)
      lu.assertErrorMsgContains(text, function() trainer:infer{tokens = tokens, logits_of = given} end)
    end
    refused("logits_of names the token 9 at sample 0, index 1, but samples have 9 tokens", places{{0, 9}, {0, 0}, {0, 0}, {0, 0}})
    refused("logits_of names the token -1 at sample 1", places{{0, 8}, {0, -1}, {0, 0}, {0, 0}})
    refused("logits_of must be int64 [samples, n]", zt.zeros{4, 1})
    refused("logits_of must be int64 [samples, n]", places{0, 0, 0, 0})
    lu.assertEquals(trainer:infer{tokens = tokens, logits_of = places{{0}, {0}, {0}, {0}}}.logits:size(), {4, 1, options.vocab})
  end
end

-- Training and evaluation have the losses of all tokens.
function TestTile.test_logits_of_is_for_generation()
  local options = MODELS[2]
  local trainer = trainer_of(options)
  local given = batch(1, nil, options.vocab)
  local wanted = trainer:evaluate(given).loss
  given.logits_of = zt.zeros({4, 1}, {dtype = "int64"})
  lu.assertEquals(trainer:evaluate(given).loss, wanted)
end

-- Returns a head in Lua that gives the logits of all tokens, and one that asks for `logits_of`. Each notes how many it gives.
local function heads(seen)
  local function head(forward)
    return nn.layer{params = {w = zt.randn({17, 8}, {seed = 5})}, io = {inputs = {"h"}, outputs = {"logits"}},
                    forward = function(self, h, ctx)
                      local logits = forward(self, h, ctx)
                      seen[#seen + 1] = logits:size(1)
                      return logits
                    end}
  end
  return head(function(self, h) return zt.linear(h, self.w) end), head(function(self, h, ctx)
    return zt.linear(h:narrow(1, ctx:batch("logits_of"):item(), 1), self.w)
  end)
end

function TestTile.test_generates_with_a_head_that_gives_all_logits()
  local texts = {}
  for _, asks in ipairs{false, true} do
    local seen = {}
    local all, last = heads(seen)
    local model = nn.sequential{{"embedding", nn.embedding{vocab = 17, hidden = 8}}, {"block", nn.block{hidden = 8, heads = 2}},
                                {"head", asks and last or all}, seed = 1}
    local trainer = zt.trainer(zt.program(model), {separate = true, optimizer = optim.sgd{lr = 0.1}})
    texts[#texts + 1] = zt.generate(trainer, {3, 1, 4}, {seq = 5, max_tokens = 4, temperature = 0})
    lu.assertEquals(seen, asks and {1, 1, 1, 1} or {3, 4, 5, 5})
  end
  lu.assertEquals(texts[1], texts[2])
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestTile", TestTile}})
