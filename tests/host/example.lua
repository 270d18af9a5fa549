-- Uses modules/example as its README shows, on one rank and on several.
local lu = require "luaunit"
local zt = require "zt"
local comm = require "zt.comm"
local nn = require "zt.nn"
local optim = require "zt.optim"
local zero = require "zt.zero"
local example = require "zt.example"

local mesh = comm.mesh {dp = -1}
local CHANNELS, SAMPLES = 5, 3

local function model()
  local input = nn.layer {
    kind = "input", io = {inputs = {}, outputs = {{name = "h", differentiable = false}}},
    forward = function(_, ctx) return ctx:batch("x") end,
  }
  local loss = nn.layer {
    kind = "loss", io = {outputs = {}, losses = {loss = "sample"}},
    forward = function(_, h, ctx) ctx:loss("loss", (h * h):sum(), "sample") end,
  }
  return nn.sequential {input, nn.linear {["in"] = 2, out = CHANNELS}, example.scale {channels = CHANNELS}, loss, seed = 1}
end

-- Trains three steps. Returns their losses and the reports of the pass (nil without the pass).
local function train(stage, every)
  local reports
  local program = zt.program(model(), {micro_batches = 1}):apply(zero.shard {stage = stage, axis = mesh.dp})
  if every then
    reports = {}
    local function report(step, unit, norm) reports[#reports + 1] = {step = step, unit = unit, norm = norm} end
    program = program:apply(example.weight_norm {every = every, report = report})
  end
  local trainer = zt.trainer(program, {optimizer = optim.sgd {lr = 0.1}})
  local losses = {}
  for step = 0, 2 do
    zt.manual_seed(10 * step + mesh.dp.coordinate)
    losses[step + 1] = trainer:step({x = zt.randn({SAMPLES, 2})}).loss
  end
  return losses, reports, trainer, program
end

-- Computes the norm of a unit from its parameters.
local function norm_of(trainer, unit)
  local sum = 0
  for _, name in ipairs(trainer:parameters()) do
    if name:sub(1, #unit + 1) == unit .. "." then sum = sum + trainer:parameter(name):to("float64"):square():sum():item() end
  end
  return math.sqrt(sum)
end

local TestExample = {}

function TestExample.test_scale_multiplies_by_ones_at_the_start()
  local losses = train(0)
  lu.assertTrue(losses[1] > 0)
end

function TestExample.test_the_pass_changes_no_bit()
  for stage = 0, 1 do lu.assertEquals((train(stage, 1)), (train(stage))) end
end

function TestExample.test_norms_are_those_of_the_parameters()
  for stage = 0, 1 do
    local _, reports, trainer = train(stage, 2)
    local last = {}
    for _, report in ipairs(reports) do
      lu.assertEquals(report.step % 2, 0)
      last[report.unit] = report
    end
    local units = 0
    for unit, report in pairs(last) do
      units = units + 1
      lu.assertEquals(report.step, 2)
      -- Both are sums of at most 15 squares in double, in different orders.
      lu.assertAlmostEquals(report.norm, norm_of(trainer, unit), 30 * 2 ^ -53 * report.norm)
    end
    lu.assertEquals(units, 2)
    lu.assertEquals(#reports, 4)
  end
end

function TestExample.test_the_action_comes_after_step()
  local _, _, _, program = train(1, 1)
  local text = program:text()
  lu.assertStrContains(text, "STEP 0")
  lu.assertStrContains(text, "WEIGHT_NORM 1")
end

function TestExample.test_messages()
  lu.assertErrorMsgContains("did you mean 'channels'", example.scale, {chanels = 4})
  lu.assertErrorMsgContains("must be at least 1", example.scale, {channels = 0})
  lu.assertErrorMsgContains("'report' is missing", example.weight_norm, {})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestExample", TestExample}})
