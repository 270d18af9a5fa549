-- Tests ztoolkit plot: the plot of a run that was killed is the one that a finished run writes.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local plot = require "support.command" "plot"
local temporary = require "support.temporary"

local TestPlot = {}

function TestPlot:test_a_run_that_was_killed()
  local folder = temporary()
  local run = zt.run{name = "r", folder = folder, steps = 3, show = {"aux", "stats.balance"}}
  for step = 0, 2 do
    run:log(step, {loss = 3 - step, aux = 100 * step, validation_loss = step == 2 and 1.5 or nil,
                   stats = {["blocks.0.router.load"] = {step, 4}, balance = step}})
  end
  run:finish()
  local files = {"loss.svg", "expert_load.svg"}
  local expected = {}
  for i, file in ipairs(files) do
    expected[i] = zt.fs.read(run.path .. "/" .. file)
    os.remove(run.path .. "/" .. file)
  end
  zt.write_file(run.path .. "/metrics.jsonl", zt.fs.read(run.path .. "/metrics.jsonl") .. '{"step":3,"lo')
  local output, status = plot(run.path)
  lu.assertEquals(status, 0, output)
  for i, file in ipairs(files) do
    lu.assertStrContains(output, ("wrote %s/%s\n"):format(run.path, file))
    lu.assertEquals(zt.fs.read(run.path .. "/" .. file), expected[i])
  end
end

function TestPlot:test_what_is_refused()
  local folder = temporary()
  local output, status = plot(folder)
  lu.assertEquals(status, 1)
  lu.assertStrContains(output, "plot: there is no folder '" .. folder .. "': give the folder of a run, such as runs/gpt")
  zt.mkdir_p(folder)
  output, status = plot(folder)
  lu.assertEquals(status, 1)
  lu.assertStrContains(output, "has no metrics.jsonl: give the folder of a run, such as runs/gpt. A run has the file from its")
  output, status = plot()
  lu.assertEquals(status, 2)
  lu.assertStrContains(output, "plot: RUNS is missing: the folders of runs")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestPlot", TestPlot}})
