-- Tests attention whose tokens are cut over the ranks of a mesh axis, beside the same model on one rank. Also runs on two and
-- four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local one_rank = require "support.one_rank"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local ranks = zt.world.size
local SAMPLES, VOCAB = 2, 17
local METHODS = {"ring", "gather", "ulysses"}
local meshes = {comm.mesh{dp = 1, cp = -1, tp = 1}}
if ranks == 4 then
  meshes[2] = comm.mesh{dp = 2, cp = 2, tp = 1}
  meshes[3] = comm.mesh{dp = 1, cp = 2, tp = 2}
end

-- The global batch, or the part of a data-parallel rank. The labels of the first tokens are ignored: with contiguous tokens, all
-- those of the first rank of four. Packed documents begin at other tokens in each sample.
local function batch(step, dp, how)
  local tokens = how.tokens or 33
  local generator = zt.generator(step)
  local fields = {tokens = zt.randint(VOCAB, {SAMPLES, tokens}, {generator = generator, dtype = "int64"}),
                  labels = zt.randint(VOCAB, {SAMPLES, tokens}, {generator = generator, dtype = "int64"})}
  fields.labels:narrow(1, 0, 10):fill_(-100)
  if how.packed then
    fields.segments = zt.zeros({SAMPLES, tokens}, {dtype = "int64"})
    fields.positions = fields.segments:clone()
    for sample = 0, SAMPLES - 1 do
      local begin = 0
      for segment, length in ipairs{7 + sample, 12, tokens - 19 - sample} do
        fields.segments:select(0, sample):narrow(0, begin, length):fill_(segment)
        fields.positions:select(0, sample):narrow(0, begin, length):copy_(zt.arange(length))
        begin = begin + length
      end
    end
  end
  if not dp then return fields end
  local count = SAMPLES / dp.size
  for name, field in pairs(fields) do fields[name] = field:narrow(0, dp.rank * count, count):contiguous() end
  return fields
end

-- All that attention may have.
local MODELS = {
  {family = "gpt2", heads = 4, hidden = 16, dropout = 0.2},
  {family = "llama", heads = 6, kv_heads = 3, hidden = 12, head_dim = 4, ffn = 13, qk_norm = true, window = 9},
  {family = "llama", heads = 8, kv_heads = 2, hidden = 12, head_dim = 2, ffn = 11, window = {0, 5}, packed = true,
   dropout = 0.1},
  {family = "llama", heads = 5, kv_heads = 1, hidden = 8, head_dim = 2, ffn = 9, causal = false, packed = true,
   rope_scaling = {type = "linear", factor = 2}, qkv_bias = true},
  {alone = true, heads = 6, kv_heads = 2, hidden = 12, dropout = 0.2, rotary = true, window = 11, packed = true},
  {alone = true, heads = 4, hidden = 8, dropout = 0.3},
}

-- Returns a model of attention without blocks, in which nothing but its weights has dropout.
local function attention_alone(options)
  local layers = {{"embedding", nn.embedding{vocab = VOCAB, hidden = options.hidden, std = 0.3}}, seed = 3}
  for i = 1, 2 do layers[i + 1] = {"attention" .. i, nn.attention(options)} end
  layers[4] = {"head", nn.lm_loss{vocab = VOCAB, hidden = options.hidden}}
  return nn.sequential(layers)
end

local function model_of(options, mesh, context)
  local all = {std = 0.3, tensor = mesh and mesh.tp, context = mesh and {axis = mesh.cp}}
  for key, value in pairs(options) do
    if key ~= "packed" and key ~= "alone" then all[key] = value end
  end
  for key, value in pairs(mesh and context or {}) do all.context[key] = value end
  if options.alone then return attention_alone(all) end
  all.layers, all.seq, all.seed, all.vocab = 2, 40, 3, VOCAB
  return nn.gpt(all)
end

local function train(options, mesh, how)
  how = how or {}
  local program = zt.program(model_of(options, mesh, how.context), {precision = how.precision or "fp64"})
  if mesh then program = program:apply(zero.shard{axis = mesh.dp, stage = how.stage or 0}) end
  if how.recompute then program = program:apply(zt.recompute{}) end
  local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, clip = 0.5, separate = not mesh})
  local function own(step) return batch(step, mesh and mesh.dp, {tokens = how.tokens, packed = options.packed}) end
  return one_rank.run(trainer, own), trainer
end

local TestContextParallel = {}

function TestContextParallel:test_trains_as_one_rank()
  for index, options in ipairs(MODELS) do
    local wanted, alone = train(options)
    for number, mesh in ipairs(meshes) do
      for place, method in ipairs(METHODS) do
        local layouts = {"balanced", "contiguous"}
        if ranks == 4 then layouts = {layouts[1 + (place + math.floor(index / 2)) % 2]} end -- two ranks take both
        for _, layout in ipairs(layouts) do
          local heads = math.floor(options.heads / (number == 3 and 2 or 1))
          if method ~= "ulysses" or heads >= mesh.cp.size then
            local stage = (index + place + number) % 4
            local what = ("model %d, mesh %d, %s, %s, stage %d"):format(index, number, method, layout, stage)
            local results, trainer = train(options, mesh, {context = {method = method, layout = layout}, stage = stage,
                                                           recompute = stage == 2})
            one_rank.assert_trains_alike(results, trainer, wanted, alone, what)
          end
        end
      end
    end
  end
end

function TestContextParallel:test_token_counts_that_do_not_divide()
  for _, tokens in ipairs{31, 32} do
    local wanted = train(MODELS[3], nil, {tokens = tokens})
    for _, method in ipairs(METHODS) do
      one_rank.assert_close(train(MODELS[3], meshes[1], {tokens = tokens, context = {method = method}}), wanted, method)
    end
  end
end

function TestContextParallel:test_a_method_per_block()
  local wanted = train(MODELS[1])
  local seen = {}
  local function method(block)
    seen[#seen + 1] = block
    return block == 0 and "gather" or "ring"
  end
  one_rank.assert_close(train(MODELS[1], meshes[1], {context = {method = method}}), wanted, "per block")
  lu.assertEquals(seen, {0, 1})
end

function TestContextParallel:test_some_heads_at_once_have_the_bits_of_all()
  for _, precision in ipairs{"fp64", "bf16"} do
    for _, number in ipairs{2, 3} do -- three and two key heads, which several query heads share
      for _, method in ipairs{"ring", "gather"} do
        local function run(heads_at_once)
          local context = {method = method, heads_at_once = heads_at_once}
          return (train(MODELS[number], meshes[#meshes], {context = context, precision = precision}))
        end
        local wanted = run()
        for _, heads in ipairs{1, 2, 5} do lu.assertEquals(run(heads), wanted) end
      end
    end
  end
  local function method(block) return block == 0 and "ulysses" or "ring" end
  one_rank.assert_close(train(MODELS[3], meshes[1], {context = {method = method, heads_at_once = 1}}), train(MODELS[3]), "mixed")
end

function TestContextParallel:test_stages_and_recompute_have_the_same_bits()
  for _, method in ipairs(METHODS) do
    one_rank.assert_same_bits_of_stages(function(how)
      how.context = {method = method}
      return (train(MODELS[3], meshes[1], how))
    end)
  end
end

function TestContextParallel:test_is_planned_and_simulated()
  for _, options in ipairs(MODELS) do
    for _, method in ipairs(METHODS) do
      local mesh = meshes[#meshes]
      local program = zt.program(model_of(options, mesh, {method = method})):apply(zero.shard{axis = mesh.dp, stage = 1})
      local fields = batch(1, mesh.dp, options)
      lu.assertTrue(program:simulate{costs = "h200", batch = fields}.seconds > 0)
      zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}}):step(fields)
    end
  end
end

-- The last of the ranks with contiguous tokens has the most causal attention, and the step ends with it.
function TestContextParallel:test_contiguous_tokens_are_simulated_to_take_longer()
  if ranks == 1 then return end
  local function simulated(layout, window, seq)
    local mesh = meshes[1]
    local model = nn.gpt{layers = 2, hidden = 64, heads = 2, vocab = 17, seq = 2048, family = "llama", window = window,
                         context = layout and {axis = mesh.cp, layout = layout}}
    local tokens = zt.zeros({1, seq or 2048}, {dtype = "int64"})
    local program = zt.program(model)
    if layout then program = program:apply(zero.shard{axis = mesh.dp}) end
    return program:simulate{costs = "h200", batch = {tokens = tokens, labels = tokens}}
  end
  local contiguous, balanced = simulated "contiguous", simulated "balanced"
  lu.assertTrue(contiguous.seconds > balanced.seconds)
  for _, window in ipairs{0, 300} do -- the work of all ranks is that of one
    for _, seq in ipairs{2048, 250} do
      local wanted = simulated(nil, window, seq).work.flops
      for _, layout in ipairs{"balanced", "contiguous"} do
        lu.assertAlmostEquals(simulated(layout, window, seq).work.flops / wanted, 1, 1e-9)
      end
    end
  end
end

function TestContextParallel:test_generates_from_whole_samples()
  local function generated(mesh)
    local program = zt.program(model_of(MODELS[2], mesh), {precision = "fp64"})
    if mesh then program = program:apply(zero.shard{axis = mesh.dp}) end
    return zt.generate(zt.trainer(program, {separate = not mesh}), {3, 1, 4}, {seq = 20, max_tokens = 8})
  end
  lu.assertEquals(generated(meshes[1]), generated())
end

function TestContextParallel:test_refusals()
  local function refused(text, fn, ...) lu.assertErrorMsgContains(text, fn, ...) end
  local mesh = meshes[1]
  refused("context.method must be one of 'ring', 'gather', 'ulysses', got 'rings'", nn.attention,
          {hidden = 8, heads = 4, context = {axis = mesh.cp, method = "rings"}})
  refused("context.layout must be one of", nn.attention, {hidden = 8, heads = 4, context = {axis = mesh.cp, layout = "zigzag"}})
  refused("context.heads_at_once has an effect only with method = \"ring\" or \"gather\"", nn.attention,
          {hidden = 8, heads = 4, context = {axis = mesh.cp, method = "ulysses", heads_at_once = 1}})
  refused("context: option 'axis' is missing", nn.attention, {hidden = 8, heads = 4, context = {method = "ring"}})
  refused("has an effect only with causal = true", nn.attention, {hidden = 8, heads = 4, causal = false, window = 3})
  refused("nn.attention.window must be at least 0, got -1", nn.attention, {hidden = 8, heads = 4, window = -1})
  refused("nn.gpt.window is a list of 1 number for 2 blocks", model_of, {heads = 2, hidden = 8, window = {3}})
  refused("nn.gpt.window must be at least 0, got -3", model_of, {heads = 2, hidden = 8, window = {3, -3}})
  refused("for block 0: it returned an integer: return the name of a method", model_of, MODELS[1], mesh,
          {method = function() return 1 end})
  if ranks == 1 then return end
  refused("nn.attention.context: 'dp+cp' joins several axes", nn.attention,
          {hidden = 8, heads = 4, context = {axis = mesh:join{"dp", "cp"}}})
  refused("the heads and the tokens are both cut over axis 'cp'", nn.attention,
          {hidden = 8, heads = 4, tensor = mesh.cp, context = {axis = mesh.cp}})
  refused(("the %d ranks of axis 'cp' cut the heads of a rank, 1"):format(ranks), nn.attention,
          {hidden = 8, heads = 1, context = {axis = mesh.cp, method = "ulysses"}})
  local function layers(first, second)
    return nn.sequential{{"embedding", nn.embedding{vocab = VOCAB, hidden = 8}},
                         {"a", nn.block{hidden = 8, heads = 4, context = first}},
                         {"b", nn.attention{hidden = 8, heads = 4, context = second}},
                         {"head", nn.lm_loss{vocab = VOCAB, hidden = 8}}}
  end
  refused("cut the tokens of samples differently", layers, {axis = mesh.cp}, {axis = mesh.cp, layout = "contiguous"})
  local uneven = nn.attention{hidden = 8, heads = 4, context = {axis = mesh.cp, layout = "contiguous"}}
  local model = nn.sequential{{"embedding", nn.embedding{vocab = VOCAB, hidden = 8}}, {"a", uneven},
                              {"head", nn.lm_loss{vocab = VOCAB, hidden = 8}}}
  local report = zt.trainer(zt.program(model):apply(zero.shard{axis = mesh.dp}), {optimizer = optim.sgd{lr = 0.1}}):report()
  lu.assertStrContains(report, "assumes   attention: with layout = \"contiguous\", the ranks of axis 'cp' compute ")
  refused("the layer 'b' (attention) would miss the tokens of other ranks: 'a' cuts the tokens of samples along 'cp'", layers,
          {axis = mesh.cp})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestContextParallel", TestContextParallel}})
