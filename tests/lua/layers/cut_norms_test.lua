-- Tests that the norm of the gradient counts each element of each parameter once, however it is placed. Also runs on two and four
-- ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local ranks = zt.world.size
local VOCAB, TOKENS, SAMPLES = 17, 9, 2

local function batch(dp)
  local generator = zt.generator(5)
  local function draw() return zt.randint(VOCAB, {SAMPLES, TOKENS}, {generator = generator, dtype = "int64"}) end
  local fields = {tokens = draw(), labels = draw()}
  local count = SAMPLES / (dp and dp.size or 1)
  for name, field in pairs(fields) do fields[name] = field:narrow(0, dp and dp.rank * count or 0, count):contiguous() end
  return fields
end

local MODELS = {
  {family = "gpt2", heads = 4, hidden = 8, tied = false, qk_norm = true},
  {family = "llama", heads = 6, kv_heads = 3, hidden = 12, head_dim = 2, ffn = 9, qk_norm = true, bias = true},
}

local function model_of(options, mesh, sequence)
  local all = {layers = 1, seq = TOKENS, vocab = VOCAB, seed = 3, std = 0.3, tensor = mesh and mesh.tp,
               sequence_parallel = mesh and sequence, context = mesh and {axis = mesh.cp}}
  for key, value in pairs(options) do all[key] = value end
  return nn.gpt(all)
end

-- Returns the norm of the gradient of one parameter: all others are frozen.
local function norm_of(options, name, mesh, how)
  local model = model_of(options, mesh, how and how.sequence)
  if name then
    model:freeze ".*"
    lu.assertEquals(model:unfreeze("^" .. name:gsub("%.", "[.]") .. "$"), 1)
  end
  local program = zt.program(model, {precision = "fp64"})
  if mesh then program = program:apply(zero.shard{axis = mesh.dp, stage = how.stage}) end
  local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}, separate = not mesh})
  return trainer:step(batch(mesh and mesh.dp)).grad_norm
end

-- All meshes of axes that are not larger than four.
local function meshes()
  local found = {}
  for tp = 1, math.min(ranks, 4) do
    for cp = 1, ranks / tp do
      local dp = ranks / (tp * cp)
      if dp % 1 == 0 and dp <= 2 then
        local order = #found % 2 == 0 and {"dp", "cp", "tp"} or {"tp", "cp", "dp"}
        found[#found + 1] = comm.mesh{dp = dp, cp = cp, tp = tp, order = order}
      end
    end
  end
  return found
end

local TestCutNorms = {}

function TestCutNorms.test_each_parameter_counts_once()
  local all = meshes()
  for number, options in ipairs(MODELS) do
    local names = {}
    for _, parameter in ipairs(model_of(options):parameters()) do names[#names + 1] = parameter.name end
    for i = 0, #names do
      local wanted = norm_of(options, names[i])
      lu.assertTrue(wanted > 1e-6, names[i])
      for place, mesh in ipairs(all) do
        for _, sequence in ipairs{false, true} do
          local stage = (i + place) % 4
          local norm = norm_of(options, names[i], mesh, {stage = stage, sequence = sequence})
          local what = ("model %d, %s, mesh %d, stage %d"):format(number, names[i] or "all parameters", place, stage)
          lu.assertAlmostEquals(norm / wanted, 1, 1e-12, what)
        end
      end
    end
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCutNorms", TestCutNorms}})
