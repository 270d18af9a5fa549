-- Tests zt.check_options: its errors have the form of those of the C++ schemas.
local lu = require "luaunit"
local zt = require "zt"

local SCHEMA = {
  {"name", "string", "names the run", required = true},
  {"every", "integer", "steps between", default = 100, at_least = 1},
  {"rate", "number", "the rate", default = 0.5, between = {0, 1}},
  {"scale", "number", "the scale", above = 0},
  {"mode", "string", "how", default = "a", one_of = {"a", "b"}},
  {"flag", "boolean", "whether", default = false},
  {"items", "list", "some", default = {}},
  {"run", "function", "what to call"},
  {"more", "table", "the rest", peers = {"extras"}},
  {"thing", "any", "anything"},
}

local function check(value) return zt.check_options("zt.thing", SCHEMA, value) end

local function assert_refused(expected, value) lu.assertErrorMsgContains(expected, check, value) end

local TestCheckOptions = {}

function TestCheckOptions:test_defaults_are_filled_in()
  local given = {name = "x"}
  local options = check(given)
  lu.assertEquals(options, {name = "x", every = 100, rate = 0.5, mode = "a", flag = false, items = {}})
  lu.assertEquals(given, {name = "x"}) -- the caller's table is unchanged
end

function TestCheckOptions:test_values_are_kept()
  local f = function() end
  local options = check{name = "x", every = 1, rate = 1, flag = true, items = {1, 2}, run = f, more = {a = 1}, thing = 3}
  lu.assertEquals({options.every, options.rate, options.flag, options.run, options.thing}, {1, 1, true, f, 3})
  lu.assertEquals(options.items, {1, 2})
  lu.assertEquals(options.more, {a = 1})
end

function TestCheckOptions:test_unknown_keys()
  assert_refused("zt.thing: unknown option 'evry': did you mean 'every'?", {name = "x", evry = 1})
  assert_refused("zt.thing: unknown option '1'", {"x"})
  assert_refused("zt.thing: unknown option 'extras': here it is 'more'", {name = "x", extras = {}})
end

function TestCheckOptions:test_missing_keys()
  assert_refused("zt.thing: option 'name' is missing (names the run)", {})
  assert_refused("zt.thing: option 'name' is missing (names the run)", nil)
end

function TestCheckOptions:test_wrong_types()
  assert_refused("zt.thing must be a table of options, got a string", "x")
  assert_refused("zt.thing.name must be a string, got an integer", {name = 3})
  assert_refused("zt.thing.every must be an integer, got 1.5", {name = "x", every = 1.5})
  assert_refused("zt.thing.every must be an integer, got a string", {name = "x", every = "3"})
  assert_refused("zt.thing.rate must be a number, got a boolean", {name = "x", rate = true})
  assert_refused("zt.thing.flag must be true or false, got an integer", {name = "x", flag = 1})
  assert_refused("zt.thing.items must be a list, got a table", {name = "x", items = {a = 1}})
  assert_refused("zt.thing.run must be a function, got a list", {name = "x", run = {1}})
end

function TestCheckOptions:test_out_of_range()
  assert_refused("zt.thing.every must be at least 1", {name = "x", every = 0})
  assert_refused("zt.thing.rate must lie between 0 and 1", {name = "x", rate = 1.1})
  assert_refused("zt.thing.scale must be above 0", {name = "x", scale = 0})
  assert_refused("zt.thing.mode must be one of 'a', 'b'", {name = "x", mode = "c"})
end

function TestCheckOptions:test_errors_point_to_this_file()
  local _, message = pcall(check, {})
  lu.assertStrContains(message, "check_options_test.lua:")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCheckOptions", TestCheckOptions}})
