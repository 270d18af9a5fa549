-- Tests that zt.run and its methods refuse wrong values on all ranks alike, before they change anything. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt = require "zt.ckpt"
local small = require "support.small_trainer"
local temporary = require "support.temporary"

local mesh = small.mesh

local TestRunOptions = {}

function TestRunOptions:setUp()
  zt.log.set_level "error"
  self.folder = temporary()
end

function TestRunOptions:open(more)
  local options = {name = "r", folder = self.folder, mesh = mesh, trace = false}
  for key, value in pairs(more or {}) do options[key] = value end
  return zt.run(options)
end

function TestRunOptions:test_options()
  local function refused(message, more) lu.assertErrorMsgContains(message, self.open, self, more) end
  refused("zt.run.trainer must be a Trainer, from zt.trainer, got an integer", {trainer = 5})
  refused("zt.run.trainer must be a Trainer, from zt.trainer, got a Mesh", {trainer = mesh})
  refused("zt.run.mesh must be a Mesh, from comm.mesh, got an Axis", {mesh = mesh.dp})
  lu.assertFalse(zt.exists(self.folder))
end

function TestRunOptions:test_the_values_of_log()
  local run = self:open()
  local function refused(message, values) lu.assertErrorMsgContains(message, run.log, run, 0, values) end
  refused("run:log: 'loss' is plotted or shown, so it must be a number, got a string: give another kind", {loss = "x"})
  refused("'validation_loss' is plotted or shown, so it must be a number, got a tensor: take x:item()",
          {validation_loss = zt.ones(1)})
  refused("'stats' has the layers' statistics, so it must be a table, got an integer", {stats = 1})
  refused("run:log: stats['a.load'] must be a list, got an integer", {stats = {["a.load"] = 1}})
  refused("run:log: stats['a.load'][2] must be a number, got a string", {stats = {["a.load"] = {1, "x"}}})
  refused("run:log: 'weights' cannot be written: a tensor cannot be written as JSON", {loss = 1, weights = zt.ones(2)})
  refused("run:log(0, values): the run writes the step itself, 0, but the values have step = 5: leave it out", {step = 5, x = 1})
  mesh:world():barrier()
  if zt.world.rank == 0 then lu.assertEquals(zt.fs.read(run.path .. "/metrics.jsonl"), "") end
  run:finish()
end

-- Values that the script chooses are shown, plotted and checked like the loss.
function TestRunOptions:test_the_keys_to_show()
  local function refused(message, show) lu.assertErrorMsgContains(message, self.open, self, {show = show}) end
  refused("zt.run.show must be a list, got a string", "aux")
  refused("zt.run.show[2] must be a string, got an integer", {"aux", 2})
  refused("zt.run.show holds 'aux' twice: give each name once", {"aux", "aux"})
  refused("zt.run.show holds an empty name", {""})
  lu.assertFalse(zt.exists(self.folder))
  mesh:world():barrier() -- rank 0 makes the folder next
  local run = self:open{show = {"loss", "aux", "stats.a.balance", "terms.x", "gone"}}
  lu.assertErrorMsgContains("run:log: 'aux' is plotted or shown, so it must be a number, got a tensor: take x:item()", run.log,
                            run, 0, {aux = zt.ones(1)})
  lu.assertErrorMsgContains("run:log: 'terms.x' is plotted or shown, so it must be a number, got a string", run.log, run, 0,
                            {terms = {x = "1"}})
  run:log(0, {aux = 2, stats = {["a.balance"] = 3}, terms = {x = 4}, loss = 1})
  local warnings, warn = {}, zt.log.warn
  zt.log.warn = function(...) warnings[#warnings + 1] = (...):format(select(2, ...)) end
  run:finish()
  zt.log.warn = warn
  if zt.world.rank > 0 then return lu.assertEquals(warnings, {}) end
  lu.assertEquals(#warnings, 1)
  lu.assertStrContains(warnings[1], "no step of the run 'r' had a number named 'gone': name the values as run:log gets them")
  local svg = zt.fs.read(run.path .. "/loss.svg")
  for _, name in ipairs{"aux", "stats.a.balance", "terms.x"} do lu.assertStrContains(svg, ">" .. name .. "</text>") end
  local _, names = svg:gsub('font%-weight="bold">', "")
  lu.assertEquals(names, 4) -- a panel per key that is no loss
  lu.assertEquals(zt.json.decode(zt.fs.read(run.path .. "/options.json")).show,
                  {"loss", "aux", "stats.a.balance", "terms.x", "gone"})
end

-- A trainer may have made steps before the run.
function TestRunOptions:test_the_step_of_a_result()
  local trainer, run = small.trained(0, 2), self:open()
  run:log(0, trainer:step(small.batch(2)))
  if zt.world.rank == 0 then
    lu.assertEquals(zt.json.decode(zt.fs.read(run.path .. "/metrics.jsonl")).step, 0)
  end
  run:finish()
end

function TestRunOptions:test_hooks()
  local run, seen = self:open{steps = 9}, {}
  local rank, last = zt.world.rank, zt.world.size - 1
  local function note(event) return function(step, values) seen[#seen + 1] = event .. step .. (values.loss or "") end end
  run:on("step", note "step ")
  run:on("evaluate", note "evaluate ")
  run:on("save", function(step, folder) seen[#seen + 1] = ("%d %s"):format(step, folder:match "[^/]*$") end)
  local is_far = false
  run:on("step", function() if is_far and rank == last then return false end end)
  lu.assertTrue(run:log(0, {loss = 3}))
  lu.assertTrue(run:log(1, {loss = 2, validation_loss = 1}))
  lu.assertNil(ckpt.save(run, 2, {every = 100, async = false}))
  is_far = true
  lu.assertFalse(run:log(2, {loss = 1}))
  ckpt.save(run, 3, {every = 100, async = false})
  is_far = false
  lu.assertFalse(run:log(3, {loss = 0}))
  lu.assertEquals(seen, {"step 03", "step 12", "evaluate 12", "step 21", "3 step_00000003", "step 30"})
  lu.assertErrorMsgContains("run:on: there is no event 'steps': did you mean 'step'?", run.on, run, "steps", print)
  lu.assertErrorMsgContains("run:on(event, fn): the hook must be a function, got nil", run.on, run, "step")
  run:on("step", function(step) if step == 4 and rank == last then error "the hook fails" end end)
  lu.assertErrorMsgContains("the hook fails", run.log, run, 4, {loss = 1})
  run:on("step", function() return 1 end)
  lu.assertErrorMsgContains("returned an integer: let it return nothing, or false to stop the run", run.log, run, 5, {loss = 1})
  run:finish()
end

function TestRunOptions:test_methods()
  local run = self:open()
  lu.assertErrorMsgContains("run:rewind: the step must be an integer, got nil", run.rewind, run)
  lu.assertErrorMsgContains("run:before_finish: the action must be a function, got nil", run.before_finish, run)
  run:finish()
  lu.assertErrorMsgContains("run:before_finish comes after run:finish()", run.before_finish, run, print)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestRunOptions", TestRunOptions}})
