-- Tests ztoolkit compare on runs that other processes have written.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local compare = require "support.command" "compare"
local run = require "support.command" "run"
local temporary = require "support.temporary"

local SCRIPT = [[
local zt = require "zt"
local options = zt.cli{name = "t", options = {{"lr", 0.5, "rate"}, {"name", "a", "name"}, {"folder", "", "of runs"}}}
local record = zt.run{name = options.name, folder = options.folder, options = options, steps = 3}
for step = 0, 2 do
  record:log(step, {loss = options.lr * (step - 1) ^ 2 + 1, other = options.name == "b" and 2 or nil, same = 7})
end
record:finish()
]]

local TestCompare = {}

function TestCompare:setUp()
  self.folder = temporary()
  zt.fs.make_folder(self.folder)
  zt.write_file(self.folder .. "/t.lua", SCRIPT)
  for name, lr in pairs{a = "0.5", b = "2"} do
    local output, status = run(self.folder .. "/t.lua", "--name", name, "--lr", lr, "--folder", self.folder)
    lu.assertEquals(status, 0, output)
  end
  self.a, self.b = self.folder .. "/a", self.folder .. "/b"
end

local function row(output, name)
  for line in output:gmatch "[^\n]+" do
    if line:sub(1, #name + 2) == name .. "  " then return (line:sub(#name + 1):gsub("^%s+", ""):gsub("%s%s+", " | ")) end
  end
end

function TestCompare:test_what_differs()
  local output, status = compare(self.a, self.b)
  lu.assertEquals(status, 0, output)
  lu.assertEquals(row(output, "lr"), "0.5 | 2")
  lu.assertEquals(row(output, "steps"), "3 | 3")
  lu.assertEquals(row(output, "loss"), "1.5 | 3")
  lu.assertEquals(row(output, "loss, least"), "1 at 1 | 1 at 1")
  lu.assertNil(row(output, "same"))
  lu.assertNil(row(output, "other"))
  lu.assertEquals(row(compare(self.a, self.b, "--all"), "other"), "- | 2")
end

function TestCompare:test_numbers_in_tables()
  for place, path in ipairs{self.a, self.b} do
    local lines = zt.fs.read(path .. "/metrics.jsonl")
    zt.write_file(path .. "/metrics.jsonl", ('%s{"step":2,"stats":{"balance":%d,"list":[1,2]}}\n'):format(lines, place))
  end
  lu.assertEquals(row(compare(self.a, self.b), "stats.balance"), "1 | 2")
  lu.assertStrContains(compare(self.a, self.b, "--metric", "stats.balance", "--picture", self.folder .. "/d.svg"), "wrote ")
end

function TestCompare:test_the_plot()
  local picture = self.folder .. "/c.svg"
  lu.assertStrContains(compare(self.a, self.b, "--picture", picture), "wrote " .. picture)
  local svg = zt.fs.read(picture)
  for _, name in ipairs{">a</text>", ">b</text>", ">loss</text>"} do lu.assertStrContains(svg, name) end
  local output, status = compare(self.a, self.b, "--picture", picture, "--metric", "los")
  lu.assertEquals(status, 1)
  lu.assertStrContains(output, "has no metric 'los': did you mean 'loss'?")
end

-- A part of a line, as a killed run leaves it, is left out.
function TestCompare:test_damaged_records()
  local metrics = zt.fs.read(self.b .. "/metrics.jsonl")
  zt.write_file(self.b .. "/metrics.jsonl", metrics .. '{"step":3,"lo')
  lu.assertEquals(row(compare(self.a, self.b), "loss"), "1.5 | 3")
  zt.write_file(self.b .. "/options.json", "{")
  local output, status = compare(self.a, self.b)
  lu.assertEquals(status, 1)
  lu.assertStrContains(output, "options.json' is damaged: it holds no JSON")
end

function TestCompare:test_what_is_refused()
  local output, status = compare(self.a)
  lu.assertEquals(status, 2)
  lu.assertStrContains(output, "compare: RUNS needs at least 2 words, got 1: the folders of two runs or more")
  output, status = compare(self.a, self.folder .. "/c")
  lu.assertEquals(status, 1)
  lu.assertStrContains(output, "/c' is no run: it has no options.json")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCompare", TestCompare}})
