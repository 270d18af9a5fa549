-- Tests low-rank adapters of matrices. Also runs on two and four ranks, which share the matrices.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local one_rank = require "support.one_rank"
local cut_runs = require "layers.cut_runs"
local nn, optim, zero = require "zt.nn", require "zt.optim", require "zt.zero"
local batch, MODELS = cut_runs.batch, cut_runs.MODELS

local ATTENTION, GATED, PLAIN = {"q", "k", "v", "out"}, {"gate", "up_proj", "down", "head"}, {"up", "down", "head"}

local function merged(...)
  local all = {}
  for _, options in ipairs{...} do
    for key, value in pairs(options) do all[key] = value end
  end
  return all
end

local function joined(...)
  local all = {}
  for _, list in ipairs{...} do
    for _, value in ipairs(list) do all[#all + 1] = value end
  end
  return all
end

local function random(shape, seed) return zt.randn(shape, {generator = zt.generator(seed), dtype = "float64"}):mul(0.3) end

-- Gives the matrices B values other than 0.
local function wake(model)
  local values = {}
  for number, parameter in ipairs(model:parameters()) do
    if parameter.name:find "%.b$" then values[parameter.name] = random(parameter.shape, number) end
  end
  model:initialise(values)
  return model
end

local function trainer_of(model, options)
  options = options or {}
  local program = zt.program(model, {precision = options.precision or "fp64"})
  if options.pass then program = program:apply(options.pass) end
  return zt.trainer(program, {optimizer = optim.sgd{lr = options.lr or 0.1}, separate = true})
end

-- The rows of a target in its matrix, and their number. `shape`: of the matrix.
local function rows_of(target, options, shape)
  local dim = options.head_dim or options.hidden / options.heads
  local queries, keys = options.heads * dim, (options.kv_heads or options.heads) * dim
  local found = {q = {0, queries}, k = {queries, keys}, v = {queries + keys, keys}, gate = {0, shape[1] / 2},
                 up_proj = {shape[1] / 2, shape[1] / 2}}
  return unpack(found[target] or {0, shape[1]})
end

-- Calls visit(matrix, target, its first row, number of rows) for each adapter of a model of nn.gpt.
local function each_adapter(model, options, visit)
  local shapes = {}
  for _, parameter in ipairs(model:parameters()) do shapes[parameter.name] = parameter.shape end
  for _, parameter in ipairs(model:parameters()) do
    local layer, target = parameter.name:match "^(.*)lora%.([%w_]+)%.a$"
    if layer then
      local matrix = layer .. "weight"
      local shape = shapes[matrix] or shapes["embedding.weight"]
      visit(matrix, layer .. "lora." .. target, rows_of(target, options, shape))
    end
  end
end

local TestLora = {}

function TestLora.test_only_adapters_are_trained_and_have_units_of_their_own()
  local model = nn.gpt{layers = 2, hidden = 8, heads = 2, vocab = 11, seq = 4, lora = {rank = 3, layers = {1}, ranks = {q = 2}}}
  local trained, units = {}, {}
  for _, parameter in ipairs(model:parameters()) do
    if parameter.trainable then trained[#trained + 1] = parameter.name .. " " .. table.concat(parameter.shape, "x") end
    units[parameter.unit] = units[parameter.unit] or parameter.trainable
    lu.assertEquals(units[parameter.unit], parameter.trainable, parameter.name)
  end
  local qkv = "blocks.1.attention.qkv.lora."
  lu.assertEquals(trained, {qkv .. "q.a 2x8", qkv .. "q.b 8x2", qkv .. "v.a 3x8", qkv .. "v.b 8x3"})
  local memory = trainer_of(model):memory()
  lu.assertEquals(memory.gradients.measured, memory.gradients.predicted)
  lu.assertTrue(memory.gradients.measured < 8 * 256 * 3, "no gradient of frozen matrices")
end

function TestLora.test_freezing_forms_units_anew()
  local model = nn.sequential{{"embedding", nn.embedding{vocab = 11, hidden = 8}}, {"mlp", nn.mlp{hidden = 8, ffn = 16}},
                              {"head", nn.lm_loss{vocab = 11, hidden = 8}}, seed = 1}
  local function units()
    local found = {}
    for _, parameter in ipairs(model:parameters()) do found[parameter.name] = parameter.unit end
    return found
  end
  lu.assertEquals(units()["mlp.up.bias"], "mlp")
  model:freeze "mlp.up"
  lu.assertEquals({units()["mlp.up.weight"], units()["mlp.up.bias"]}, {"mlp", "mlp"})
  lu.assertEquals({units()["mlp.down.weight"], units()["mlp.down.bias"]}, {"mlp.down.weight", "mlp.down.weight"})
  model:unfreeze "mlp.up"
  lu.assertEquals(units()["mlp.down.weight"], "mlp")
end

-- The loss of a model with adapters is that of the plain one with W + scale B A, and the gradients follow from that of its W.
local function compare_with_merged(options, lora, pass)
  local adapted = wake(cut_runs.model_of(options, nil, {lora = lora}))
  local with = trainer_of(adapted, {pass = pass})
  local plain, values = cut_runs.model_of(options), {}
  for _, tensor in ipairs(with:tensors()) do
    if not tensor.name:find "%.lora%." then values[tensor.name] = with:parameter(tensor.name):clone() end
  end
  local scale = lora.scale == "alpha/sqrt(r)" and lora.alpha / math.sqrt(lora.rank) or lora.alpha / lora.rank
  each_adapter(adapted, options, function(matrix, name, first, rows)
    local a, b = with:parameter(name .. ".a"), with:parameter(name .. ".b")
    values[matrix]:narrow(0, first, rows):addmm_(b, a, {alpha = scale})
  end)
  plain:initialise(values)
  local without = trainer_of(plain)
  local fields = batch(1, nil, options.vocab)
  lu.assertAlmostEquals(with:forward(fields) / without:forward(fields), 1, 1e-13)
  with:backward()
  without:backward()
  each_adapter(adapted, options, function(matrix, name, first, rows)
    local of_rows = without:gradient(matrix):narrow(0, first, rows):mul(scale)
    local function close(part, wanted)
      local difference = (with:gradient(name .. part) - wanted):norm():item()
      lu.assertTrue(difference <= 1e-12 * wanted:norm():item(), name .. part)
    end
    close(".a", with:parameter(name .. ".b"):t():matmul(of_rows))
    close(".b", of_rows:matmul(with:parameter(name .. ".a"):t()))
  end)
end

function TestLora.test_computes_as_the_merged_matrices()
  local untied = {dropout = 0, tied = false}
  for number, options in ipairs(MODELS) do
    options = merged(options, untied)
    local gated = options.family == "llama"
    local targets = joined(ATTENTION, gated and GATED or PLAIN)
    local scale = number % 2 == 0 and "alpha/r" or "alpha/sqrt(r)"
    compare_with_merged(options, {rank = 2, alpha = 5, targets = targets, scale = scale})
    compare_with_merged(options, {rank = 3, alpha = 2, targets = {"qkv", "up"}}, zt.split_backward{})
    compare_with_merged(merged(options, {mlp_tile = 5, head_tile = 7}), {rank = 2, alpha = 5, targets = targets})
  end
end

-- Frozen matrices A, as in LoRA-FA, or B: the gradients of the others stay.
function TestLora.test_halves_can_be_frozen()
  local options = merged(MODELS[2], {tied = false, lora = {rank = 2, targets = joined(ATTENTION, PLAIN)}})
  local fields = batch(1, nil, options.vocab)
  local function gradients(frozen)
    local model = wake(cut_runs.model_of(options))
    if frozen then model:freeze("lora.*[.]" .. frozen .. "$") end
    local trainer, found = trainer_of(model), {}
    trainer:forward(fields)
    trainer:backward()
    for _, parameter in ipairs(model:parameters()) do
      if parameter.trainable then found[parameter.name] = trainer:gradient(parameter.name) end
    end
    return found
  end
  local wanted = gradients()
  for _, frozen in ipairs{"a", "b"} do
    local found, count = gradients(frozen), 0
    for name, gradient in pairs(found) do
      lu.assertTrue(zt.equal(gradient, wanted[name]), name)
      count = count + 1
    end
    lu.assertEquals(count, 2 * 6 + 1)
  end
end

function TestLora.test_new_adapters_change_no_bit()
  for _, precision in ipairs{"fp32", "bf16", "fp64"} do
    for _, options in ipairs(MODELS) do
      local function loss(more)
        local trainer = trainer_of(cut_runs.model_of(merged(options, {dropout = 0}), nil, more), {precision = precision})
        return trainer:evaluate(batch(1, nil, options.vocab)).loss
      end
      lu.assertEquals(loss{lora = {targets = {"q", "k", "v", "out", "up", "down"}}}, loss())
    end
  end
end

function TestLora.test_base_stays_and_is_what_remains_without_adapters()
  local options = MODELS[3]
  local fields = batch(1, nil, options.vocab)
  local base = trainer_of(cut_runs.model_of(options), {precision = "fp32"}):evaluate(fields).loss
  local trainer = trainer_of(cut_runs.model_of(options, nil, {lora = {rank = 2}}), {precision = "fp32", lr = 0.5})
  local before = {}
  for _, tensor in ipairs(trainer:tensors()) do before[tensor.name] = trainer:parameter(tensor.name):clone() end
  for step = 1, 100 do trainer:step(batch(step, nil, options.vocab)) end
  for name, values in pairs(before) do
    lu.assertEquals(zt.equal(trainer:parameter(name), values), not name:find "%.lora%.", name)
  end
  lu.assertNotEquals(trainer:evaluate(fields).loss, base)
  local loss, second = trainer:with_adapters(false, function() return trainer:evaluate(fields).loss, "both" end)
  lu.assertEquals({loss, second}, {base, "both"})
  local logits = trainer:infer{tokens = fields.tokens}.logits
  local without = trainer:with_adapters(false, function()
    local inner = trainer:with_adapters(true, function() return trainer:infer{tokens = fields.tokens}.logits end)
    lu.assertTrue(zt.equal(inner, logits))
    return trainer:infer{tokens = fields.tokens}.logits
  end)
  lu.assertFalse(zt.equal(without, logits))
  local is_done = pcall(trainer.with_adapters, trainer, false, function() error "wrong" end)
  lu.assertFalse(is_done)
  lu.assertTrue(zt.equal(trainer:infer{tokens = fields.tokens}.logits, logits), "an error ends the phase, too")
end

function TestLora.test_dropout_is_that_of_training_and_keeps_the_mean()
  local columns, rank, samples = 4000, 2, 3
  local layer = nn.linear{["in"] = columns, out = 1, bias = false, lora = {rank = rank, alpha = rank, dropout = 0.25}}
  local square = nn.layer{io = {inputs = {"h"}, losses = {own = "sample"}}, forward = function(_, h, ctx)
    ctx:loss("own", h:sum(), "sample")
    return h
  end, count = function() return 0 end}
  local source = nn.layer{io = {inputs = {}, outputs = {"h"}}, forward = function(_, ctx) return ctx:batch "x" end}
  local model = nn.sequential{{"source", source}, {"linear", layer}, {"loss", square}, seed = 4}
  model:initialise{["linear.weight"] = zt.zeros{1, columns}, ["linear.lora.linear.a"] = zt.ones{rank, columns},
                   ["linear.lora.linear.b"] = zt.ones{1, rank}}
  local trainer = trainer_of(model)
  local fields = {x = zt.ones({samples, columns}, {dtype = "float64"})}
  lu.assertEquals(trainer:evaluate(fields).loss, rank * columns)
  local loss = trainer:forward(fields)
  trainer:backward()
  lu.assertNotEquals(loss, rank * columns)
  -- Each kept element counts 4/3: the mean of samples has the standard deviation sqrt(p / (1 - p) columns / samples) rank.
  lu.assertAlmostEquals(loss, rank * columns, 5 * rank * math.sqrt(columns / 3 / samples))
end

function TestLora.test_trains_alike_on_ranks_that_share_matrices()
  local meshes = cut_runs.meshes()
  local gated = joined(ATTENTION, GATED)
  local targets = {joined(ATTENTION, PLAIN), {"q", "v"}, gated, {"qkv", "up", "down"}, gated}
  for number, given in ipairs(MODELS) do
    local lora = {rank = 2, alpha = 8, targets = targets[number], dropout = number % 2 == 0 and 0.2 or 0, init = "gaussian"}
    local options = merged(given, {lora = lora})
    local wanted, alone = cut_runs.train(options)
    for place, mesh in ipairs(meshes) do
      if options.heads >= mesh.tp.size then
        local model = {sequence_parallel = place % 2 == 0, mlp_tile = place == 3 and 4 or 0, overlap = place == 3}
        local results, trainer = cut_runs.train(options, mesh, {
          stage = (number + place) % 4, dp = mesh.dp, stages = place == 4 and mesh.pp or nil, model = model,
        })
        one_rank.assert_trains_alike(results, trainer, wanted, alone, ("model %d, mesh %d"):format(number, place))
      end
    end
  end
end

-- Returns the gradients of all adapters in one vector, in float64.
local function gradient_of_adapters(trainer, fields)
  trainer:forward(fields)
  trainer:backward()
  local parts = {}
  for _, tensor in ipairs(trainer:tensors()) do
    if tensor.name:find "%.lora%." then parts[#parts + 1] = trainer:gradient(tensor.name):to("float64"):flatten() end
  end
  return zt.cat(parts)
end

-- The gradient is that of the matrices that the packed values stand for, with the rounding of fp32.
function TestLora.test_packed_base()
  local options = {family = "llama", layers = 2, hidden = 64, heads = 4, vocab = 64, ffn = 64, seq = 9, seed = 3, std = 0.1}
  local targets = {"q", "k", "v", "out", "gate", "up_proj", "down", "head"}
  local fields = batch(1, nil, options.vocab)
  for number, format in ipairs{"int8", "int4", "nf4", "int4"} do
    local tile = number == 4 and 5 or 0
    local function model()
      return wake(nn.gpt(merged(options, {lora = {rank = 4, targets = targets}, mlp_tile = tile, head_tile = tile})))
    end
    local packed = model()
    local names = packed:pack{format = format}
    local fp32 = {precision = "fp32"}
    local with, plain, exact = trainer_of(packed, fp32), trainer_of(model(), fp32), trainer_of(model())
    for _, name in ipairs(names) do
      with:set_parameter(name, plain:parameter(name))
      plain:set_parameter(name, with:parameter(name))
    end
    for _, tensor in ipairs(plain:tensors()) do exact:set_parameter(tensor.name, plain:parameter(tensor.name):to "float64") end
    local wanted = gradient_of_adapters(exact, fields)
    local distance = (gradient_of_adapters(with, fields) - wanted):norm():item()
    local of_fp32 = (gradient_of_adapters(plain, fields) - wanted):norm():item()
    lu.assertTrue(distance <= 2 * of_fp32, ("%s: %g, fp32 without packing %g"):format(format, distance, of_fp32))
  end
end

-- The second part of a split backward has other parameters in the places of sharded ones.
function TestLora.test_split_backwards_of_sharded_parameters()
  local mesh = cut_runs.meshes()[2] or cut_runs.meshes()[1]
  local options = merged(MODELS[2], {lora = {rank = 2, targets = joined(ATTENTION, PLAIN)}, tensor = mesh.tp})
  local function losses(stage, is_split)
    local program = zt.program(wake(cut_runs.model_of(options)), {micro_batches = 2})
    if is_split then program = program:apply(zt.split_backward{}) end
    local trainer = zt.trainer(program:apply(zero.shard{axis = mesh.dp, stage = stage}), {optimizer = optim.sgd{lr = 0.5}})
    return one_rank.run(trainer, function(step) return batch(step, mesh.dp, options.vocab) end)
  end
  local wanted = losses(1, false)
  lu.assertEquals(losses(1, true), wanted)
  lu.assertEquals(losses(3, true), losses(3, false))
end

function TestLora.test_stages_have_the_same_bits()
  local mesh = cut_runs.meshes()[2] or cut_runs.meshes()[1]
  one_rank.assert_same_bits_of_stages(function(how)
    how.dp, how.model = mesh.dp, {lora = {rank = 2, dropout = 0.1, targets = {"q", "v", "down"}}}
    return (cut_runs.train(MODELS[1], mesh, how))
  end)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestLora", TestLora}})
