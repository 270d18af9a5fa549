-- Tests of initial values that a script gives: whole tensors, also where each rank holds a part. Also runs on two ranks, which
-- share the experts.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local small = require "support.small_mixture"

-- Returns the name and the shape of the first parameter whose name matches.
local function find(model, pattern)
  for _, parameter in ipairs(model:parameters()) do
    if parameter.name:find(pattern) then return parameter.name, parameter.shape end
  end
end

local TestInitialValues = {}

function TestInitialValues:test_whole_tensors_start_the_trainer()
  local model = small.model{}
  local numel, values = 0, {}
  for _, parameter in ipairs(model:parameters()) do
    numel = numel + parameter.numel
    values[parameter.name] = zt.arange(parameter.numel):view(parameter.shape):div(parameter.numel)
  end
  lu.assertEquals(model:numel(), numel)
  model:initialise(values)
  local trainer = small.trainer(model)
  for _, parameter in ipairs(model:parameters()) do
    lu.assertTrue(trainer:master(parameter.name):equal(values[parameter.name]:to "float64"), parameter.name)
  end
end

function TestInitialValues:test_parts_are_refused()
  local model = small.model{}
  local name, shape = find(model, "experts.*up")
  local part = {shape[1] / 2, unpack(shape, 2)}
  lu.assertErrorMsgContains("parameter '" .. name .. "' is [" .. table.concat(shape, ", ") .. "], the tensor is",
    model.initialise, model, {[name] = zt.zeros(part)})
end

function TestInitialValues:test_they_are_those_of_later_trainers()
  local model = small.model{}
  local trainer = small.trainer(model)
  local name, shape = find(model, "embedding")
  local before = trainer:parameter(name)
  model:initialise{[name] = zt.zeros(shape)}
  lu.assertTrue(trainer:parameter(name):equal(before))
  lu.assertEquals(small.trainer(model):parameter(name):abs():max():item(), 0)
end

-- If the options are wrong on one rank only, all ranks are told, and none waits.
function TestInitialValues:test_a_constructor_that_fails_on_one_rank_fails_on_all()
  local model = small.model{}
  local options = {}
  if zt.world.rank == zt.world.size - 1 then options.trainer = {fp16 = {loss_scale = 0}} end
  lu.assertErrorMsgContains("a loss scale is for fp16", small.trainer, model, options)
  lu.assertNotNil(small.trainer(model))
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestInitialValues", TestInitialValues}})
