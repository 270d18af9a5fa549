-- Tests calls of operators: overloads, named arguments, scalars, in-place, errors, random numbers.
local lu = require "luaunit"
local zt = require "zt"

local function assert_refused(pattern, f, ...)
  local ok, message = pcall(f, ...)
  lu.assertFalse(ok, "should have failed: " .. pattern)
  lu.assertStrContains(message, pattern)
  return message
end

local TestCalls = {}

function TestCalls:test_there_are_all_operators()
  local names = zt.ops()
  lu.assertTrue(#names >= 1500, #names)
  for i = 2, #names do lu.assertTrue(names[i - 1] < names[i]) end
end

function TestCalls:test_method_and_function()
  local a, b = zt.tensor {1, 2}, zt.tensor {3, 4}
  lu.assertEquals(a:add(b):tolist(), {4, 6})
  lu.assertEquals(zt.add(a, b):tolist(), {4, 6})
  lu.assertEquals(zt.cat({a, b}, 0):tolist(), {1, 2, 3, 4})
  lu.assertEquals(zt["repeat"](a, {2}):tolist(), {1, 2, 1, 2}) -- `repeat` is a keyword of Lua
end

function TestCalls:test_named_arguments()
  local x = zt.tensor {{1, 2, 3}, {4, 5, 6}}
  lu.assertEquals(x:sum({dim = {0}, keepdim = true}):tolist(), {{5, 7, 9}})
  lu.assertEquals(x:sum({0}, {keepdim = true}):tolist(), {{5, 7, 9}})
  lu.assertEquals(x:sum(0):tolist(), {5, 7, 9}) -- an int[1] argument accepts one integer
  lu.assertEquals(x:sum({dtype = "float64"}):dtype(), "float64")
  lu.assertEquals(x:add(x, {alpha = 2}):tolist(), {{3, 6, 9}, {12, 15, 18}})
  lu.assertEquals(x:sum({}):item(), 21) -- an empty table is an empty list
end

function TestCalls:test_loose_sizes()
  lu.assertEquals(zt.zeros(2, 3):size(), {2, 3})
  lu.assertEquals(zt.zeros({2, 3}):size(), {2, 3})
  lu.assertEquals(zt.zeros(2, {dtype = "int64"}):dtype(), "int64")
  lu.assertEquals(zt.arange(6):view(2, -1):permute(1, 0):size(), {3, 2})
  lu.assertEquals(zt.zeros({}):dim(), 0)
  lu.assertEquals(zt.zeros(0, 3):numel(), 0)
end

function TestCalls:test_method_object_is_self_wherever_the_schema_has_it()
  local x = zt.tensor {1, 2, 3}
  lu.assertEquals(x:where(x:gt(2), 0):tolist(), {0, 0, 3})
  lu.assertEquals(zt.where(x:gt(2), x, 0):tolist(), {0, 0, 3})
  lu.assertEquals(zt.where(x:gt(2), 1, 0):tolist(), {0, 0, 1})
end

function TestCalls:test_several_results()
  local values, indices = zt.tensor {{1, 9}, {8, 2}}:max(1)
  lu.assertEquals(values:tolist(), {9, 8})
  lu.assertEquals(indices:tolist(), {1, 0})
  lu.assertEquals(indices:dtype(), "int64")
  local parts = zt.arange(5):split(2)
  lu.assertEquals(#parts, 3)
  lu.assertEquals(parts[3]:tolist(), {4})
end

function TestCalls:test_in_place_returns_the_same_object()
  local x = zt.zeros(2)
  lu.assertTrue(rawequal(x:add_(1), x))
  lu.assertTrue(rawequal(x:add_(1):mul_(3), x))
  lu.assertEquals(x:tolist(), {6, 6})
  lu.assertTrue(rawequal(x:contiguous(), x))
  local out = zt.zeros(2)
  lu.assertTrue(rawequal(zt.add(x, x, {out = out}), out))
  lu.assertEquals(out:tolist(), {12, 12})
end

function TestCalls:test_scalars()
  local i, f = zt.tensor({1, 2}, {dtype = "int64"}), zt.tensor {1, 2}
  lu.assertEquals(i:add(2):dtype(), "int64")
  lu.assertEquals(i:add(2.5):dtype(), "float32")
  lu.assertEquals(i:add(zt.float(2)):dtype(), "float32")
  lu.assertEquals(f:add(2):dtype(), "float32")
end

function TestCalls:test_a_number_for_a_tensor_promotes_like_a_number()
  local half = zt.tensor({1, 2}, {dtype = "float16"})
  lu.assertEquals((2.5 - half):dtype(), "float16")
  lu.assertEquals((half / 3):dtype(), "float16")
  lu.assertEquals((2 ^ half):tolist(), {2, 4})
end

function TestCalls:test_negative_zero_stays_a_floating_number()
  lu.assertEquals(1 / zt.tensor({1}):mul(-0.0):item(), -math.huge)
end

function TestCalls:test_64_bit_integers()
  local big = zt.tensor {9007199254740993LL}
  lu.assertEquals(big:dtype(), "int64")
  lu.assertTrue(big:item() == 9007199254740993LL)
  lu.assertTrue(big:add(1LL):item() == 9007199254740994LL)
  lu.assertTrue(zt.full({1}, 9007199254740993LL, {dtype = "int64"}):item() == 9007199254740993LL)
  lu.assertEquals(type(zt.tensor({5LL}):item()), "number")
  lu.assertEquals(zt.tensor({-9223372036854775807LL}):sub(1):item(), -9223372036854775807LL - 1)
end

function TestCalls:test_default_dtype()
  lu.assertEquals(zt.full({2}, 3):dtype(), "float32")
  lu.assertEquals(zt.arange(3):dtype(), "float32")
  lu.assertEquals(zt.full({2}, true):dtype(), "bool")
  lu.assertEquals(zt.arange(3, {dtype = "int64"}):dtype(), "int64")
  lu.assertEquals(zt.randint(0, 5, {2}):dtype(), "int64")
  zt.set_default_dtype "float64"
  lu.assertEquals(zt.default_dtype(), "float64")
  lu.assertEquals(zt.zeros(1):dtype(), "float64")
  lu.assertEquals(zt.tensor({1}):dtype(), "float64")
  lu.assertEquals(zt.randn({1}, {seed = 1}):dtype(), "float64")
  zt.set_default_dtype "float32"
  assert_refused("the default dtype is a floating one", zt.set_default_dtype, "int64")
end

function TestCalls:test_dtypes_and_devices_by_name()
  local x = zt.zeros(2)
  lu.assertEquals(x:to("bfloat16"):dtype(), "bfloat16")
  lu.assertEquals(x:to("cpu"):device(), "cpu")
  lu.assertEquals(x:to("meta"):device(), "meta")
  lu.assertEquals(x:to({dtype = "float64", device = "meta"}):dtype(), "float64")
  lu.assertEquals(zt.zeros(2, {device = "meta"}):device(), "meta")
  lu.assertEquals(zt.zeros({1, 2, 3, 4}):to({memory_format = "channels_last"}):stride(1), 1)
  assert_refused("does not take these arguments", x.to, x, "flaot32")
end

function TestCalls:test_strings_lists_and_optionals()
  local x = zt.tensor {{1, 2}, {3, 4}}
  lu.assertEquals(zt.einsum("ij->i", {x}):tolist(), {3, 7})
  lu.assertEquals(x:clamp(nil, 2):tolist(), {{1, 2}, {2, 2}})
  lu.assertEquals(zt.layer_norm(x, {2}, nil, nil, 0):tolist(), {{-1, 1}, {-1, 1}})
  lu.assertEquals(zt.index(x, {false, zt.tensor({1}, {dtype = "int64"})}):tolist(), {{2}, {4}})
end

local TestErrors = {}

function TestErrors:test_failed_match_lists_candidates_and_the_reason()
  local x = zt.zeros(2, 3)
  local message = assert_refused("matmul does not take these arguments", function() local r = x:matmul("w") return r end)
  lu.assertStrContains(message, "ops_test.lua:")
  lu.assertStrContains(message, "argument 1 'other': a tensor expected, got 'w'")
  lu.assertStrContains(message, "matmul(Tensor self, Tensor other) -> Tensor")
  lu.assertStrContains(message, "matmul.out(Tensor self, Tensor other, *, Tensor(a!) out)")
  assert_refused("argument 2 'other': a tensor expected, got nil", zt.matmul, x, nil)
  assert_refused("'other' is missing: a tensor expected", zt.matmul, x)
  assert_refused("3 positional arguments given, it takes 2", zt.matmul, x, x, x)
  assert_refused("argument 1 'other': a tensor expected, got a table", x.matmul, x, {1})
end

function TestErrors:test_unknown_names()
  local x = zt.zeros(2)
  assert_refused("sum has no argument named 'dims': did you mean 'dim'?", x.sum, x, {dims = 0})
  assert_refused("a tensor has no method 'matmull': did you mean 'matmul'?", function() return x:matmull(x) end)
  assert_refused("did you mean 'softmax'?", function() return zt.sofmax(x) end)
  assert_refused("'other' is given twice, by place and by name", x.matmul, x, x, {other = x})
  assert_refused("holds both named arguments and a list", x.sum, x, {dim = {0}, 5})
  assert_refused("also has the key true, which is no name", x.sum, x, {dim = {0}, [true] = 5})
end

function TestErrors:test_errors_of_aten_are_short_and_have_a_position()
  local message = assert_refused("mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)", function()
    local x = zt.zeros(2, 3)
    return x:matmul(x)
  end)
  lu.assertStrContains(message, "ops_test.lua:")
  lu.assertNotStrContains(message, "frame #")
end

function TestErrors:test_wrong_words_do_not_match()
  assert_refused("a dtype such as 'float32' expected, got 'flaot32'", zt.zeros, 2, {dtype = "flaot32"})
  assert_refused("a device such as 'cpu' or 'cuda:0' expected, got 'gpu'", zt.zeros, 2, {device = "gpu"})
end

function TestErrors:test_a_device_that_this_machine_lacks()
  local wanted = {device = "cuda:99"}
  for name, call in pairs{
    operator = function() return zt.ones({2}, wanted) end, method = function() return zt.ones({2}):to("cuda:99") end,
    table = function() return zt.tensor({1, 2}, wanted) end,
    seeded = function() return zt.rand({2}, {seed = 1, device = "cuda:99"}) end,
  } do
    local is_done, message = pcall(call)
    lu.assertFalse(is_done, name)
    lu.assertStrMatches(message, "[^\n]*ops_test%.lua:%d+: there is no device 'cuda:99' here: LibTorch finds %d+ GPUs [^\n]*")
  end
end

-- Arguments are matched with the schema before the call: wrong arguments must never crash the process.
function TestErrors:test_every_operator_survives_nonsense()
  for _, name in ipairs(zt.ops()) do
    for _, arguments in ipairs {{}, {{"text"}}, {print}, {{}, "text"}, {{"a", "b"}, true}} do
      pcall(zt[name], unpack(arguments))
    end
  end
end

local TestRandom = {}

function TestRandom:test_seed_option_is_a_pure_function()
  local a, b = zt.randn({3, 5}, {seed = 3}), zt.randn({3, 5}, {seed = 3})
  lu.assertTrue(a == b)
  lu.assertFalse(a == zt.randn({3, 5}, {seed = 4}))
  lu.assertTrue(zt.randn({15}, {seed = 3}):view(3, 5) == a)
  lu.assertTrue(zt.rand({7}, {seed = 1}):lt(1):all():item())
  lu.assertEquals(zt.rand({7}, {seed = 1, dtype = "bfloat16"}):dtype(), "bfloat16")
  assert_refused("unknown option", zt.rand, {2}, {seed = 1, dtpye = "float32"})
  assert_refused("is not floating", zt.rand, {2}, {seed = 1, dtype = "int64"})
end

function TestRandom:test_manual_seed_repeats_every_operator()
  local function draw()
    zt.manual_seed(5)
    local x = zt.zeros(4)
    local made = {zt.rand(3), zt.randn({3}), zt.randint(0, 100, {4}), zt.randperm(6), zt.rand_like(x)}
    return {x:normal_(), zt.rand(3):bernoulli(), unpack(made)}
  end
  local first, second = draw(), draw()
  for i = 1, #first do lu.assertTrue(first[i] == second[i], i) end
  lu.assertFalse(zt.rand(3) == first[1])
end

function TestRandom:test_generators()
  local function draw(seed) return zt.zeros(3):normal_(0, 1, {generator = zt.generator(seed)}) end
  lu.assertTrue(draw(1) == draw(1))
  lu.assertFalse(draw(1) == draw(2))
end

function TestRandom:test_what_takes_no_generator_is_refused_when_it_would_draw()
  local x = zt.ones(4)
  assert_refused("draws random numbers and takes no generator", x.dropout, x, 0.5, true)
  lu.assertTrue(x:dropout(0.5, false) == x)
  lu.assertTrue(x:dropout(0, true) == x)
  lu.assertEquals(zt.scaled_dot_product_attention(zt.ones(1, 2, 4), zt.ones(1, 2, 4), zt.ones(1, 2, 4)):size(), {1, 2, 4})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances {{"TestCalls", TestCalls}, {"TestErrors", TestErrors}, {"TestRandom", TestRandom}})
