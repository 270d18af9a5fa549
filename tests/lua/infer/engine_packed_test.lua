-- Tests engines whose matrices are packed. Also runs on two and four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
require "zt.gemm"
local comm, infer, nn = require "zt.comm", require "zt.infer", require "zt.nn"
local offload, zero = require "zt.offload", require "zt.zero"
local cases = require "infer.engine_cases"
local temporary = require "support.temporary"

local OPTIONS = {layers = 3, hidden = 128, heads = 4, kv_heads = 2, ffn = 256, vocab = cases.VOCAB, seq = cases.SEQ, seed = 5,
                 std = 0.15, family = "llama"}
local FORMATS = {
  {format = "panels"}, {format = "int8"}, {format = "int8", group = 32, activations = "int8"}, {format = "int4"},
  {format = "int4", group = 32, symmetric = true}, {format = "int4", group = 32, activations = "int8"}, {format = "nf4"},
}
local requests = cases.requests(7)
local with = cases.with

local function plain(more, precision)
  return zt.trainer(zt.program(nn.gpt(with(OPTIONS, more or {})), {precision = precision}), {separate = true})
end

local function engine_of(trainer, weights, more)
  return infer.engine(with({trainer = trainer, weights = weights}, more or {}))
end

-- Returns a trainer with the values for which the packed parameters of another one stand.
local function unpacked(packed, more, precision)
  local trainer = plain(more, precision)
  for _, parameter in ipairs(trainer.model:parameters()) do
    trainer:set_parameter(parameter.name, packed:parameter(parameter.name))
  end
  return trainer
end

local function logits_of(trainer)
  return trainer:infer{tokens = zt.tensor({cases.prompt(40, 1), cases.prompt(40, 2)}, {dtype = "int64"})}.logits:to "float64"
end

local TestPacked = {}

-- A packed engine computes what a plain model with the unpacked values does, up to the order of sums, or the rounding of
-- activations to 8 bits.
function TestPacked:test_values()
  for _, weights in ipairs(FORMATS) do
    for precision, bound in pairs{fp32 = 2e-5, bf16 = 0.05} do
      local engine = engine_of(plain(nil, precision), weights)
      local reference = unpacked(engine.trainer, nil, precision)
      local got, expected = logits_of(engine.trainer), logits_of(reference)
      local distance = (got - expected):norm():item() / expected:norm():item()
      local bound_of = bound + (weights.activations and 0.05 or 0)
      lu.assertTrue(distance <= bound_of, ("%s in %s: %g"):format(weights.format, precision, distance))
      if weights.format ~= "panels" then
        local name = "blocks.0.attention.qkv.weight"
        lu.assertFalse(zt.op "equal"(reference:parameter(name), plain(nil, precision):parameter(name)))
      end
    end
  end
end

function TestPacked:test_what_is_packed()
  local model = nn.gpt(OPTIONS)
  lu.assertEquals(#model:pack{format = "int4"}, 3 * 4 + 1)
  local formats = {}
  for _, parameter in ipairs(model:parameters()) do formats[parameter.name] = parameter.format end
  lu.assertEquals(formats["embedding.weight"], "plain")
  lu.assertEquals(formats["blocks.1.mlp.down.weight"], "int4")
  lu.assertEquals(formats["head.weight"], "int8")
  lu.assertEquals(formats["blocks.1.norm1.weight"] or "plain", "plain")
  model = nn.gpt(OPTIONS)
  lu.assertEquals(#model:pack{format = "int8", keep = {"^head", "blocks.0"}}, 2 * 4)
end

-- A tied head becomes a packed copy, and the embedding stays plain.
function TestPacked:test_tied()
  local trainer = plain({tied = true}, "bf16")
  local engine = engine_of(trainer, {format = "int8"})
  local embedding = trainer:parameter "embedding.weight"
  lu.assertTrue(zt.op "equal"(engine.trainer:parameter "embedding.weight", embedding))
  local head = engine.trainer:parameter "head.weight":to "float32"
  lu.assertTrue((head - embedding:to "float32"):abs():max():item() <= embedding:abs():max():item() / 127)
  trainer:set_parameter("embedding.weight", embedding:neg())
  engine:update(trainer)
  lu.assertTrue(zt.op "equal"(engine.trainer:parameter "head.weight":to "float32", head:neg()))
end

function TestPacked:test_answers_do_not_depend_on_the_schedule()
  for _, weights in ipairs(FORMATS) do
    for _, precision in ipairs{"fp32", "bf16"} do
      local trainer = plain(nil, precision)
      local expected = engine_of(trainer, weights, {max_sequences = 1, cache = {prefix = false}}):generate(requests)
      local other = {token_budget = 33, max_sequences = 8, cache = {block = 8}, speculative = {match = 1}}
      lu.assertEquals(cases.texts(engine_of(trainer, weights, other):generate(requests)), cases.texts(expected))
    end
  end
end

-- Each rank packs its own part of a matrix. For formats that quantise rows apart, these are the parts of the packed matrix.
function TestPacked:test_tensor_parallel()
  local mesh = comm.mesh{dp = 1, tp = -1}
  for _, weights in ipairs{{format = "int8", group = 32}, {format = "int4", group = 32}} do
    local one = engine_of(plain(nil, "fp32"), weights)
    local cut = engine_of(plain(nil, "fp32"), weights, {mesh = mesh, tensor = mesh.tp})
    for _, parameter in ipairs(one.trainer.model:parameters()) do
      lu.assertTrue(zt.op "equal"(cut.trainer:parameter(parameter.name), one.trainer:parameter(parameter.name)), parameter.name)
    end
    local expected = logits_of(one.trainer)
    lu.assertTrue((logits_of(cut.trainer) - expected):abs():max():item() <= 1e-5 * expected:abs():max():item())
  end
end

function TestPacked:test_pipelines_have_the_bits_of_one_rank()
  local mesh = comm.mesh{pp = -1}
  if mesh.pp.size > 3 then return end -- of three layers
  local weights = {format = "int4", group = 32}
  local expected = engine_of(plain(nil, "bf16"), weights):generate(requests)
  local cut = engine_of(plain(nil, "bf16"), weights, {mesh = mesh, pipeline = mesh.pp})
  lu.assertEquals(cases.texts(cut:generate(requests)), cases.texts(expected))
end

-- Returns a trainer of the packed model with these passes, with the values of `source`.
local function with_passes(weights, source, ...)
  local model = nn.gpt(OPTIONS)
  model:pack(weights)
  local program = zt.program(model, {precision = "bf16"})
  for _, pass in ipairs{...} do program = program:apply(pass) end
  local trainer = zt.trainer(program, {separate = true})
  for _, parameter in ipairs(model:parameters()) do trainer:set_parameter(parameter.name, source:parameter(parameter.name)) end
  return trainer
end

-- Packed bytes are gathered like any parameters, and lie in files between their uses.
function TestPacked:test_sharded_and_offloaded()
  local mesh = comm.mesh{dp = -1}
  local folder = temporary()
  zt.mkdir_p(folder)
  for _, weights in ipairs{{format = "int8"}, {format = "nf4"}} do
    local source = plain(nil, "bf16")
    local expected = logits_of(with_passes(weights, source))
    local shard = {axis = mesh.dp, stage = 3}
    local apart = zero.shard(with(shard, {node_shared = false}))
    local head = with_passes(weights, source):parameter "head.weight"
    for place, passes in ipairs{{apart}, {zero.shard(shard)}, {apart, offload.move{parameters = "host"}},
                                {apart, offload.move{parameters = "nvme", folder = folder}}} do
      local trainer = with_passes(weights, source, unpack(passes))
      lu.assertTrue(zt.op "equal"(logits_of(trainer), expected), place .. " " .. weights.format)
      lu.assertTrue(zt.op "equal"(trainer:parameter "head.weight", head), place .. " " .. weights.format)
    end
  end
end

-- Layers that are streamed from files give the answers of those in memory, packed or not.
function TestPacked:test_streamed_layers()
  local mesh = zt.world.size > 1 and comm.mesh{dp = -1} or nil
  for _, weights in ipairs{{format = "int4"}, false} do
    local source = plain(nil, "bf16")
    local expected = engine_of(source, weights or nil):generate(requests)
    local folder = temporary()
    zt.mkdir_p(folder)
    local offloaded = {mesh = mesh, data = mesh and mesh.dp, offload = {parameters = "nvme", folder = folder}}
    local engine = engine_of(source, weights or nil, offloaded)
    lu.assertEquals(cases.texts(engine:generate(requests)), cases.texts(expected))
    if not mesh then lu.assertTrue(engine.trainer:memory().files.measured > 0) end
  end
end

function TestPacked:test_memory()
  if zt.world.size > 1 then return end
  local function bytes(weights)
    return engine_of(plain(nil, "bf16"), weights, {cache = {memory = 2^26}}).trainer:memory().parameters.measured
  end
  local matrices = 0
  for _, parameter in ipairs(nn.gpt(OPTIONS):parameters()) do
    if parameter.name:find "^blocks.*%a%.weight" and not parameter.name:find "norm" then matrices = matrices + parameter.numel end
  end
  local head = cases.VOCAB * OPTIONS.hidden
  local rest = bytes(nil) - 2 * matrices - 2 * head
  local rows = math.ceil(cases.VOCAB / 16) * 16 / cases.VOCAB -- of the head, in whole panels
  lu.assertAlmostEquals(bytes{format = "int8"}, rest + (matrices + head * rows) * 8.25 / 8, 8192)
  lu.assertAlmostEquals(bytes{format = "int4"}, rest + matrices * 4.5 / 8 + head * rows * 8.25 / 8, 8192)
end

function TestPacked:test_errors()
  local trainer = plain(nil, "fp32")
  local function check(weights, text) lu.assertErrorMsgContains(text, engine_of, trainer, weights) end
  check({format = "int3"}, "must be one of 'plain', 'panels', 'int8', 'int4', 'nf4'")
  check({format = "plain"}, "a format is needed")
  check({group = 64}, "option 'format' is missing")
  check({format = "int8", group = 48}, "group")
  check({format = "int8", keep = {"hed"}}, "no parameter has a name that contains 'hed'")
  check({format = "nf4", activations = "int8"}, "int8 and int4 only")
  check({format = "int8", symmetric = true}, "only with format = \"int4\"")
  lu.assertErrorMsgContains("this program computes in fp64", infer.engine,
                            {trainer = trainer, weights = {format = "int8"}, dtype = "fp64"})
  lu.assertErrorMsgContains("panels hold numbers in bf16 or fp32", infer.engine,
                            {trainer = trainer, weights = {format = "panels"}, dtype = "fp16"})
  local packed = nn.gpt(OPTIONS)
  packed:pack{format = "int8"}
  lu.assertErrorMsgContains("parameter 'head.weight' is packed", packed.initialise, packed,
                            {["head.weight"] = trainer:parameter "head.weight"})
  local narrow = nn.gpt(with(OPTIONS, {hidden = 96}))
  lu.assertErrorMsgContains("has 96 columns, no multiple of the group of 64: give a smaller group, or name", narrow.pack, narrow,
                            {format = "int8"})
  lu.assertEquals(narrow:parameters()[3].format, "plain") -- nothing has changed
  local engine = engine_of(trainer, {format = "int8"})
  lu.assertErrorMsgContains("is packed as int8", engine.trainer.model.unfreeze, engine.trainer.model, "head")
  local infinite = trainer:parameter "head.weight"
  infinite[0][0] = math.huge
  lu.assertErrorMsgContains("head.weight", engine.trainer.set_parameter, engine.trainer, "head.weight", infinite)
  lu.assertErrorMsgContains("a checkpoint has plain numbers only", require("zt.ckpt").save, os.tmpname() .. ".h5",
                            {model = engine.trainer})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestPacked", TestPacked}})
