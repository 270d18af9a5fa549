-- Random models whose matrices are packed, in random layouts: what they compute is what the numbers do for which their matrices
-- stand, and every layout has the same. Also runs on two and four ranks. ZT_RANDOM_PACKED = the number of models.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
require "zt.gemm"
local comm, infer, moe = require "zt.comm", require "zt.infer", require "zt.moe"
local cases = require "infer.engine_cases"
local temporary = require "support.temporary"

local MODELS = tonumber(os.getenv "ZT_RANDOM_PACKED") or 20
local with = cases.with

local TestRandom = {}

-- Returns a function that draws an element of a list.
local function dice_of(seed)
  local state = seed * 2654435761 % 2 ^ 32
  return function(list)
    state = (state * 1664525 + 1013904223) % 2 ^ 32
    return list[math.floor(state / 65536) % #list + 1]
  end
end

-- Returns the options of a random model. Columns are multiples of 32 or of 64, rows of anything.
local function draw_model(pick)
  local width = pick{32, 64}
  local options = {
    family = pick{"gpt2", "llama", "llama"}, layers = pick{1, 2, 3}, hidden = width * pick{1, 2, 3}, heads = 4,
    head_dim = width / pick{2, 4},
    vocab = pick{50, 131, 160}, seq = 96, ffn = width * pick{2, 4}, bias = pick{true, false}, seed = pick{1, 2, 3}, std = 0.2,
    tied = pick{true, false}, kv_heads = pick{1, 2, 4},
  }
  if pick{true, false} then
    options.moe = {experts = 4, ffn = width * pick{2, 4}, top_k = pick{1, 2}, router = {score = pick{"softmax", "sigmoid"}},
                   shared = pick{false, {ffn = width, gate = true}} or nil}
  end
  return options, width
end

local function draw_weights(pick, width)
  local format = pick{"panels", "int8", "int8", "int4", "int4", "nf4"}
  if width == 32 and format == "nf4" then format = "int4" end
  local weights = {format = format, keep = pick{false, {"down"}, {"attention.*weight", "norm"}} or nil}
  if format == "int8" or format == "int4" then
    weights.group = pick{32, width}
    if format == "int4" then weights.symmetric = pick{true, false} end
  elseif format == "nf4" then
    weights.nested = pick{true, false}
  end
  return weights
end

-- Returns the options of an engine in a random layout of this run's ranks, and whether ranks cut matrices in it.
local function draw_layout(pick, model, folder)
  local ranks = zt.world.size
  local kind = ranks > 1 and pick{"tp", "pp", "dp", "zero", "files", "ep", "both"} or pick{"files", "alone"}
  if kind == "pp" and model.layers + 2 < ranks or kind == "ep" and not model.moe then kind = "zero" end
  if kind == "both" and ranks < 4 then kind = "tp" end
  local mesh
  if kind == "tp" then
    mesh = comm.mesh{tp = 2, dp = -1}
    return {mesh = mesh, tensor = mesh.tp, data = ranks > 2 and mesh.dp or nil}, true
  elseif kind == "both" then
    mesh = comm.mesh{pp = 2, tp = 2}
    return {mesh = mesh, tensor = mesh.tp, pipeline = mesh.pp}, true
  elseif kind == "pp" then
    mesh = comm.mesh{pp = -1}
    return {mesh = mesh, pipeline = mesh.pp}
  elseif kind == "ep" then
    mesh = comm.mesh{ep = -1}
    return {mesh = mesh, experts = mesh.ep}
  end
  if ranks > 1 then mesh = comm.mesh{dp = -1} end
  return {mesh = mesh, data = mesh and mesh.dp, shard = kind == "zero" and {stage = 3} or nil,
          offload = kind == "files" and {parameters = "nvme", folder = folder} or nil}
end

local function trainer_of(options, precision)
  return zt.trainer(zt.program(moe.gpt(options), {precision = precision}), {separate = true})
end

-- Returns a trainer of plain parameters with the numbers for which those of an engine stand.
local function unpacked(engine, options, precision)
  local plain = trainer_of(with(options, {tied = false}), precision)
  for _, parameter in ipairs(plain.model:parameters()) do
    plain:set_parameter(parameter.name, engine.trainer:parameter(parameter.name))
  end
  return plain
end

local function largest(x) return x:abs():max():item() end

function TestRandom:test_models()
  local folder, formats, drawn = temporary(), {}, 0
  zt.mkdir_p(folder)
  for seed = 1, MODELS do
    local pick = dice_of(seed)
    local options, width = draw_model(pick)
    local weights, what = draw_weights(pick, width), ("model %d"):format(seed)
    local precision = pick{"fp32", "bf16"}
    local more, is_cut = draw_layout(pick, options, folder)
    if is_cut and weights.format == "nf4" then weights.nested = false end
    local one = infer.engine{trainer = trainer_of(options, precision), weights = weights}
    local tokens = cases.tensor{cases.prompt(20, seed), cases.prompt(20, seed + 1)}:remainder(options.vocab)
    local got = one.trainer:infer{tokens = tokens}.logits:to "float64"
    local expected = unpacked(one, options, precision):infer{tokens = tokens}.logits:to "float64"
    -- A router may choose other experts for numbers that are rounded otherwise.
    local bound = precision == "fp32" and 3e-5 or options.moe and 1 or 0.05
    lu.assertTrue((got - expected):norm():item() <= bound * expected:norm():item(), what)
    more.token_budget, more.max_sequences = pick{4, 7, 512}, 4
    local is_possible, engine = pcall(infer.engine, with({trainer = trainer_of(options, precision), weights = weights}, more))
    if not is_possible then
      lu.assertStrMatches(tostring(engine), ".*no multiple of the group.*", 1, nil, what)
    else
      drawn = drawn + 1
      formats[weights.format] = true
      local request = {prompt = cases.prompt(9, seed), max_tokens = 6, logprobs = 0, seed = seed}
      for place, token in ipairs(request.prompt) do request.prompt[place] = token % options.vocab end
      local mine = engine:generate(request)[1]
      if is_cut then
        for _, parameter in ipairs(one.trainer.model:parameters()) do
          local values = one.trainer:parameter(parameter.name)
          local is_equal = zt.op "equal"(engine.trainer:parameter(parameter.name), values)
          lu.assertTrue(is_equal or largest(values) == 0, what .. " " .. parameter.name)
        end
      else
        lu.assertEquals(cases.text(mine), cases.text(one:generate(request)[1]), what)
      end
    end
  end
  lu.assertTrue(drawn >= MODELS / 2)
  for _, format in ipairs{"panels", "int8", "int4", "nf4"} do lu.assertTrue(MODELS < 20 or formats[format], format) end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestRandom", TestRandom}})
