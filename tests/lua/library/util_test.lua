-- Tests the small parts of the library: classes, texts, files, the log, the progress bar, JSON, strict globals.
local lu = require "luaunit"
local zt = require "zt"
local progress = require "zt.run.progress"

local folder = os.tmpname()
os.remove(folder)

local TestClass = {}

function TestClass.test_inheritance()
  local Point = zt.class("Point")
  function Point:init(x, y) self.x, self.y = x, y end
  function Point:sum() return self.x + self.y end
  Point.__eq = function(a, b) return a.x == b.x and a.y == b.y end
  local Named = zt.class("Named", Point)
  function Named:init(name, ...)
    Point.init(self, ...)
    self.name = name
  end
  local p = Named("a", 1, 2)
  lu.assertEquals(p:sum(), 3)
  lu.assertTrue(p == Named("b", 1, 2))
  lu.assertTrue(zt.class.is(p, Named) and zt.class.is(p, Point))
  lu.assertFalse(zt.class.is(Point(1, 2), Named))
  lu.assertFalse(zt.class.is(3, Point))
  lu.assertEquals(tostring(p), "Named")
  lu.assertEquals(tostring(Named), "class Named")
end

function TestClass.test_a_class_without_init_inherits_it()
  local Base = zt.class("Base")
  function Base:init(x) self.x = x end
  local Derived = zt.class("Derived", Base)
  lu.assertEquals(Derived(7).x, 7)
end

local TestText = {}

function TestText:test_numbers()
  lu.assertEquals(zt.text.count(0), "0")
  lu.assertEquals(zt.text.count(999), "999")
  lu.assertEquals(zt.text.count(41234), "41.2 k")
  lu.assertEquals(zt.text.count(3e6), "3.0 M")
  lu.assertEquals(zt.text.bytes(512), "512 B")
  lu.assertEquals(zt.text.bytes(3355443), "3.2 MiB")
  lu.assertEquals(zt.text.duration(0), "0:00")
  lu.assertEquals(zt.text.duration(75), "1:15")
  lu.assertEquals(zt.text.duration(7384), "2:03:04")
end

function TestText:test_columns()
  lu.assertEquals(zt.text.columns{{"kind", "bytes"}, {"a", "12"}}, "kind  bytes\na        12")
  lu.assertEquals(zt.text.columns{}, "")
end

local TestFs = {}

function TestFs:test_of_several_callers_one_makes_a_folder()
  zt.mkdir_p(folder)
  lu.assertTrue(zt.fs.make_folder(folder .. "/a"))
  lu.assertFalse(zt.fs.make_folder(folder .. "/a"))
  lu.assertErrorMsgContains("No such file or directory", zt.fs.make_folder, folder .. "/x/y")
end

function TestFs:test_files()
  local path = folder .. "/file"
  zt.mkdir_p(folder)
  local file = zt.fs.append(path)
  file:write("one\0")
  file:write("")
  file:write("two")
  lu.assertEquals(zt.fs.read(path), "one\0two") -- without close: writes are unbuffered
  file:close()
  file:close()
  zt.fs.make_folder(folder .. "/empty")
  lu.assertEquals(zt.fs.list(folder .. "/empty"), {})
  local names = zt.fs.list(folder)
  lu.assertItemsEquals({names[#names - 1], names[#names]}, {"empty", "file"})
  lu.assertErrorMsgContains("cannot read the folder '" .. folder .. "/none': No such file or directory", zt.fs.list,
                            folder .. "/none")
  zt.fs.remove(folder .. "/empty")
  lu.assertFalse(zt.exists(folder .. "/empty"))
  zt.fs.remove(path)
  zt.fs.remove(path)
  lu.assertFalse(zt.exists(path))
  lu.assertErrorMsgContains("cannot read " .. path, zt.fs.read, path)
  lu.assertErrorMsgContains("cannot write", zt.fs.append, folder .. "/none/file")
end

function TestFs:test_a_full_disk()
  local file = zt.fs.append("/dev/full")
  lu.assertErrorMsgContains("cannot write '/dev/full': No space left on device", file.write, file, "line\n")
  file:close()
end

local TestLog = {}

function TestLog:test_levels()
  local before = zt.log.set_level "off"
  lu.assertEquals(zt.log.set_level(before), "off")
  lu.assertErrorMsgContains("unknown level 'wran': did you mean 'warn'?", zt.log.set_level, "wran")
end

local TestProgress = {}

-- Returns a progress display with a clock that the test sets and an output that the test reads.
local function display(options)
  local shown = {text = "", time = 0}
  options.name, options.every = "exp", 10
  options.now = function() return shown.time end
  options.out = {
    write = function(_, ...) shown.text = shown.text .. table.concat{...} end,
    flush = function() end,
  }
  return progress.new(options), shown
end

local function lines_of(text)
  local lines = {}
  for line in text:gmatch("[^\n]+") do lines[#lines + 1] = line end
  return lines
end

function TestProgress:test_lines()
  local bar, shown = display{total = 100, is_terminal = false}
  for step = 1, 100 do
    bar:update(step, {loss = 2, tokens_per_second = 1500})
    shown.time = step
  end
  bar:close()
  local lines = lines_of(shown.text)
  lu.assertEquals(lines[1], "exp: step 1/100  loss 2.0000  1.5 k tokens/s")
  lu.assertEquals(lines[2], "exp: step 11/100  loss 2.0000  1.5 k tokens/s  1:29 left")
  lu.assertEquals(lines[#lines], "exp: step 100/100  loss 2.0000  1.5 k tokens/s")
  lu.assertEquals(#lines, 11)
end

-- A validation follows the last step: its line waits for the end, and is not repeated.
function TestProgress:test_the_last_line_has_the_newest_values()
  for _, is_late in ipairs{false, true} do
    local bar, shown = display{total = 2, is_terminal = false}
    bar:update(1, {loss = 3})
    shown.time = is_late and 100 or 1
    bar:update(2, {loss = 2})
    bar:update(2, {validation_loss = 2.5})
    bar:close()
    bar:close()
    lu.assertEquals(lines_of(shown.text), {"exp: step 1/2  loss 3.0000", "exp: step 2/2  loss 2.0000  validation 2.5000"})
  end
end

-- The last step of a run that stops early is shown, too. One that is shown already is not repeated.
function TestProgress:test_the_last_step_of_a_run_that_stops_early()
  local bar, shown = display{total = 9, is_terminal = false}
  bar:update(1, {loss = 3})
  bar:close()
  lu.assertEquals(lines_of(shown.text), {"exp: step 1/9  loss 3.0000"})
  shown.time = 1
  bar:update(2, {loss = 2})
  bar:close()
  lu.assertEquals(lines_of(shown.text)[2], "exp: step 2/9  loss 2.0000") -- without the time left: there is no next step
end

function TestProgress:test_the_bar_ends_with_the_newest_values()
  local bar, shown = display{total = 1, is_terminal = true}
  bar:update(1, {loss = 3})
  bar:update(1, {validation_loss = 2.5})
  bar:close()
  lu.assertStrMatches(shown.text, ".*step 1/1  loss 3%.0000  validation 2%.5000 *\n")
end

function TestProgress:test_keys_of_the_script()
  local bar, shown = display{is_terminal = false, show = {"loss", "a%d", "stats.balance"}}
  bar:update(1, {loss = 3, ["a%d"] = 12345.6, stats = {balance = 0.25}})
  lu.assertEquals(shown.text, "exp: step 1  loss 3.0000  a%d 1.235e+04  stats.balance 0.25\n")
end

function TestProgress:test_a_bar_is_redrawn_ten_times_a_second_at_most()
  local bar, shown = display{total = 1000, is_terminal = true}
  for step = 1, 1000 do
    shown.time = step * 0.01
    bar:update(step, {loss = 3})
  end
  bar:close()
  local _, draws = shown.text:gsub("\r", "")
  lu.assertTrue(draws > 50 and draws <= 101, tostring(draws)) -- in ten seconds
  lu.assertStrMatches(shown.text, ".*\r%[========================%] step 1000/1000  loss 3%.0000 *\n")
end

function TestProgress:test_a_shorter_line_covers_a_longer_one()
  local bar, shown = display{is_terminal = true}
  bar:update(1, {loss = 10000})
  shown.time = 1
  bar:update(2, {loss = 1})
  lu.assertEquals(shown.text, "\rstep 1  loss 10000.0000\rstep 2  loss 1.0000    ")
end

local TestJson = {}

function TestJson:test_round_trip()
  local value = {name = "gpt", list = {1, 2.5, "x"}, flag = true, inner = {deep = {1}}}
  lu.assertEquals(zt.json.decode(zt.json.encode(value)), value)
  lu.assertEquals(zt.json.encode{b = 1, a = 2}, '{"a":2,"b":1}')
  lu.assertEquals(zt.json.decode('"a\\u00e9\\n"'), "a\195\169\n")
end

function TestJson:test_mistakes()
  lu.assertError(zt.json.decode, "{")
  lu.assertErrorMsgContains("not JSON, at byte 3 of 4: a byte 0", zt.json.decode, "{}\0x")
  local function nested(levels) return ("["):rep(levels) .. ("]"):rep(levels) end
  lu.assertEquals(#zt.json.decode(nested(400)), 1)
  lu.assertErrorMsgContains("nested in more than 500 levels", zt.json.decode, nested(100000))
  lu.assertError(zt.json.encode, {zt.tensor{1, 2}})
end

local TestGlobals = {}

function TestGlobals:test_an_undefined_global_is_an_error()
  local is_done, message = pcall(function() return undefined_name end) -- luacheck: ignore 113
  lu.assertFalse(is_done)
  lu.assertStrContains(message, "undefined_name")
end

function TestGlobals:test_the_library_defines_no_globals()
  for _, name in ipairs {"zt", "core", "check", "progress"} do lu.assertNil(rawget(_G, name)) end
end

function TestGlobals:test_an_unknown_name_of_zt_is_an_error_with_the_nearest()
  lu.assertErrorMsgContains("'matmull': did you mean 'matmul'?", function() return zt.matmull end)
end

function TestGlobals:test_names_of_the_library_and_of_modules_come_first()
  lu.assertErrorMsgContains("there is a module of this name: write local nn = require \"zt.nn\"", function() return zt.nn end)
  lu.assertErrorMsgContains("'optm': did you mean the module of require \"zt.optim\"?", function() return zt.optm end)
  lu.assertErrorMsgContains("'rum': did you mean 'run'?", function() return zt.rum end)
  lu.assertErrorMsgContains("'summ': did you mean 'sum'?", function() return zt.ones{2}:summ() end)
  lu.assertErrorMsgContains("'sise': did you mean 'size'?", function() return zt.ones{2}:sise() end)
end

function TestGlobals:test_a_dot_in_place_of_a_colon()
  local x, mesh = zt.ones{2}, require("zt.comm").mesh{dp = -1}
  local function assert_refused(name, object, call)
    local text = "'%s' is a method: write object:%s(...) with ':', not object.%s(...). Its object must be %s"
    lu.assertErrorMsgContains(text:format(name, name, name, object), call)
  end
  assert_refused("barrier", "an Axis, got no value", function() mesh.dp.barrier() end)
  assert_refused("size", "a tensor, got no value", function() x.size() end)
  assert_refused("sum", "a tensor, got no value", function() x.sum() end)
  assert_refused("add", "a tensor, got a number", function() x.add(1, 2) end)
  lu.assertEquals(x.sum(x):item(), 2)
  local run = zt.run{name = "dot", folder = folder}
  lu.assertErrorMsgContains("'log' is a method: write run:log(...) with ':', not run.log(...)", function() run.log(0, {}) end)
  lu.assertErrorMsgContains("'finish' is a method: write run:finish(...)", function() run.finish() end)
  run:finish()
end

local failures = lu.LuaUnit.new():runSuiteByInstances{
  {"TestClass", TestClass}, {"TestText", TestText}, {"TestFs", TestFs}, {"TestLog", TestLog},
  {"TestProgress", TestProgress}, {"TestJson", TestJson}, {"TestGlobals", TestGlobals},
}
os.execute("rm -rf " .. folder)
os.exit(failures)
