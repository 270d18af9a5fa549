-- Tests ztoolkit report on runs that other processes have written: what the page says, and its data. tests/host/report_test.py
-- tests its script in a browser.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local report = require "support.command" "report"
local run = require "support.command" "run"
local temporary = require "support.temporary"

-- A run that does `how`: it ends, stops, is killed, or fails.
local SCRIPT = [[
local zt = require "zt"
local options = zt.cli{name = "t", options = {
  {"lr", 0.5, "rate"}, {"name", "a", "name"}, {"folder", "", "of runs"}, {"note", "same", "a text"}, {"how", "ends", "the end"},
  {"steps", 3, "all steps"}}}
local record = zt.run{name = options.name, folder = options.folder, options = options, steps = options.steps}
for step = 0, 2 do
  local loss = options.lr * (step - 1) ^ 2 + 1 / 3
  record:log(step, {loss = step == 1 and options.name == "b" and 0 / 0 or loss, stats = {["x.entropy"] = step, list = {step, 7}},
                    tokens = 100, seconds = step == 0 and 3 or 1, tokens_per_second = step == 0 and 100 / 3 or 100,
                    skipped = step == 2, sample = "<i>text</i> of step " .. step, ["</script><b>"] = 1})
end
if options.how == "killed" then os.execute "kill -9 $PPID" end
if options.how == "fails" then error "this script fails" end
if options.how == "stops" then os.exit(75) end
record:finish()
]]

local TestReport = {}

function TestReport:setUp()
  self.folder = temporary()
  zt.fs.make_folder(self.folder)
  zt.write_file(self.folder .. "/t.lua", SCRIPT)
end

-- Makes a run and returns its folder.
function TestReport:make(name, ...)
  run(self.folder .. "/t.lua", "--folder", self.folder, "--name", name, ...)
  return self.folder .. "/" .. name
end

-- Returns the page about runs, and its data.
local function page_of(...)
  local output, status = report(...)
  lu.assertEquals(status, 0, output)
  local page = zt.fs.read(output:match "wrote (%C-%.html)")
  return page, zt.json.decode(page:match '<script type="application/json" id="data">(.-)</script>'), output
end

-- Returns the cells of the row of a section's table that begins with `name`.
local function row(page, section, name)
  local content = page:match('<section id="' .. section .. '">(.-)</section>')
  local cells = content:match('<tr><th scope="row">' .. name:gsub("%p", "%%%0") .. "</th>(.-)</tr>")
  return cells and (cells:gsub("</td><td>", " | "):gsub("<[^>]*>", ""))
end

-- Fails unless a page has the texts. The message has the text instead of the page.
local function assert_has(page, ...)
  for _, text in ipairs{...} do lu.assertNotNil(page:find(text, 1, true), "the page lacks: " .. text) end
end

local function assert_lacks(page, ...)
  for _, text in ipairs{...} do lu.assertNil(page:find(text, 1, true), "the page has: " .. text) end
end

local function badge(state, text) return ('<span class="badge %s">%s</span>'):format(state, text or state) end

function TestReport:test_one_run()
  local path = self:make "a"
  local page, data, output = page_of(path)
  lu.assertEquals(output, "wrote " .. path .. "/report.html\n")
  assert_has(page, badge "ended")
  assert_has(page, "<dt>steps</dt><dd>3<small> of 3</small></dd>")
  assert_has(page, "<dt>least loss</dt><dd>0.333333<small> at step 1</small></dd>")
  lu.assertEquals(row(page, "values", "loss"), "0.8333333333")
  lu.assertEquals(row(page, "values", "loss, least"), "0.3333333333 at 1")
  assert_has(page, "<div><dt>lr</dt><dd>0.5</dd></div>")
  assert_has(page, "ztoolkit run " .. self.folder .. "/t.lua --folder")
  lu.assertEquals(data.metrics, {
    "loss", "</script><b>", "seconds", "skipped", "stats.list[0]", "stats.list[1]", "stats.x.entropy", "tokens",
    "tokens_per_second",
  })
  lu.assertEquals(data.series["stats.list[0]"][1], {x = {0, 1, 2}, y = {0, 1, 2}})
  lu.assertEquals(data.series.skipped[1].y, {0, 0, 1})
  assert_has(page, "The run has recorded no memory", "There is no trace.json", "The run has no checkpoint")
  assert_lacks(page, 'id="experts"', '="http') -- the page needs no network
end

function TestReport:test_runs_side_by_side()
  local a, b = self:make "a", self:make("b", "--lr", "2")
  local page, data = page_of(a, b, "--out", self.folder .. "/both.html")
  lu.assertEquals(row(page, "options", "lr"), "0.5 | 2")
  assert_has(page, "the 5 options that are the same")
  lu.assertEquals(row(page, "overview", "state"), "ended | ended")
  lu.assertEquals(row(page, "values", "loss"), "0.8333333333 | 2.333333333 (1 not finite)")
  lu.assertEquals(data.runs, {"a", "b"})
  assert_has(page, '{"x":[0,1,2],"y":[2.33333,null,2.33333]}') -- a gap, and not the line of a or zero
end

function TestReport:test_signs_of_html_are_escaped()
  local page, data = page_of(self:make("a", "--note", "</script><b>&\"x\""))
  assert_has(page, "<div><dt>note</dt><dd>&lt;/script&gt;&lt;b&gt;&amp;&quot;x&quot;</dd></div>")
  assert_has(page, "&lt;i&gt;text&lt;/i&gt; of step 2")
  lu.assertEquals(select(2, page:gsub("</script>", "")), 2) -- those of the data and of the page's own script
  assert_lacks(page, "<b>", "<i>")
  lu.assertNotNil(data.series["</script><b>"])
end

-- The rate is that of all tokens, and no mean of the steps' rates.
function TestReport:test_tokens_per_second()
  assert_has(page_of(self:make "a"), "<dt>tokens per second</dt><dd>60<small></small></dd>")
end

-- A resumed run has begun when its first start did.
function TestReport:test_a_resumed_run()
  local path = self:make("a", "--steps", "5")
  local first = zt.json.decode(zt.fs.read(path .. "/options.json"))
  first.started, first.begun = "2026-01-02T03:04:05Z", nil -- as an older version wrote it
  zt.write_file(path .. "/options.json", zt.json.encode(first))
  local own = zt.run{name = "a", folder = self.folder, resume = true, steps = 5}
  own:log(3, {loss = 1})
  own:finish()
  local record = zt.json.decode(zt.fs.read(path .. "/options.json"))
  lu.assertEquals(record.begun, "2026-01-02T03:04:05Z")
  lu.assertNotEquals(record.started, record.begun)
  assert_has(page_of(path), "<dt>time since the last start</dt>",
             '<th scope="row">first started</th><td>2026-01-02T03:04:05Z</td>')
end

function TestReport:test_the_latest_texts_come_first()
  local page = page_of(self:make "a")
  local first, second = page:find("step 2</div>", 1, true), page:find("step 1</div>", 1, true)
  lu.assertTrue(first < second)
end

-- A killed run leaves its lock, and perhaps a part of a line.
function TestReport:test_a_run_that_was_killed()
  local path = self:make("a", "--how", "killed")
  local metrics = zt.fs.read(path .. "/metrics.jsonl")
  zt.write_file(path .. "/metrics.jsonl", "no JSON\n" .. metrics .. '{"step":3,"lo')
  local page, data = page_of(path)
  assert_has(page, badge("killed", "killed or failed"))
  assert_has(page, "ended without run:finish(). Damaged lines of metrics.jsonl, which are left out: 1.")
  lu.assertEquals(data.series.loss[1].x, {0, 1, 2})
end

function TestReport:test_other_ends()
  assert_has(page_of(self:make("a", "--how", "fails")), badge("killed", "killed or failed"))
  assert_has(page_of(self:make("c", "--how", "stops")), badge "stopped", "it was told to stop")
  assert_has(page_of(self:make("d", "--steps", "9")), badge "stopped", "It stopped after 3 of 9 steps, at ")
  local path = self:make "b"
  local record = zt.json.decode(zt.fs.read(path .. "/options.json"))
  record.started = "2000-01-01T00:00:00Z" -- another start than the one that summary.json is about
  zt.write_file(path .. "/options.json", zt.json.encode(record))
  assert_has(page_of(path), badge "stopped")
  os.remove(path .. "/summary.json")
  assert_has(page_of(path), badge "unknown")
  os.remove(path .. "/metrics.jsonl")
  local page, data = page_of(path)
  assert_has(page, "It has recorded no metrics yet.")
  assert_has(page, "There are no numbers to draw")
  lu.assertEquals(#data.metrics, 0)
end

-- The lock of a process on another machine counts for 60 s.
function TestReport:test_a_run_on_another_machine()
  local path = self:make "a"
  zt.write_file(path .. "/run.lock", '{"host": "elsewhere", "boot": "b", "pid_namespace": "n", "pid": 1, "start": 1, '
                .. '"since": "2026-01-02T03:04:05Z", "token": "t"}')
  assert_has(page_of(path), "It is under way: process 1 on elsewhere.")
  os.execute(("touch -d '3 minutes ago' '%s/run.lock'"):format(path))
  assert_has(page_of(path), "process 1 on elsewhere has not renewed its lock for 3:0")
end

function TestReport:test_a_run_that_goes_on_is_watched()
  local own = zt.run{name = "own", folder = self.folder, steps = 5}
  own:log(0, {loss = 1})
  assert_has(page_of(own.path), badge "running")
  os.remove(own.path .. "/report.html")
  os.execute(("(while [ ! -e '%s/report.html' ]; do sleep 0.05; done; sleep 0.5; rm '%s/run.lock') &"):format(own.path, own.path))
  local page, data, output = page_of(own.path, "--watch", "--every", "0.2")
  local _, count = output:gsub("wrote ", "")
  lu.assertTrue(count >= 2, output) -- one while the run went on, one after it
  lu.assertStrContains(output, "/report.html: no run goes on\n")
  lu.assertNil(data.reload)
  assert_lacks(page, 'id="watched"')
  own.lock:release()
end

function TestReport:test_what_is_refused()
  local output, status = report()
  lu.assertEquals(status, 2)
  lu.assertStrContains(output, "report: RUNS is missing: the folders of one run or more")
  output, status = report(self.folder)
  lu.assertEquals(status, 1)
  lu.assertStrContains(output, "is no run: it has no options.json")
  local path = self:make "a"
  output, status = report(path, "--every", "2")
  lu.assertEquals(status, 1)
  lu.assertStrContains(output, "option '--every' has no effect without --watch: add --watch")
  output, status = report(path, "--out", self.folder .. "/none/x.html")
  lu.assertEquals(status, 1)
  lu.assertStrContains(output, "none/x.html")
  zt.write_file(path .. "/summary.json", "{")
  output, status = report(path)
  lu.assertEquals(status, 1)
  lu.assertStrContains(output, "summary.json' is damaged: it holds no JSON. Remove it")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestReport", TestReport}})
