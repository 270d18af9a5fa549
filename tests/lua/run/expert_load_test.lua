-- Tests the picture of the experts' load: what it keeps, and what it draws.
local lu = require "luaunit"
local expert_load = require "zt.run.expert_load"

-- Returns the load of `experts` experts: all equal, but that expert `hot` has `factor` times as much.
local function load(experts, hot, factor)
  local list = {}
  for expert = 1, experts do list[expert] = expert == hot and factor or 1 end
  return list
end

local TestExpertLoad = {}

function TestExpertLoad:test_nothing_to_draw()
  local loads = expert_load()
  loads:add(0, {["blocks.0.router.entropy"] = 1, ["blocks.0.router.load"] = {0, 0}, ["other.load"] = 3})
  lu.assertNil(loads:svg "empty")
end

-- Columns of many steps are means, and their number is bounded.
function TestExpertLoad:test_long_runs_keep_few_columns()
  local loads = expert_load()
  for step = 0, 999 do loads:add(step, {["r.load"] = load(4, 2, step % 2 == 0 and 1 or 5)}) end
  local layer = loads.layers.r
  lu.assertEquals(layer.steps_per_column, 8)
  lu.assertEquals(#layer.columns, 125)
  local steps = 0
  for index, column in ipairs(layer.columns) do
    steps = steps + column.count
    lu.assertEquals(column.first, 8 * (index - 1))
    lu.assertAlmostEquals(column.imbalance / column.count, (1 + 5 / 2) / 2, 1e-12)
    lu.assertAlmostEquals(column.shares[2] / column.count, (1 + 5 / 2) / 2, 1e-12)
  end
  lu.assertEquals(steps, 1000)
end

function TestExpertLoad:test_the_picture()
  local loads = expert_load()
  for step = 0, 9 do
    loads:add(step, {["blocks.10.router.load"] = load(4, 1, 5), ["blocks.2.<router>.load"] = load(4, 4, 0)})
  end
  local svg = loads:svg "load of the experts of a & b"
  lu.assertStrContains(svg, "load of the experts of a &amp; b")
  lu.assertTrue(svg:find("blocks.2.&lt;router&gt;", 1, true) < svg:find("blocks.10.router", 1, true)) -- natural order
  lu.assertStrContains(svg, 'fill="#202020" shape-rendering') -- an expert without tokens
  lu.assertEquals(select(2, svg:gsub("<polyline", "")), 2)
end

-- Many layers and experts make a picture of bounded size.
function TestExpertLoad:test_large_models()
  local loads = expert_load()
  for step = 0, 199 do
    local stats = {}
    for layer = 0, 29 do stats[("blocks.%d.router.load"):format(layer)] = load(256, step % 256 + 1, 40) end
    loads:add(step, stats)
  end
  local svg = loads:svg "large"
  lu.assertStrContains(svg, "large (6 of 30 layers)")
  lu.assertStrContains(svg, "expert, max of 13")
  lu.assertTrue(#svg < 2e6)
end

function TestExpertLoad:test_a_page_is_at_most_1200_pixels_tall()
  for _, layers in ipairs{1, 2, 3, 5, 6, 12} do
    for _, experts in ipairs{1, 8, 60, 512} do
      local loads, stats = expert_load(), {}
      for layer = 1, layers do stats[("blocks.%d.router.load"):format(layer)] = load(experts, 1, 2) end
      loads:add(0, stats)
      local tall = tonumber(loads:svg("x"):match 'height="(%d+)"')
      lu.assertTrue(tall <= 1200, ("%d layers of %d experts: %s"):format(layers, experts, tall))
    end
  end
end

function TestExpertLoad:test_one_expert_has_a_picture()
  local loads = expert_load()
  for step = 0, 3 do loads:add(step, {["r.load"] = {3 + step}}) end
  local svg = loads:svg "one"
  lu.assertEquals(select(2, svg:gsub("<polyline", "")), 1)
  lu.assertEquals(select(2, svg:gsub(">0</text>", "")), 2) -- one expert, and the first step
end

function TestExpertLoad:test_the_line_has_a_label()
  for _, steps in ipairs{5, 100} do
    local loads = expert_load()
    for step = 0, steps - 1 do loads:add(step, {["r.load"] = load(4, 1, 2)}) end
    lu.assertStrContains(loads:svg "x", ">max/mean</text>")
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestExpertLoad", TestExpertLoad}})
