-- Tests tensors: constructors, tables, identity, Lua's operators, autograd.
local lu = require "luaunit"
local zt = require "zt"

local function assert_refused(pattern, f, ...)
  local ok, message = pcall(f, ...)
  lu.assertFalse(ok, "should have failed: " .. pattern)
  lu.assertStrContains(message, pattern)
end

local TestTensor = {}

function TestTensor:test_from_tables_and_back()
  local nested = {{1, 2.5, -3}, {4, 5, 6}}
  local x = zt.tensor(nested)
  lu.assertEquals({x:dtype(), x:size(), x:tolist()}, {"float32", {2, 3}, nested})
  lu.assertEquals(zt.tensor(7):tolist(), 7)
  lu.assertEquals(zt.tensor({true, false}):tolist(), {true, false})
  lu.assertEquals(zt.tensor({true, false}):dtype(), "bool")
  lu.assertEquals(zt.tensor({1, 2}, {dtype = "int32"}):tolist(), {1, 2})
  lu.assertEquals(zt.tensor({0, 2}, {dtype = "bool"}):tolist(), {false, true})
  lu.assertEquals(zt.tensor({}):size(), {0})
  lu.assertEquals(zt.tensor({{}, {}}):size(), {2, 0})
  lu.assertEquals(zt.tensor({{}, {}}):tolist(), {{}, {}})
  lu.assertEquals(zt.tensor({{1, 2}, {3, 4}}):t():tolist(), {{1, 3}, {2, 4}})
  lu.assertEquals(zt.tensor({0.1}, {dtype = "float64"}):item(), 0.1)
end

function TestTensor:test_refused_tables()
  assert_refused("entry [2]: it has 1 entries, its neighbours have 2", zt.tensor, {{1, 2}, {3}})
  assert_refused("entry [2]: a table of 2 entries expected, got a number", zt.tensor, {{1, 2}, 3})
  assert_refused("entry [1][2]: a string cannot be an element of a tensor of dtype float32", zt.tensor, {{1, "x"}})
  assert_refused("entry [1]: 1.5 cannot be an element of a tensor of dtype int64", zt.tensor, {1.5}, {dtype = "int64"})
  assert_refused("unknown option 'dtpye'", zt.tensor, {1}, {dtpye = "int64"})
  assert_refused("unknown dtype 'int46'", zt.tensor, {1}, {dtype = "int46"})
  local loop = {}
  loop[1] = loop
  assert_refused("does it contain itself?", zt.tensor, loop)
end

function TestTensor:test_shape_methods()
  local x = zt.zeros(2, 3, 4)
  lu.assertEquals({x:dim(), x:numel(), x:size(), x:size(1), x:size(-1)}, {3, 24, {2, 3, 4}, 3, 4})
  lu.assertEquals({x:stride(), x:stride(0), x:nbytes(), x:element_size()}, {{12, 4, 1}, 12, 96, 4})
  lu.assertTrue(x:is_contiguous())
  lu.assertFalse(x:transpose(0, 2):is_contiguous())
  lu.assertEquals(#x, 2)
  assert_refused("dim 3 is out of range: the tensor has 3 dims, counted from 0", x.size, x, 3)
  assert_refused("# of a 0-dim tensor", function() return #zt.tensor(1) end)
end

function TestTensor:test_identity()
  local x = zt.tensor {1, 2}
  lu.assertTrue(x == x)
  lu.assertTrue(x == zt.tensor {1, 2})
  lu.assertFalse(x == zt.tensor {1, 3})
  lu.assertFalse(x == zt.tensor {1, 2, 3})
  lu.assertFalse(x == zt.tensor({1, 2}, {dtype = "float64"}))
  lu.assertFalse(x == 1)
  local nan = zt.tensor {0 / 0}
  lu.assertTrue(nan == nan) -- `==` compares identity
  lu.assertFalse(nan == nan:clone())
end

function TestTensor:test_operators()
  local x, y = zt.tensor {1, 2}, zt.tensor {4, 8}
  lu.assertEquals((x + y):tolist(), {5, 10})
  lu.assertEquals((x + 1):tolist(), {2, 3})
  lu.assertEquals((10 - x):tolist(), {9, 8})
  lu.assertEquals((x * y):tolist(), {4, 16})
  lu.assertEquals((8 / y):tolist(), {2, 1})
  lu.assertEquals((x ^ 2):tolist(), {1, 4})
  lu.assertEquals((2 ^ x):tolist(), {2, 4})
  lu.assertEquals((y % 3):tolist(), {1, 2})
  lu.assertEquals((-x):tolist(), {-1, -2})
  lu.assertEquals(x:lt(2):tolist(), {true, false})
  lu.assertEquals(x:eq(y):tolist(), {false, false})
  assert_refused("use x:lt(y)", function() return x < y end)
  assert_refused("use x:lt(y)", function() return x <= y end)
  assert_refused("tensors have no fields", function() x.name = 1 end)
end

local TestAutograd = {}

function TestAutograd:test_backward()
  local w = zt.tensor({1, 2, 3}, {requires_grad = true})
  local loss = (w * w):sum()
  loss:backward()
  lu.assertEquals(w:grad():tolist(), {2, 4, 6})
  loss = (w * 2):sum()
  loss:backward()
  lu.assertEquals(w:grad():tolist(), {4, 6, 8}) -- gradients accumulate
  w:set_grad(nil)
  lu.assertNil(w:grad())
  assert_refused("the gradient is", w.set_grad, w, zt.zeros(2))
end

function TestAutograd:test_backward_options()
  local w = zt.tensor({1, 2}, {requires_grad = true})
  local y = w * w
  y:backward(zt.tensor {1, 10}, {retain_graph = true})
  y:backward(zt.tensor {1, 10})
  lu.assertEquals(w:grad():tolist(), {4, 80})
  assert_refused("backward through the graph a second time", y.backward, y, zt.tensor {1, 1})
  assert_refused("unknown option 'retain_grpah'", y.backward, y, zt.tensor {1, 1}, {retain_grpah = true})
end

function TestAutograd:test_grad()
  local a, b = zt.tensor(3, {requires_grad = true}), zt.tensor(5, {requires_grad = true})
  local gradients = zt.grad(a * a * b, {a, b})
  lu.assertEquals({gradients[1]:item(), gradients[2]:item()}, {30, 9})
  lu.assertNil(a:grad())
  local first = zt.grad(a ^ 3, a, nil, {create_graph = true})[1]
  lu.assertEquals(zt.grad(first, a)[1]:item(), 18)
  lu.assertNil(zt.grad(a * 2, {a, b}, nil, {allow_unused = true})[2])
end

function TestAutograd:test_no_grad()
  local w = zt.tensor({1}, {requires_grad = true})
  local inside, also = zt.no_grad(function(x) return w * x, 7 end, 2)
  lu.assertFalse(inside:requires_grad())
  lu.assertEquals(also, 7)
  lu.assertTrue((w * 2):requires_grad())
  pcall(zt.no_grad, function() error "inside" end)
  lu.assertTrue((w * 2):requires_grad()) -- also after an error
end

function TestAutograd:test_flags()
  local w = zt.zeros(2)
  lu.assertFalse(w:requires_grad())
  lu.assertTrue(rawequal(w:requires_grad_(), w))
  lu.assertTrue(w:requires_grad())
  lu.assertFalse(w:detach():requires_grad())
  lu.assertFalse(w:requires_grad_(false):requires_grad())
  lu.assertTrue(zt.randn({2}, {requires_grad = true}):requires_grad())
  lu.assertTrue(zt.zeros(2, {requires_grad = true}):is_leaf())
end

function TestAutograd:test_assignment_is_differentiated()
  local w = zt.tensor({1, 2, 3}, {requires_grad = true})
  local x = w * 1
  x[1] = 0
  x:sum():backward()
  lu.assertEquals(w:grad():tolist(), {1, 0, 1})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances {{"TestTensor", TestTensor}, {"TestAutograd", TestAutograd}})
