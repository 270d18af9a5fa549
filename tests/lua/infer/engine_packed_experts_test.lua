-- Tests packed matrices of experts. Also runs on two and four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
require "zt.gemm"
local comm, infer, moe, nn = require "zt.comm", require "zt.infer", require "zt.moe", require "zt.nn"
local offload, zero = require "zt.offload", require "zt.zero"
local cases = require "infer.engine_cases"
local temporary = require "support.temporary"

local OPTIONS = {layers = 2, hidden = 128, heads = 4, ffn = 256, vocab = cases.VOCAB, seq = cases.SEQ, seed = 5, std = 0.15,
                 family = "llama", moe = {experts = 4, ffn = 128, top_k = 2}}
local FORMATS = {{format = "panels"}, {format = "int8"}, {format = "int4", group = 32}, {format = "nf4"},
                 {format = "nf4", nested = false}}
local UP, DOWN = "blocks.1.experts.up.weight", "blocks.0.experts.down.weight"
local requests = cases.requests(5)
local with = cases.with

local TestExperts = {}

local function plain(precision, more)
  return zt.trainer(zt.program(moe.gpt(with(OPTIONS, more or {})), {precision = precision}), {separate = true})
end

local function packed(precision, weights, passes, more)
  local model, source = moe.gpt(with(OPTIONS, more or {})), plain(precision, more)
  model:pack(weights)
  local program = zt.program(model, {precision = precision})
  for _, pass in ipairs(passes or {}) do program = program:apply(pass) end
  local trainer = zt.trainer(program, {separate = true})
  for _, parameter in ipairs(model:parameters()) do trainer:set_parameter(parameter.name, source:parameter(parameter.name)) end
  return trainer
end

local function logits_of(trainer)
  return trainer:infer{tokens = cases.tensor{cases.prompt(40, 1), cases.prompt(40, 2)}}.logits:to "float64"
end

-- Returns a trainer with the values for which the parameters of another one stand.
local function unpacked(from, precision)
  local trainer = plain(precision)
  for _, parameter in ipairs(trainer.model:parameters()) do
    trainer:set_parameter(parameter.name, from:parameter(parameter.name))
  end
  return trainer
end

function TestExperts:test_values()
  for _, weights in ipairs(FORMATS) do
    local trainer = packed("fp32", weights)
    lu.assertEquals(#trainer.model:parameters(), 2 + 2 * 7 + 1)
    for _, parameter in ipairs(trainer.model:parameters()) do
      local is_expert = parameter.name:find "experts"
      if is_expert then lu.assertEquals(parameter.format, weights.format, parameter.name) end
      if parameter.name:find "router" then lu.assertEquals(parameter.format, "plain") end
    end
    local got, expected = logits_of(trainer), logits_of(unpacked(trainer, "fp32"))
    local distance = (got - expected):norm():item() / expected:norm():item()
    lu.assertTrue(distance <= 2e-5, ("%s: %g"):format(weights.format, distance))
    local bytes = zt.pack(plain("fp32"):parameter(UP), {format = weights.format, group = weights.group, nested = weights.nested,
                                                        dtype = weights.format == "panels" and "bf16" or nil})
    if weights.format ~= "panels" then
      trainer:set_parameter(UP, bytes)
      lu.assertTrue(zt.op "equal"(logits_of(trainer), got), weights.format)
      local values = zt.unpack(bytes, {format = weights.format, group = weights.group, nested = weights.nested, matrices = 4,
                                       rows = 256, columns = 128})
      lu.assertTrue(zt.op "equal"(values, trainer:parameter(UP)), weights.format)
    end
  end
end

-- Every layout has the same bytes for an expert, and the same bits of a row.
function TestExperts:test_layouts()
  local mesh = comm.mesh{dp = -1}
  local folder = temporary()
  zt.mkdir_p(folder)
  for _, weights in ipairs{{format = "int4", group = 32}, {format = "nf4"}} do
    local expected, up = logits_of(packed("bf16", weights)), packed("bf16", weights):parameter(UP)
    local apart = zero.shard{axis = mesh.dp, stage = 3, node_shared = false}
    for place, passes in ipairs{{apart}, {apart, offload.move{parameters = "nvme", folder = folder}}} do
      local trainer = packed("bf16", weights, passes)
      lu.assertTrue(zt.op "equal"(logits_of(trainer), expected), place .. weights.format)
      lu.assertTrue(zt.op "equal"(trainer:parameter(UP), up), place .. weights.format)
    end
    local one = infer.engine{trainer = plain "bf16", weights = weights}
    local texts = cases.texts(one:generate(requests))
    local divided = infer.engine{trainer = plain "bf16", weights = weights, mesh = mesh, experts = mesh.dp}
    lu.assertEquals(cases.texts(divided:generate(requests)), texts, weights.format)
    for _, name in ipairs{UP, DOWN} do
      lu.assertTrue(zt.op "equal"(divided.trainer:parameter(name), one.trainer:parameter(name)), name)
    end
  end
end

-- Cut columns of an expert's `down` are whole groups, and cut rows of `up` are those of both halves of the gate.
function TestExperts:test_tensor_parallel()
  if zt.world.size == 1 then return end
  local mesh = comm.mesh{ep = zt.world.size / 2, tp = 2}
  for _, weights in ipairs{{format = "int8", group = 32}, {format = "nf4", nested = false}} do
    local one = infer.engine{trainer = plain "fp32", weights = weights}
    local cut = infer.engine{trainer = plain "fp32", weights = weights, mesh = mesh, tensor = mesh.tp,
                             experts = mesh.ep.size > 1 and mesh.ep or nil}
    for _, name in ipairs{UP, DOWN} do
      local values = one.trainer:parameter(name)
      lu.assertTrue(zt.op "equal"(cut.trainer:parameter(name), values), name)
      local format = {format = weights.format, group = weights.group, nested = weights.nested}
      cut.trainer:set_parameter(name, zt.pack(plain "fp32":parameter(name), format)) -- each rank cuts its part out
      lu.assertTrue(zt.op "equal"(cut.trainer:parameter(name), values), name)
    end
    local expected, got = one:generate(requests[2])[1], cut:generate(requests[2])[1]
    lu.assertEquals(got.tokens, expected.tokens)
  end
end

-- Experts that are copies of any layer, some of whose parameters are matrices; a frozen one lets gradients through.
function TestExperts:test_copies_of_a_layer()
  -- `frozen`: names of parameters.
  local function trainer_of(weights, source, frozen)
    local model = nn.gpt{
      layers = 1, hidden = 128, heads = 4, vocab = cases.VOCAB, seq = cases.SEQ, seed = 5, std = 0.15,
      mlp = function() return moe.layers{experts = 3, hidden = 128, expert = nn.mlp{hidden = 128, ffn = 64, bias = true}} end,
    }
    local packed_names = weights and model:pack(weights)
    for _, name in ipairs(frozen or {}) do model:freeze("^" .. name:gsub("%.", "\\.") .. "$") end
    local program = zt.program(model, {precision = "fp32"})
    local trainer = zt.trainer(program, {separate = true, optimizer = require("zt.optim").adamw{lr = 1e-3}})
    for _, parameter in ipairs(source and model:parameters() or {}) do
      trainer:set_parameter(parameter.name, source:parameter(parameter.name))
    end
    return trainer, packed_names
  end
  local got, names = trainer_of({format = "int8"}, (trainer_of()))
  lu.assertEquals(#names, 2 + 2)
  local reference = trainer_of(nil, got, names)
  local expected = logits_of(reference)
  lu.assertTrue((logits_of(got) - expected):abs():max():item() <= 1e-5 * expected:abs():max():item())
  local batch = {tokens = cases.tensor{cases.prompt(30, 1)}, labels = cases.tensor{cases.prompt(30, 2)}}
  for _ = 1, 3 do lu.assertAlmostEquals(got:step(batch).loss, reference:step(batch).loss, 1e-4) end
end

-- Errors name the expert.
function TestExperts:test_errors()
  local trainer = packed("fp32", {format = "int8"})
  local values = trainer:parameter(UP)
  values[2][5][1] = math.huge
  lu.assertErrorMsgContains(UP, trainer.set_parameter, trainer, UP, values)
  local narrow = moe.gpt(with(OPTIONS, {moe = {experts = 4, ffn = 96, top_k = 2}}))
  lu.assertErrorMsgContains("'blocks.0.experts.down.weight' has 96 columns, no multiple of the group of 64", narrow.pack, narrow,
                            {format = "int8"})
  lu.assertErrorMsgContains("zt.pack takes a matrix or a stack of matrices", zt.pack, zt.zeros{2, 2, 2, 64}, {format = "int8"})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestExperts", TestExperts}})
