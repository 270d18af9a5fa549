-- Compares steps of the losses of zt.rlhf on real models with those of one rank in fp64: micro-batches, ranks of other data, of
-- matrices, stages and cut tokens, recompute and split backwards. Also runs on two, three and four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, optim, pipe, zero = require "zt.comm", require "zt.optim", require "zt.pipe", require "zt.zero"
local loss_models = require "rlhf.loss_models"

local BOUND = 1e-12
local PADDINGS = {"packed", "left", "right"}

-- By number of ranks: the ways of training that are compared with one rank. mesh: the axes.
local WAYS = {
  {{micro_batches = 1}, {micro_batches = 2, recompute = true}, {micro_batches = 4, split = true}},
  {{mesh = {dp = 2}, micro_batches = 2}, {mesh = {dp = 1, tp = 2}, micro_batches = 4},
   {mesh = {dp = 1, tp = 2}, sequence_parallel = true, recompute = true},
   {mesh = {pp = 2, dp = 1}, schedule = "zb_h1", micro_batches = 4}, {mesh = {pp = 2, dp = 1}, recompute = true},
   {mesh = {dp = 1, cp = 2}, micro_batches = 2, context = "balanced"}, {mesh = {dp = 1, cp = 2}, context = "contiguous"}},
  {{mesh = {dp = 3}}, {mesh = {dp = 3}, micro_batches = 2, split = true}, {mesh = {dp = 3}, micro_batches = 4}},
  {{mesh = {dp = 2, tp = 2}, micro_batches = 2, sequence_parallel = true}, {mesh = {pp = 2, dp = 1, tp = 2}, micro_batches = 2},
   {mesh = {pp = 2, dp = 2}, schedule = "one_f_one_b", micro_batches = 3}, {mesh = {dp = 2, cp = 2}, context = "balanced"}},
}
local meshes = {} -- of the ways

-- Returns a trainer, on one rank without `way`, and its mesh.
local function trainer_of(case, way, number, stage, precision)
  local mesh = way and way.mesh and (meshes[number] or comm.mesh(way.mesh))
  if mesh then meshes[number] = mesh end
  local more = mesh and {tensor = way.mesh.tp and mesh.tp, sequence_parallel = way.sequence_parallel,
                         context = way.context and {axis = mesh.cp, layout = way.context, fields = loss_models.OF_TOKENS}}
  local program = zt.program(loss_models.model(case, more or nil),
                             {precision = precision or "fp64", micro_batches = way and way.micro_batches or 1})
  if way and way.mesh and way.mesh.pp then program = program:apply(pipe.split{axis = mesh.pp, schedule = way.schedule}) end
  if mesh then program = program:apply(zero.shard{axis = mesh.dp, stage = stage}) end
  if way and way.recompute then program = program:apply(zt.recompute{}) end
  if way and way.split then program = program:apply(zt.split_backward()) end
  return zt.trainer(program, {optimizer = optim.sgd{lr = 0.05}, separate = not mesh}), mesh or nil
end

-- Returns the numbers of two steps, whose batches have different shapes, and all gradients of the second as one vector.
local function train(case, padding, ...)
  local trainer, mesh = trainer_of(case, ...)
  local found = {}
  for step = 1, 2 do
    local result = trainer:step(loss_models.part(loss_models.batch(case, step, padding), mesh and mesh.dp))
    found[2 * step - 1], found[2 * step] = result.loss, result.grad_norm
  end
  local gradients = {}
  for _, name in ipairs(trainer:parameters()) do gradients[name] = trainer:gradient(name):flatten() end
  return found, gradients
end

-- Returns the gradients as one vector, in the order of the names of `like`.
local function vector(gradients, like)
  local names, list = {}, {}
  for name in pairs(like) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do list[i] = gradients[name] end
  return zt.cat(list)
end

local function assert_close(found, gradients, wanted, wanted_gradients, what)
  for i, number in ipairs(wanted) do
    local off = math.abs(found[i] / number - 1)
    lu.assertTrue(off <= BOUND, ("%s: number %d is %.3g off"):format(what, i, off))
  end
  local right = vector(wanted_gradients, wanted_gradients)
  local off = (vector(gradients, wanted_gradients) - right):norm():item() / right:norm():item()
  lu.assertTrue(off <= BOUND, ("%s: the gradient is %.3g off"):format(what, off))
end

local TestLossModels = {}

for index, case in ipairs(loss_models.CASES) do
  TestLossModels["test_" .. case.name:gsub(" ", "_")] = function()
    local alone = {} -- by padding: what one rank finds
    for number, way in ipairs(WAYS[zt.world.size]) do
      local padding, stage = PADDINGS[(index + number) % 3 + 1], (index + number) % 4
      local what = ("%s, way %d, %s, stage %d"):format(case.name, number, padding, stage)
      if way.context and case.is_whole then
        local text = case.refused or "per sample, and no rank has a whole sample"
        lu.assertErrorMsgContains(text, train, case, padding, way, number, stage)
      else
        alone[padding] = alone[padding] or {train(case, padding)}
        local wanted, wanted_gradients = unpack(alone[padding])
        local found, gradients = train(case, padding, way, number, stage)
        assert_close(found, gradients, wanted, wanted_gradients, what)
      end
    end
  end
end

function TestLossModels.test_lower_precisions()
  if zt.world.size > 1 then return end
  for _, case in ipairs(loss_models.CASES) do
    local wanted = train(case, "packed")
    for precision, bound in pairs{fp32 = 1e-4, bf16 = 0.2} do
      local found = train(case, "packed", nil, 1, 0, precision)
      for i, number in ipairs(wanted) do
        local off = math.abs(found[i] - number) / math.max(math.abs(number), 0.1)
        lu.assertTrue(off <= bound, ("%s in %s: number %d is %.3g off"):format(case.name, precision, i, off))
      end
    end
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestLossModels", TestLossModels}})
