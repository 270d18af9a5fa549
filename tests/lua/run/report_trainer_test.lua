-- Tests what ztoolkit report shows of a run with a trainer, experts and checkpoints, and the record that the run keeps for it.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt = require "zt.ckpt"
local report = require "support.command" "report"
local small = require "support.small_mixture"
local temporary = require "support.temporary"

local TestReport = {}

local function page_of(path)
  local output, status = report(path)
  lu.assertEquals(status, 0, output)
  return zt.fs.read(path .. "/report.html")
end

local function section(page, name) return page:match('<section id="' .. name .. '">(.-)</section>') end

local function summary_of(run) return zt.json.decode(zt.fs.read(run.path .. "/summary.json")) end

local function change(path, action)
  local record = zt.json.decode(zt.fs.read(path))
  action(record)
  zt.write_file(path, zt.json.encode(record))
end

function TestReport:setUp()
  local trainer = small.trainer(small.model())
  self.run = zt.run{name = "r", folder = temporary(), trainer = trainer, steps = 3}
  self.before = summary_of(self.run)
  for step = 0, 1 do
    self.run:log(step, trainer:step(small.batch(step)))
    ckpt.save(self.run, step + 1, {async = false})
  end
  self.run:finish()
  self.memory = trainer:memory()
end

-- No step has been made when the record begins, so the activations are not known.
function TestReport:test_the_record()
  local after = summary_of(self.run)
  lu.assertEquals(self.before.memory[1].parameters, self.memory.parameters)
  lu.assertNil(self.before.memory[1].activations.measured)
  lu.assertNil(self.before.finished)
  lu.assertEquals(after.memory, {self.memory})
  lu.assertTrue(after.memory[1].activations.measured > 0)
  lu.assertEquals({after.steps, after.started == self.before.started}, {3, true})
  lu.assertStrMatches(after.finished, "%d+-%d+-%d+T%d+:%d+:%d+Z")
  lu.assertStrContains(after.report, "memory    parameters")
end

function TestReport:test_memory()
  local content = section(page_of(self.run.path), "memory")
  for kind, line in pairs(self.memory) do
    local cells = ('<tr><th scope="row">%s</th><td>%s</td><td>%s</td>'):format(
      kind, zt.text.bytes(line.predicted), zt.text.bytes(line.measured))
    lu.assertStrContains(content, cells)
  end
  lu.assertStrContains(content, '<span class="bar measured" style="width:100.00%"></span>')
  -- of many ranks: those with the most memory
  change(self.run.path .. "/summary.json", function(summary)
    for rank = 0, 19 do
      summary.memory[rank + 1] = {total = {predicted = 1024 * rank, measured = 1024 * (rank == 7 and 99 or rank)}}
    end
  end)
  content = section(page_of(self.run.path), "memory")
  lu.assertStrContains(content, "Rank 7, the fullest of 20.")
  lu.assertStrContains(content, "the 16 fullest of 20 ranks")
  lu.assertStrContains(content, '<tr><th scope="row">rank 19</th><td>19.0 KiB</td><td>19.0 KiB</td></tr>')
  lu.assertNotStrContains(content, '<th scope="row">rank 3</th>')
end

function TestReport:test_pictures()
  local page = page_of(self.run.path)
  lu.assertStrContains(section(page, "step"), "Step 1, whose time is the median of the steps 0 to 1: ")
  lu.assertStrContains(section(page, "step"), ">run rank 0</text>")
  lu.assertStrContains(section(page, "experts"), "load of the experts of r</text>")
  lu.assertStrContains(section(page, "start"), "the model, the program and what it sends")
  zt.write_file(self.run.path .. "/trace.json", "{")
  lu.assertStrContains(section(page_of(self.run.path), "step"), "The step cannot be drawn: &#39;")
end

-- The page of a run that was killed has all that its ranks have written.
function TestReport:test_the_parts_of_a_trace()
  local path, lines = self.run.path, {}
  for place, event in ipairs(zt.json.decode(zt.fs.read(path .. "/trace.json")).traceEvents) do
    lines[place] = zt.json.encode(event) .. ",\n"
  end
  os.remove(path .. "/trace.json")
  local started = zt.json.decode(zt.fs.read(path .. "/options.json")).started
  zt.write_file(("%s/trace.%s.0.part"):format(path, (started:gsub("[^%w]", ""))), table.concat(lines))
  lu.assertStrContains(section(page_of(path), "step"), "Step 1, whose time is the median of the steps 0 to 1: ")
end

function TestReport:test_where_to_resume()
  local content = section(page_of(self.run.path), "resume")
  lu.assertStrContains(content, ("2 complete checkpoints is <code>%s/step_00000002</code>: 2 steps done"):format(self.run.path))
  lu.assertNotStrContains(content, "The script does not resume runs") -- this file has the word "resume"
  change(self.run.path .. "/options.json", function(record)
    record.command = {"/opt/bin/ztoolkit", "run", "a b.lua", "--overwrite", "--lr", "0.1"}
    record.launch, record.ranks, record.options = "mpi", 4, {resume = false}
  end)
  content = section(page_of(self.run.path), "resume")
  lu.assertStrContains(content, '<pre class="command">ztoolkit run -n 4 &#39;a b.lua&#39; --lr 0.1 --resume</pre>')
  zt.write_file(self.run.path .. "/script.lua", "-- trains")
  lu.assertStrContains(section(page_of(self.run.path), "resume"), "The script does not resume runs.")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestReport", TestReport}})
