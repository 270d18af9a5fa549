-- Tests `recompute = "selective"` of blocks, and that the inputs of cut matrices are gathered again: both keep less for the
-- backward and change no bit. Also runs on two and four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local cut_runs = require "layers.cut_runs"
local one_rank = require "support.one_rank"
local nn, optim, zero = require "zt.nn", require "zt.optim", require "zt.zero"

local MODELS, batch = cut_runs.MODELS, cut_runs.batch
local meshes = cut_runs.meshes()
local SELECTIVE = {recompute = "selective"}

local TestSelectiveRecompute = {}

local function with(options, more)
  local all = {}
  for _, given in ipairs{options, more} do
    for key, value in pairs(given) do all[key] = value end
  end
  return all
end

function TestSelectiveRecompute:test_changes_no_bit()
  for index, options in ipairs(MODELS) do
    for _, precision in ipairs{"fp32", "bf16"} do
      local function train(more) return (cut_runs.train(with(options, more), nil, {precision = precision})) end
      lu.assertEquals(train(SELECTIVE), train{}, ("model %d, %s"):format(index, precision))
      lu.assertEquals(train(with(SELECTIVE, {window = 3})), train{window = 3})
    end
  end
end

-- With recompute of whole layers and split backwards, too.
function TestSelectiveRecompute:test_changes_no_bit_beside_other_passes()
  local function losses(more, pass)
    local program = zt.program(cut_runs.model_of(MODELS[1], nil, more), {micro_batches = 2, precision = "fp32"})
    if pass then program = program:apply(pass) end
    local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, separate = true})
    return one_rank.run(trainer, function(step) return batch(step, nil, MODELS[1].vocab) end)
  end
  local wanted = losses{}
  for _, pass in ipairs{zt.recompute{}, zt.split_backward()} do lu.assertEquals(losses(SELECTIVE, pass), wanted) end
end

function TestSelectiveRecompute:test_changes_no_bit_of_cut_layers()
  for number, mesh in ipairs(meshes) do
    for _, more in ipairs{{}, {sequence_parallel = true}, {sequence_parallel = true, overlap = true}, {overlap = true}} do
      for _, options in ipairs{MODELS[1], MODELS[3]} do
        if options.heads >= mesh.tp.size and number < 4 then
          local function train(given)
            return (cut_runs.train(options, mesh, {dp = mesh.dp, stage = number, precision = "bf16", model = given}))
          end
          lu.assertEquals(train(with(more, SELECTIVE)), train(with(more, {overlap = false})), "mesh " .. number)
        end
      end
    end
  end
end

-- Layers between nn.attention_block and nn.residual keep what they need themselves.
function TestSelectiveRecompute:test_blocks_of_several_layers()
  local function mlp() return {{"mlp", nn.mlp{hidden = 12, ffn = 7, std = 0.3}}} end
  local function train(more) return (cut_runs.train(with(with(MODELS[1], {mlp = mlp}), more), nil, {precision = "fp32"})) end
  lu.assertEquals(train(SELECTIVE), train{})
end

-- Returns the planned peak of the activations of a step, in bytes. Besides, communicators have staging of a constant size.
local function activations(options, mesh, layers)
  local size = {layers = layers or 4, hidden = 64, heads = 4, vocab = 16, seq = 128, seed = 1, tensor = mesh and mesh.tp}
  local gpt = nn.gpt(with(size, options))
  local program = zt.program(gpt, {precision = "fp32"})
  if mesh then program = program:apply(zero.shard{axis = mesh.dp}) end
  local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}, separate = not mesh})
  local tokens = zt.arange(4 * 128):remainder(16):view({4, 128}):to "int64"
  trainer:step{tokens = tokens, labels = tokens}
  local found = trainer:memory().activations
  local more = found.measured - found.predicted
  lu.assertTrue(more >= 0 and more < 0.01 * found.predicted + (mesh and 300000 or 0),
    ("predicted %d, measured %d"):format(found.predicted, found.measured))
  return found.predicted
end

-- Of what a token needs in a block of gpt2, 12 vectors of hidden columns without dropout, three are made again: the results of
-- both norms and of the attention core. With Q/K norms there are three more, of which all are made again; a mask has a byte per
-- element. Besides, attention has a number per token and head, and so have norms of heads, of queries and of keys.
function TestSelectiveRecompute:test_keeps_less()
  local VECTOR = 4 * 128 * 64 * 4 -- bytes of one vector per token
  for _, case in ipairs{{{}, 3, 4}, {{qk_norm = true}, 6, 12}, {{dropout = 0.1}, 3.5, 4}, {{norm = "none"}, 1, 4}} do
    local options, fewer = case[1], case[2] + case[3] / 64
    local function of_block(more) return (activations(more, nil, 6) - activations(more, nil, 2)) / 4 end
    local saved = (of_block(options) - of_block(with(options, SELECTIVE))) / VECTOR
    lu.assertTrue(math.abs(saved - fewer) < 0.01, ("saves %.2f vectors per block, wanted %g"):format(saved, fewer))
  end
end

-- Without sequence parallelism 8 vectors per token are kept on each of two ranks, with it 6.
function TestSelectiveRecompute:test_gathers_inputs_again()
  local mesh = meshes[1]
  if mesh.tp.size ~= 2 then return end
  local function of_layer(options) return (activations(options, mesh, 6) - activations(options, mesh, 2)) / 4 end
  local part = of_layer{sequence_parallel = true} / of_layer{}
  lu.assertTrue(part > 0.74 and part < 0.76, ("keeps %.3f of the activations"):format(part))
end

function TestSelectiveRecompute:test_messages()
  lu.assertErrorMsgContains('recompute', nn.block, {hidden = 8, heads = 2, recompute = "all"})
  lu.assertErrorMsgContains("with tensor", nn.block, {hidden = 8, heads = 2, overlap = true})
end


os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestSelectiveRecompute", TestSelectiveRecompute}})
