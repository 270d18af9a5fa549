-- Tests ztoolkit export-run with readers of its own. tests/oracle/check/read_records.py reads such files with MLflow and W&B.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local decode = require "support.decode"
local export_run = require "support.command" "export-run"
local temporary = require "support.temporary"

local STARTED = "2024-02-29T12:30:15Z"
local BEGAN = 1709209815 -- of `date -u -d 2024-02-29T12:30:15Z +%s`

local TestExport = {}

function TestExport:setUp()
  self.folder = temporary()
  self.run, self.out = self.folder .. "/gpt", self.folder .. "/out"
end

-- Writes a run's record with these options and lines.
function TestExport:record(options, lines, started)
  zt.mkdir_p(self.run)
  zt.write_file(self.run .. "/options.json", zt.json.encode{
    name = "gpt", options = options, ranks = 2, command = {"ztoolkit", "run", "x.lua"}, started = started or STARTED,
  })
  local text = {}
  for place, line in ipairs(lines) do text[place] = zt.json.encode(line) .. "\n" end
  zt.write_file(self.run .. "/metrics.jsonl", table.concat(text))
end

function TestExport:export(...)
  local output, status = export_run(self.run, ...)
  lu.assertEquals(status, 0, output)
  return output:match "wrote ([^\n]+)\n$"
end

function TestExport:test_mlflow()
  self:record({lr = 0.5, sizes = {1, 2}, text = 'a: "b"', flag = true},
              {{step = 0, loss = 3, seconds = 0.25}, {step = 1, loss = 0.1, seconds = 0.5, stats = {norm = 7}},
               {step = 1, validation_loss = 1e300}})
  for _ = 1, 2 do -- the second export replaces the first
    local folder = self:export("--mlflow", self.out)
    lu.assertStrMatches(folder, self.out:gsub("%p", "%%%0") .. "/0/" .. ("%x"):rep(32))
    local function read(path) return zt.fs.read(folder .. "/" .. path) end
    lu.assertEquals(zt.fs.list(folder), {"artifacts", "meta.yaml", "metrics", "params", "tags"})
    lu.assertEquals(read "metrics/loss", ("%d250 3 0\n%d750 0.10000000000000001 1\n"):format(BEGAN, BEGAN))
    lu.assertEquals(read "metrics/stats/norm", BEGAN .. "750 7 1\n")
    lu.assertEquals(read "metrics/validation_loss", BEGAN .. "750 1.0000000000000001e+300 1\n")
    lu.assertEquals(zt.fs.list(folder .. "/params"), {"flag", "lr", "ranks", "sizes", "text"})
    lu.assertEquals({read "params/sizes", read "params/text", read "params/flag"}, {"[1,2]", 'a: "b"', "true"})
    lu.assertEquals({read "tags/mlflow.runName", read "tags/mlflow.source.name"}, {"gpt", "ztoolkit run x.lua"})
    local meta = read "meta.yaml"
    for _, line in ipairs{
      'run_name: "gpt"', "status: 3", ("start_time: %d000"):format(BEGAN), ("end_time: %d750"):format(BEGAN),
      ('run_id: "%s"'):format(folder:match "[^/]+$"), ('artifact_uri: "file://%s/artifacts"'):format(folder),
    } do
      lu.assertStrContains("\n" .. meta, "\n" .. line .. "\n")
    end
  end
  lu.assertEquals(#zt.fs.list(self.out .. "/0"), 2)
  lu.assertStrContains(zt.fs.read(self.out .. "/0/meta.yaml"), 'name: "Default"\n')
  zt.write_file(self.out .. "/0/meta.yaml", "mine")
  self:export("--mlflow", self.out)
  lu.assertEquals(zt.fs.read(self.out .. "/0/meta.yaml"), "mine") -- a store of MLflow is left as it is
end

function TestExport:test_names_that_mlflow_does_not_allow()
  self:record({}, {{step = 0, ["../x"] = 1, ["/y"] = 2, ["a(b)"] = 3}})
  local folder = self:export("--mlflow", self.out)
  lu.assertEquals(zt.fs.list(folder .. "/metrics"), {"_", "a_b_", "y"})
  lu.assertEquals(zt.fs.list(folder .. "/metrics/_"), {"x"})
  self:record({}, {{step = 0, ["a(b"] = 1, ["a[b"] = 2}})
  local output, status = export_run(self.run, "--mlflow", self.out)
  lu.assertEquals(status, 1)
  lu.assertStrMatches(output, "export%-run: 'a[%[%(]b' and 'a[%[%(]b' have the same name in MLflow, 'a_b': give one of them .*\n")
end

-- A value and a table of one name, names that file systems lack, and metrics that are no longer there.
function TestExport:test_names_that_files_cannot_have()
  local long = ("n"):rep(300)
  self:record({x = 1, ["x/y"] = 2}, {{step = 0, val = 3, [""] = 1, ["trail/"] = 2, [long] = 4, gone = 5},
                                     {step = 1, val = {x = 4}}})
  local folder = self:export("--mlflow", self.out)
  lu.assertEquals(zt.fs.list(folder .. "/metrics/val"), {"value", "x"})
  lu.assertEquals(zt.fs.list(folder .. "/params/x"), {"value", "y"})
  lu.assertEquals(#zt.fs.list(folder .. "/metrics"), 5)
  self:record({}, {{step = 0, val = 3}})
  folder = self:export("--mlflow", self.out)
  lu.assertEquals(zt.fs.list(folder .. "/metrics"), {"val"})
  lu.assertEquals(zt.fs.list(folder .. "/params"), {"ranks"})
end

-- Returns the list of the fields `number` of a message.
local function fields(message, number)
  local all = {}
  for _, item in ipairs(decode.message(message)) do
    if item[1] == number then all[#all + 1] = item[2] end
  end
  return all
end

local function field(message, number) return fields(message, number)[1] end

-- Returns the items of the history, the summary or the configuration.
local function items(message)
  local out = {}
  for _, item in ipairs(fields(message, 1)) do out[field(item, 1)] = zt.json.decode(field(item, 16)) end
  return out
end

local function records_of(folder)
  local text = zt.fs.read(("%s/run-%s.wandb"):format(folder, folder:match "[^-]+$"))
  lu.assertEquals(text:sub(1, 7), ":W&B\225\190\0")
  return decode.leveldb(text, 8)
end

function TestExport:test_wandb()
  self:record({lr = 0.5, sizes = {1, 2}}, {{step = 3, loss = 3, seconds = 0.25}, {step = 3, validation_loss = 4},
                                           {step = 200, loss = 0.1, stats = {norm = 7}}})
  local folder = self:export("--wandb-offline", self.out, "--project", "p")
  lu.assertStrMatches(folder, ".*/out/offline%-run%-20240229_123015%-%x%x%x%x%x%x%x%x")
  local records = records_of(folder)
  lu.assertEquals(#records, 6)
  for place, record in ipairs(records) do lu.assertEquals(field(record, 1), place) end
  lu.assertNotNil(field(records[1], 21))
  local run = field(records[2], 17)
  lu.assertEquals({field(run, 1), field(run, 3), field(run, 8)}, {folder:match "[^-]+$", "p", "gpt"})
  lu.assertEquals(items(field(run, 4)), {lr = 0.5, ranks = 2, sizes = {1, 2}})
  lu.assertEquals(field(field(run, 17), 1), BEGAN)
  local first, second = field(records[3], 2), field(records[4], 2)
  local time = BEGAN + 0.25
  lu.assertEquals(items(first), {loss = 3, validation_loss = 4, seconds = 0.25, _step = 3, _runtime = 0.25, _timestamp = time})
  lu.assertEquals(items(second), {loss = 0.1, ["stats/norm"] = 7, _step = 200, _runtime = 0.25, _timestamp = time})
  lu.assertEquals({field(field(first, 2), 1), field(field(second, 2), 1)}, {3, 200})
  lu.assertEquals(items(field(records[5], 3)), {loss = 0.1, validation_loss = 4, seconds = 0.25, ["stats/norm"] = 7, _step = 200,
                                                _runtime = 0.25, _timestamp = time})
  lu.assertNotNil(field(records[6], 18))
end

-- The tools are told how the run has ended. Its first start is its beginning.
function TestExport:test_how_a_run_ended()
  local lines = {{step = 0, loss = 3, seconds = 0.25}, {step = 1, loss = 2, seconds = 0.5}}
  local function exported(summary, lock)
    self:record({}, lines, "2026-01-02T03:04:05Z")
    local record = zt.json.decode(zt.fs.read(self.run .. "/options.json"))
    record.begun = STARTED
    zt.write_file(self.run .. "/options.json", zt.json.encode(record))
    zt.write_file(self.run .. "/summary.json", zt.json.encode(summary))
    if lock then zt.write_file(self.run .. "/run.lock", lock) else os.remove(self.run .. "/run.lock") end
    local meta = zt.fs.read(self:export("--mlflow", self.out) .. "/meta.yaml")
    local records = records_of(self:export("--wandb-offline", self.out))
    local exit = field(records[#records], 18)
    return {meta:match "status: (%d)", meta:match "end_time: (%w+)", exit and field(exit, 1) or "goes on"}
  end
  local ended = {started = "2026-01-02T03:04:05Z", finished = "2026-01-02T03:05:05Z", steps = 2}
  local at = BEGAN .. "750"
  lu.assertEquals(exported(ended), {"3", at, 0})
  ended.steps = 9
  lu.assertEquals(exported(ended), {"5", at, 75})
  lu.assertEquals(exported({started = "2026-01-02T03:04:05Z", steps = 2}, "{}"), {"1", "null", "goes on"})
  local lock = '{"host":"gone","boot":"b","pid_namespace":"n","pid":1,"start":1,"since":"s","token":"t"}'
  lu.assertEquals(exported({started = "2026-01-02T03:04:05Z", steps = 2}, lock), {"1", "null", "goes on"}) -- renewed just now
end

function TestExport:test_a_run_that_was_sent_stays()
  self:record({}, {{step = 0, loss = 3}})
  local folder = self:export("--wandb-offline", self.out)
  lu.assertEquals(self:export("--wandb-offline", self.out), folder)
  zt.write_file(("%s/run-%s.wandb.synced"):format(folder, folder:match "[^-]+$"), "")
  local output, status = export_run(self.run, "--wandb-offline", self.out)
  lu.assertEquals(status, 1)
  lu.assertStrContains(output, "was sent by wandb sync")
  lu.assertEquals(#records_of(folder), 5)
end

-- Records of many lengths end at every place of a block, and one is longer than a block.
function TestExport:test_the_blocks_of_the_log()
  local lines = {{step = 0, [("n"):rep(70000)] = 1}}
  for step = 1, 9000 do lines[step + 1] = {step = step, [("x"):rep(step % 61 + 1)] = step} end
  self:record({}, lines)
  local records, filled = records_of(self:export("--wandb-offline", self.out))
  lu.assertEquals(#records, 9001 + 4)
  lu.assertTrue(filled > 0)
  lu.assertEquals(items(field(records[3], 2))[("n"):rep(70000)], 1)
  for step = 1, 9000 do lu.assertEquals(items(field(records[step + 3], 2))[("x"):rep(step % 61 + 1)], step) end
end

function TestExport:test_what_is_refused()
  local output, status = export_run(self.folder)
  lu.assertEquals(status, 1)
  lu.assertEquals(output, "export-run: say where to write to: give --mlflow FOLDER, --wandb-offline FOLDER, or both\n")
  output, status = export_run(self.folder .. "/none", "--mlflow", self.out)
  lu.assertEquals(status, 1)
  lu.assertStrContains(output, "/none' is no run: it has no options.json")
  lu.assertFalse(zt.exists(self.out))
  self:record({}, {}, "yesterday")
  output = export_run(self.run, "--mlflow", self.out)
  lu.assertStrContains(output, "options.json' is damaged: it does not say when the run started")
  self:record({}, {})
  self:export("--mlflow", self.out, "--wandb-offline", self.out) -- a run that has logged nothing
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestExport", TestExport}})
