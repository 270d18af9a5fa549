-- Tests experts beside cut matrices and cut tokens: the axes tp and cp, with ep, dp and stages, beside the same model on one
-- rank. Also runs on two and four ranks, and on six and eight threads.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local one_rank, temporary = require "support.one_rank", require "support.temporary"
local ckpt, comm, moe, nn = require "zt.ckpt", require "zt.comm", require "zt.moe", require "zt.nn"
local optim, pipe, zero = require "zt.optim", require "zt.pipe", require "zt.zero"

local ranks = zt.world.size
local SAMPLES, TOKENS, VOCAB, HIDDEN, EXPERTS = 4, 11, 17, 16, 4

-- The sizes of axes, without those of one rank.
local SIZES = {
  [1] = {{}},
  [2] = {{tp = 2}, {cp = 2}},
  [4] = {{ep = 2, tp = 2}, {ep = 2, cp = 2}, {cp = 2, tp = 2}, {dp = 2, tp = 2}, {tp = 4}, {pp = 2, tp = 2}, {pp = 2, cp = 2}},
  [6] = {{ep = 2, tp = 3}, {ep = 2, cp = 3}},
  [8] = {{ep = 2, cp = 2, tp = 2}, {dp = 2, ep = 2, tp = 2}},
}
local meshes = {}
for number, sizes in ipairs(SIZES[ranks]) do
  local all = {dp = 1, ep = 1, cp = 1, tp = 1, pp = 1, order = {"pp", "dp", "ep", "cp", "tp"}}
  for name, size in pairs(sizes) do all[name] = size end
  if number % 2 == 0 then all.order = {"tp", "ep", "cp", "dp", "pp"} end
  meshes[number] = comm.mesh(all)
end

-- All that routers and experts may have. `mask` and `routes` say which fields a batch has.
local PER_BATCH = {balance = 0.1, per = "batch", z = 0.02}
local MODELS = {
  {family = "gpt2", heads = 4, moe = {ffn = 13, shared = {ffn = 7, gate = true},
                                      router = {losses = {balance = 0.1, z = 0.01}, noise = "jitter"}}},
  {family = "llama", heads = 4, kv_heads = 2, moe = {ffn = 9, residual = {ffn = 5}, bias = true,
                                                     router = {score = "sigmoid", normalise = "selected", bias = true,
                                                               bias_rate = 0.01, losses = PER_BATCH}},
   run = {dispatcher = "all_gather"}, per_batch = true},
  {family = "gpt2", heads = 4, dropout = 0.1, mask = true,
   moe = {ffn = 8, blocks = {1}, activation = "relu", router = {noise = "gumbel_second", losses = {balance = 0.3, z = 0.1,
                                                                                                  of = "first"}}}},
  {family = "llama", heads = 4, moe = {ffn = 6, router = {noise = "noisy_top_k", softmax_after = true}}},
  {family = "llama", heads = 4, mask = true, moe = {ffn = 7, top_k = 1, router = {noise = "gumbel", losses = PER_BATCH}},
   per_batch = true},
  {family = "gpt2", heads = 4, moe = {ffn = 10, router = {routes = "balanced"}}},
  {family = "gpt2", heads = 4, routes = true, moe = {ffn = 5, router = {routes = "routes", losses = {balance = 0.2}}}},
}

-- The global batch, or the part of a rank with other samples. All labels of the first tokens are ignored. With `mask`, the tokens
-- of samples count in other numbers, and one sample has none.
local function batch(step, data, options)
  local generator = zt.generator(step)
  local function drawn(count, shape) return zt.randint(count, shape, {generator = generator, dtype = "int64"}) end
  local fields = {tokens = drawn(VOCAB, {SAMPLES, TOKENS}), labels = drawn(VOCAB, {SAMPLES, TOKENS})}
  fields.labels:narrow(1, 0, 2):fill_(-100)
  if options.mask then
    fields.loss_mask = drawn(3, {SAMPLES, TOKENS}):gt(0):to "float32"
    fields.loss_mask:narrow(0, 1, 1):fill_(0)
  end
  if options.routes == "two experts" then
    fields.routes = zt.arange(2):view({1, 1, 2}):expand({SAMPLES, TOKENS, 2}):to "int64":contiguous()
  elseif options.routes then
    local first = drawn(EXPERTS, {SAMPLES, TOKENS, 1})
    fields.routes = zt.cat({first, (first + 1 + drawn(EXPERTS - 1, {SAMPLES, TOKENS, 1})):remainder(EXPERTS)}, 2)
  end
  if not data then return fields end
  local count = SAMPLES / data.size
  for name, field in pairs(fields) do fields[name] = field:narrow(0, data.rank * count, count):contiguous() end
  return fields
end

local function copied(value)
  if type(value) ~= "table" then return value end
  local copy = {}
  for key, inner in pairs(value) do copy[key] = copied(inner) end
  return copy
end

local FIELDS = {"tokens", "labels", "positions", "segments", "loss_mask", "routes"}

-- Returns a model, on one rank or cut over the axes of a mesh.
local function model_of(options, mesh, how)
  local given = {layers = 2, hidden = HIDDEN, vocab = VOCAB, seq = TOKENS, seed = 3, std = 0.3, family = options.family,
                 heads = options.heads, kv_heads = options.kv_heads, dropout = options.dropout, moe = copied(options.moe)}
  given.moe.experts, given.moe.std = EXPERTS, 0.5
  if options.per_batch then given.moe.router.batch_axes = mesh and {"dp", "ep"} or nil end
  if options.per_batch and not mesh then given.moe.router.losses.per = "micro_batch" end -- the whole batch
  local run = copied(options.run) or {}
  if mesh then
    run.axis, run.tensor, run.sequence_parallel = mesh.ep, mesh.tp, how.sequence_parallel
    run.context = {axis = mesh.cp, layout = how.layout, fields = FIELDS, method = how.method}
  end
  return moe.gpt(given, run)
end

local function program_of(options, mesh, how)
  local program = zt.program(model_of(options, mesh, how), {precision = how.precision or "fp64"})
  if mesh and mesh.pp.size > 1 then program = program:apply(pipe.split{axis = mesh.pp}) end
  if mesh then program = program:apply(zero.shard{axis = mesh:join{"dp", "ep"}, stage = how.stage}) end
  return how.recompute and program:apply(zt.recompute{}) or program
end

-- Returns the numbers of one_rank.run, the trainer, and the statistics of a further step.
local function train(options, mesh, how)
  how = how or {}
  local trainer = zt.trainer(program_of(options, mesh, how),
                             {optimizer = optim.adamw{lr = 0.01}, clip = 0.5, separate = not mesh})
  local data = mesh and mesh:join{"dp", "ep"} or nil
  local results = one_rank.run(trainer, function(step) return batch(step, data, options) end)
  return results, trainer, trainer:step(batch(11, data, options)).stats
end

-- Fails unless a run has the statistics of routers that one rank has.
local function assert_same_stats(stats, wanted, what)
  for name, number in pairs(wanted) do
    local values, others = type(number) == "table" and number or {number}, stats[name]
    if type(others) ~= "table" then others = {others} end
    for i, value in ipairs(name:find "seconds" and {} or values) do
      lu.assertAlmostEquals(others[i], value, 1e-10 * (1 + math.abs(value)), what .. ": " .. name)
    end
  end
end

local TestMoeCut = {}

function TestMoeCut:test_trains_as_one_rank()
  for index, options in ipairs(MODELS) do
    local wanted, alone, wanted_stats = train(options)
    for number, mesh in ipairs(meshes) do
      local stage, sequence_parallel = (index + number) % 4, mesh.tp.size > 1 and (2 * index + number) % 4 < 2
      local how = {stage = stage, sequence_parallel = sequence_parallel or nil, recompute = stage == 2,
                   layout = index % 2 == 0 and "contiguous" or "balanced", method = index % 3 == 0 and "gather" or "ring"}
      local what = ("model %d, mesh %d, stage %d%s"):format(index, number, stage, sequence_parallel and ", sequence" or "")
      local results, trainer, stats = train(options, mesh, how)
      one_rank.assert_trains_alike(results, trainer, wanted, alone, what)
      assert_same_stats(stats, wanted_stats, what)
    end
  end
end

-- The experts of some ranks get no token.
function TestMoeCut:test_experts_without_tokens()
  local options = {family = "gpt2", heads = 4, routes = "two experts", moe = {ffn = 5, router = {routes = "routes"}}}
  local wanted, alone = train(options)
  for number, mesh in ipairs(meshes) do
    for _, dispatcher in ipairs{"all_to_all", "all_gather"} do
      options.run = {dispatcher = dispatcher}
      local results, trainer = train(options, mesh, {stage = number % 4})
      one_rank.assert_trains_alike(results, trainer, wanted, alone, ("mesh %d, %s"):format(number, dispatcher))
    end
  end
end

function TestMoeCut:test_stages_and_recompute_have_the_same_bits()
  if ranks > 4 then return end -- two and four ranks show it in less time
  for _, options in ipairs{MODELS[1], MODELS[4]} do
    one_rank.assert_same_bits_of_stages(function(how) return (train(options, meshes[1], how)) end)
  end
end

-- Weight gradients, and those of biases after the sums, are computed in actions of their own.
function TestMoeCut:test_schedules_that_split_the_backward()
  for number, mesh in ipairs(meshes) do
    for index, options in ipairs(mesh.pp.size > 1 and {MODELS[1], MODELS[4]} or {}) do
      local function losses(over)
        local program = zt.program(model_of(options, over, {}), {precision = "fp64", micro_batches = 4})
        if over then
          program = program:apply(pipe.split{axis = over.pp, schedule = "zb_v"}):apply(zero.shard{axis = over.dp, stage = index})
        end
        local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, clip = 0.5, separate = not over})
        return one_rank.run(trainer, function(step) return batch(step, nil, options) end)
      end
      one_rank.assert_close(losses(mesh), losses(), ("mesh %d, model %d"):format(number, index))
    end
  end
end

-- An optimizer of whole matrices gathers those of each expert over ep and tp.
function TestMoeCut:test_optimizers_of_whole_tensors()
  local function losses(mesh)
    local trainer = zt.trainer(program_of(MODELS[1], mesh, {stage = 1}), {optimizer = optim.muon{lr = 0.01}, separate = not mesh})
    local data = mesh and mesh:join{"dp", "ep"} or nil
    return one_rank.run(trainer, function(step) return batch(step, data, MODELS[1]) end)
  end
  local wanted = losses()
  for number, mesh in ipairs(meshes) do one_rank.assert_close(losses(mesh), wanted, "mesh " .. number) end
end

-- While one micro-batch sends tokens, another one sums over tp and cp.
function TestMoeCut:test_pairs_of_micro_batches_have_the_same_bits()
  local function losses(overlap, pass)
    local options = copied(MODELS[1])
    options.run = {overlap = overlap}
    local program = zt.program(model_of(options, meshes[1], {}), {precision = "fp32", micro_batches = 2})
    if pass then program = program:apply(pass) end
    local data = meshes[1]:join{"dp", "ep"}
    local trainer = zt.trainer(program:apply(zero.shard{axis = data, stage = 1, reduce_every = "step"}),
                               {optimizer = optim.adamw{lr = 0.01}})
    return one_rank.run(trainer, function(step) return batch(step, data, options) end)
  end
  lu.assertEquals(losses(true, zt.pair_micro_batches()), losses(false))
end

-- The ranks of cp may share the experts, too: each has other tokens.
function TestMoeCut:test_experts_over_the_axis_of_tokens()
  local options = MODELS[1]
  local wanted = train(options)
  for number, mesh in ipairs(meshes) do
    if mesh.cp.size > 1 and EXPERTS % mesh.cp.size == 0 and mesh.ep.size == 1 then
      options = copied(MODELS[1])
      options.run = {axis = mesh.cp}
      local model = model_of(options, {ep = mesh.cp, tp = mesh.tp, cp = mesh.cp}, {})
      local program = zt.program(model, {precision = "fp64"}):apply(zero.shard{axis = mesh.dp, stage = number % 4})
      if mesh.pp.size == 1 then
        local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, clip = 0.5})
        one_rank.assert_close(one_rank.run(trainer, function(step) return batch(step, mesh.dp, options) end), wanted,
                              "mesh " .. number)
      end
    end
  end
end

-- Whole tensors are saved, and those of the optimizer and the router's bias with them.
function TestMoeCut:test_checkpoints_load_on_other_layouts()
  local options, folder = MODELS[2], temporary()
  local _, saved = train(options, meshes[1], {stage = 2})
  ckpt.save(folder, {model = saved}, {step = 4, async = false})
  for number, mesh in ipairs(meshes) do
    local program = program_of(options, mesh, {stage = number % 4, sequence_parallel = mesh.tp.size > 1 or nil})
    local loaded = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, clip = 0.5})
    ckpt.load(folder, {model = loaded})
    one_rank.assert_same_tensors(loaded, saved, 0, "mesh " .. number)
    local loss = loaded:evaluate(batch(9, mesh:join{"dp", "ep"}, options)).loss
    lu.assertAlmostEquals(loss / saved:evaluate(batch(9, meshes[1]:join{"dp", "ep"}, options)).loss, 1, 1e-12)
  end
end

-- In the mode generate each rank has whole samples.
function TestMoeCut:test_generates_as_one_rank()
  for _, options in ipairs{MODELS[1], MODELS[2]} do
    local function generated(mesh)
      local program = zt.program(model_of(options, mesh, {sequence_parallel = mesh and mesh.tp.size > 1 or nil}),
                                 {precision = "fp64"})
      if mesh then program = program:apply(zero.shard{axis = mesh:join{"dp", "ep"}}) end
      return zt.generate(zt.trainer(program, {separate = not mesh}), {3, 1, 4}, {seq = TOKENS, max_tokens = 6})
    end
    lu.assertEquals(generated(meshes[1]), generated())
  end
end

local function size_of(axis) return axis and axis.size or 1 end

-- Returns the bytes that a rank sends in sums of n numbers over an axis: twice all but one share.
local function sum_bytes(n, axis, bytes_per_number) return bytes_per_number * math.floor(2 * n * (axis.size - 1) / axis.size) end

function TestMoeCut:test_planned_bytes_are_those_sent()
  local mesh = meshes[1]
  local options = {family = "llama", heads = 4, moe = {ffn = 8, blocks = {1}, shared = {ffn = 6},
                                                       router = {routes = "balanced", losses = {balance = 0.1}}}}
  local data = mesh:join{"dp", "ep"}
  local trainer = zt.trainer(program_of(options, mesh, {stage = 1, precision = "fp32"}), {optimizer = optim.sgd{lr = 0.1}})
  local fields = batch(1, data, options)
  local measured = trainer:costs(fields, {steps = 1}).measured
  local rows = SAMPLES / data.size * TOKENS / size_of(mesh.cp)
  local function sent_of(layer) return measured["F blocks.1." .. layer].sent_bytes end
  if mesh.cp.size == 1 then
    lu.assertEquals(sent_of "experts", sum_bytes(2 * rows * HIDDEN, mesh.tp, 4)) -- two routes per token
    lu.assertEquals(measured["B blocks.1.experts"].sent_bytes, sum_bytes(2 * rows * HIDDEN, mesh.tp, 4))
    lu.assertEquals(sent_of "shared", sum_bytes(rows * HIDDEN, mesh.tp, 4))
    local planned = trainer:plan(fields)[1].sent
    lu.assertEquals(planned.grouped_mlp or 0, 2 * sent_of "experts")
  end
  lu.assertEquals(sent_of "router", sum_bytes(SAMPLES / data.size * (EXPERTS + 1), mesh.cp, 8))
end

-- Index tensors of the router and small temporaries are not planned. Only the experts are cut over tp. Threads share the measured
-- memory of their process.
function TestMoeCut:test_planned_memory_is_that_measured()
  if ranks > 4 then return end
  for _, bias in ipairs{true, false} do
    local mesh, hidden, seq, samples = meshes[1], 128, 64, 4
    local context = {axis = mesh.cp}
    local model = nn.gpt{layers = 2, hidden = hidden, heads = 4, vocab = VOCAB, seq = seq, context = context, mlp = function(i)
      return i == 1 and moe.layers{experts = 4, hidden = hidden, ffn = 66, bias = bias, shared = {ffn = 34}, axis = mesh.ep,
                                   tensor = mesh.tp, context = context,
                                   router = {routes = "balanced", losses = {balance = 0.1}}} or nil
    end}
    local data = mesh:join{"dp", "ep"}
    local trainer = zt.trainer(zt.program(model):apply(zero.shard{axis = data, stage = 1}), {optimizer = optim.sgd{lr = 0.1}})
    local tokens = zt.arange(samples * seq):remainder(VOCAB):view({samples, seq}):to "int64"
    local own = tokens:narrow(0, data.rank * samples / data.size, samples / data.size):contiguous()
    trainer:step{tokens = own, labels = own}
    local activations = trainer:memory().activations
    lu.assertTrue(activations.predicted <= activations.measured and activations.predicted > 0.99 * activations.measured,
                  ("%d planned, %d measured"):format(activations.predicted, activations.measured))
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestMoeCut", TestMoeCut}})
