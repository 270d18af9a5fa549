-- Tests x[i], x[{...}] and assignments to them. Indices count from 0, ranges exclude their end.
local lu = require "luaunit"
local zt = require "zt"

local function matrix() return zt.arange(12):view(3, 4) end

local function assert_refused(pattern, f, ...)
  local ok, message = pcall(f, ...)
  lu.assertFalse(ok, "should have failed: " .. pattern)
  lu.assertStrContains(message, pattern)
end

local TestIndex = {}

function TestIndex:test_numbers_select()
  local x = matrix()
  lu.assertEquals(x[0]:tolist(), {0, 1, 2, 3})
  lu.assertEquals(x[-1]:tolist(), {8, 9, 10, 11})
  lu.assertEquals(x[1][2]:item(), 6)
  lu.assertEquals(x[{1, 2}]:item(), 6)
  lu.assertEquals(x[1LL]:tolist(), {4, 5, 6, 7})
  lu.assertEquals(x[{}]:size(), {3, 4})
end

function TestIndex:test_ranges()
  local x = matrix()
  lu.assertEquals(x[{{0, 2}}]:tolist(), {{0, 1, 2, 3}, {4, 5, 6, 7}})
  lu.assertEquals(x[{0, {1, 3}}]:tolist(), {1, 2})
  lu.assertEquals(x[{0, {0, 4, 2}}]:tolist(), {0, 2})
  lu.assertEquals(x[{0, {2}}]:tolist(), {2, 3})
  lu.assertEquals(x[{0, {-2}}]:tolist(), {2, 3})
  lu.assertEquals(x[{{}, 1}]:tolist(), {1, 5, 9})
  lu.assertEquals(x[{"...", 0}]:tolist(), {0, 4, 8})
  lu.assertEquals(x[{{1, 1}}]:size(), {0, 4})
  lu.assertEquals(x[{{1, 99}}]:size(), {2, 4})
end

function TestIndex:test_tensors()
  local x = matrix()
  lu.assertEquals(x[x:gt(8)]:tolist(), {9, 10, 11})
  local rows = zt.tensor({2, 0}, {dtype = "int64"})
  lu.assertEquals(x[rows]:tolist(), {{8, 9, 10, 11}, {0, 1, 2, 3}})
  lu.assertEquals(x[{{}, rows}]:tolist(), {{2, 0}, {6, 4}, {10, 8}})
  lu.assertEquals(x[{rows, rows}]:tolist(), {10, 0})
  lu.assertEquals(x[zt.zeros({0}, {dtype = "int64"})]:size(), {0, 4})
end

function TestIndex:test_views_share_memory()
  local x = matrix()
  x[0]:fill_(7)
  x[{{}, {3}}]:zero_()
  lu.assertEquals(x:tolist(), {{7, 7, 7, 0}, {4, 5, 6, 0}, {8, 9, 10, 0}})
end

function TestIndex:test_assignment()
  local x = matrix()
  x[0] = 1
  x[{1, {1, 3}}] = {20, 30}
  x[{2, 0}] = -0.5
  x[{2, {2}}] = zt.tensor {5, 6}
  lu.assertEquals(x:tolist(), {{1, 1, 1, 1}, {4, 20, 30, 7}, {-0.5, 9, 5, 6}})
  x[x:gt(4)] = 0
  lu.assertEquals(x:tolist(), {{1, 1, 1, 1}, {4, 0, 0, 0}, {-0.5, 0, 0, 0}})
  local mask = zt.zeros({2}, {dtype = "bool"})
  mask[1] = true
  lu.assertEquals(mask:tolist(), {false, true})
  local big = zt.zeros({1}, {dtype = "int64"})
  big[0] = 9007199254740993LL
  lu.assertTrue(big:item() == 9007199254740993LL)
end

function TestIndex:test_errors()
  local x = matrix()
  assert_refused("index 3 is out of bounds for dimension 0 with size 3", function() return x[3] end)
  assert_refused("too many indices", function() return x[{0, 0, 0}] end)
  assert_refused("index 1: a range holds integers {first, end, step}", function() return x[{0, {1, "a"}}] end)
  assert_refused("index 1: a range is {first, end, step}, this one has 4 numbers", function() return x[{0, {1, 2, 3, 4}}] end)
  local expected = "index 0: an integer, a range {first, end, step}, a tensor or '...' expected, got a boolean"
  assert_refused(expected, function() return x[true] end)
  assert_refused("index 0: an integer", function() return x[1.5] end)
  assert_refused("step must be greater than zero", function() return x[{{0, 3, -1}}] end)
  assert_refused("expected", function() x[0] = "text" end)
  assert_refused("must match the existing size (3)", function() x[0] = zt.zeros(3) end)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances {{"TestIndex", TestIndex}})
