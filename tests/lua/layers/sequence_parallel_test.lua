-- Tests sequence parallelism: between the matrices each rank of the axis `tp` has a share of the tokens. Also runs on two and
-- four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local cut_runs = require "layers.cut_runs"
local one_rank = require "support.one_rank"
local nn, optim, zero = require "zt.nn", require "zt.optim", require "zt.zero"

local batch, model_of, train, MODELS, TOKENS = cut_runs.batch, cut_runs.model_of, cut_runs.train, cut_runs.MODELS, cut_runs.TOKENS
local ranks = zt.world.size
local meshes = cut_runs.meshes()
local SEQUENCE = {sequence_parallel = true}

local TestSequenceParallel = {}

function TestSequenceParallel:test_trains_as_one_rank()
  cut_runs.compare_with_one_rank(SEQUENCE)
end

-- Layers between nn.attention_block and nn.residual know nothing of it.
function TestSequenceParallel:test_layers_in_lua_see_all_tokens()
  local function mlp(i)
    if i == 0 then return nil end
    return {{"mix", nn.layer{params = {w = zt.randn({12, 12}, {generator = zt.generator(4)}):mul(0.3)},
                             forward = function(layer, h) return zt.linear(h - h:mean(1, true), layer.w):tanh() end}},
            {"norm", nn.rmsnorm{hidden = 12}}}
  end
  for _, options in ipairs{MODELS[1], MODELS[3]} do
    local mixed = {mlp = mlp}
    for key, value in pairs(options) do mixed[key] = value end
    local wanted = train(mixed)
    for number, mesh in ipairs(meshes) do
      if number < 4 and mesh.tp.size <= options.heads then
        one_rank.assert_close(train(mixed, mesh, {stage = 2, dp = mesh.dp, model = SEQUENCE}), wanted, "mesh " .. number)
      end
    end
  end
end

-- With fewer tokens than ranks, some have none.
function TestSequenceParallel:test_few_tokens()
  local mesh = meshes[1]
  local function losses(cut)
    local program = zt.program(model_of(MODELS[2], cut and mesh.tp or nil, cut and SEQUENCE or nil), {precision = "fp64"})
    if cut then program = program:apply(zero.shard{axis = mesh.dp}) end
    local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, separate = not cut})
    return one_rank.run(trainer, function(step)
      local whole = batch(step, nil, 127)
      local labels = whole.labels:narrow(1, 4, 1):contiguous()
      return {tokens = whole.tokens:narrow(1, 0, 1):contiguous(), labels = labels}
    end)
  end
  one_rank.assert_close(losses(true), losses(false), "one token")
end

-- Frozen matrices need no gradient, so the backward does not gather their inputs again: two per block, and the head's.
function TestSequenceParallel:test_frozen_matrices()
  local mesh, options, layers = meshes[1], MODELS[3], 2
  local function trainer_of(cut, pattern, selective)
    local more = {sequence_parallel = cut or nil, recompute = selective and "selective" or nil}
    local model = model_of(options, cut and mesh.tp or nil, more)
    if pattern then lu.assertTrue(model:freeze(pattern) > 0) end
    local program = zt.program(model, {precision = "fp64"})
    if cut then program = program:apply(zero.shard{axis = mesh.dp, stage = 1}) end
    return zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, separate = not cut})
  end
  local function run(trainer) return one_rank.run(trainer, function(step) return batch(step, nil, options.vocab) end) end
  local function bytes(trainer) return trainer:plan(batch(1, nil, options.vocab))[1].along.tp end
  local FROZEN = "blocks.*(qkv|up|gate)|head.weight"
  for _, selective in ipairs{false, true} do
    one_rank.assert_close(run(trainer_of(true, FROZEN, selective)), run(trainer_of(false, FROZEN)), "frozen")
  end
  if ranks == 1 then return end
  local all, frozen = bytes(trainer_of(true)), bytes(trainer_of(true, FROZEN))
  local tokens = cut_runs.SAMPLES * math.ceil(TOKENS / ranks) * ranks -- gathers send as much for each rank as for the first
  lu.assertEquals(all - frozen, (2 * layers + 1) * tokens * options.hidden * (ranks - 1) / ranks * 8)
end

function TestSequenceParallel:test_has_the_bits_of_its_stages()
  local mesh = meshes[2] or meshes[1]
  one_rank.assert_same_bits_of_stages(function(how)
    how.dp, how.model = mesh.dp, SEQUENCE
    return (train(MODELS[1], mesh, how))
  end)
end

function TestSequenceParallel:test_generates_and_is_planned()
  local options, mesh = MODELS[2], meshes[1]
  local function text(tensor)
    local program = zt.program(model_of(options, tensor, tensor and SEQUENCE), {precision = "fp64"})
    if tensor then program = program:apply(zero.shard{axis = mesh.dp}) end
    if tensor then lu.assertTrue(program:simulate{costs = "h200", batch = batch(1, nil, options.vocab)}.seconds > 0) end
    return zt.generate(zt.trainer(program, {separate = not tensor}), {3, 1, 4}, {seq = TOKENS, max_tokens = 8})
  end
  lu.assertEquals(text(mesh.tp), text())
end

-- The parts of sums in fp32 are nearer to fp64 than those in bf16; in fp64 they change nothing.
function TestSequenceParallel:test_type_of_parts_of_sums()
  local mesh = meshes[1]
  local function distance(options, precision, wanted)
    local results, sum = train(MODELS[2], mesh, {dp = mesh.dp, precision = precision, model = options}), 0
    for step, numbers in ipairs(wanted) do sum = sum + math.abs(results[step][1] - numbers[1]) end
    return sum, results
  end
  local _, wanted = distance({}, "fp64", {})
  for _, sequence in ipairs{false, true} do
    local options = {sequence_parallel = sequence}
    lu.assertTrue(distance({sequence_parallel = sequence, tp_dtype = "fp64"}, "fp64", wanted) < 1e-12)
    local fine = distance({sequence_parallel = sequence, tp_dtype = "fp32"}, "fp32", wanted)
    local coarse = distance({sequence_parallel = sequence, tp_dtype = "bf16"}, "fp32", wanted)
    lu.assertTrue(ranks == 1 or fine < 0.1 * coarse, ("%g, %g"):format(fine, coarse))
    lu.assertEquals(fine, (distance(options, "fp32", wanted)))
  end
end

function TestSequenceParallel:test_refusals()
  lu.assertErrorMsgContains("has an effect only with tensor", nn.embedding, {vocab = 17, hidden = 8, sequence_parallel = true})
  if ranks == 1 then return end
  local tp = meshes[1].tp
  local function embedding() return nn.embedding{vocab = 17, hidden = 8, tensor = tp, sequence_parallel = true} end
  local function block(sequence) return nn.block{hidden = 8, heads = 4, tensor = tp, sequence_parallel = sequence} end
  local text = "outputs to each rank %s of 'h', and '%s' (%s), which reads it, takes %s"
  lu.assertErrorMsgContains(text:format("its tokens along 'tp'", "1", "layernorm", "all tokens"), nn.sequential,
                            {embedding(), nn.layernorm{hidden = 8}, nn.lm_loss{vocab = 17, hidden = 8}})
  lu.assertErrorMsgContains(text:format("its tokens along 'tp'", "1", "block", "all tokens"), nn.sequential,
                            {embedding(), block()})
  lu.assertErrorMsgContains(text:format("all tokens", "1", "block", "its tokens along 'tp'"), nn.sequential,
                            {nn.embedding{vocab = 17, hidden = 8}, block(true)})
  lu.assertErrorMsgContains("has some tokens of the residual stream only", nn.layer,
                            {layers = {inner = block(true)},
                             forward = function(layer, h, ctx) return layer.inner:forward(h, ctx) end})
  -- Gradients of norms need a sum over the axis.
  local program = zt.program(model_of(MODELS[2], tp, SEQUENCE), {mesh = meshes[1]})
  lu.assertErrorMsgContains("zero.shard", zt.trainer, program, {optimizer = optim.sgd{lr = 0.1}})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestSequenceParallel", TestSequenceParallel}})
