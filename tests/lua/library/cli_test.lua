-- Tests zt.cli: accepted command lines, and the messages for mistakes.
local lu = require "luaunit"
local zt = require "zt"

local OPTIONS = {
  {"layers", 4, "number of blocks", at_least = 1},
  {"lr", 3e-4, "peak learning rate", above = 0, peers = {"learning_rate"}},
  {"clip", 1, "largest norm", type = "number"},
  {"style", "gpt2", "architecture", one_of = {"gpt2", "llama"}},
  {"micro_batches", 2, "parts of a batch"},
  {"overwrite", false, "replace an earlier run"},
  {"trace", true, "write a trace"},
  {"sizes", {8, 16}, "sizes to try"},
  {"data", nil, "the tokens", type = "string"},
  {"stop", nil, "a text", type = "string", repeats = true},
  {"seeds", nil, "a seed", type = "integer", repeats = true, at_least = 1},
}

-- Runs zt.cli on these words. Returns the options; or nil, the exit status, and the text on stdout and on stderr.
local function parse(...)
  local printed = {out = "", err = ""}
  local function sink(name)
    return {write = function(_, text) printed[name] = printed[name] .. text end, flush = function() end}
  end
  local real_exit, real_out, real_err = os.exit, io.stdout, io.stderr
  local status
  os.exit = function(code) status = code; error("exit", 0) end -- luacheck: ignore 122
  io.stdout, io.stderr = sink "out", sink "err" -- luacheck: ignore 122
  local is_done, options = pcall(zt.cli, {name = "exp", about = "Tries things.", options = OPTIONS, arguments = {...}})
  os.exit, io.stdout, io.stderr = real_exit, real_out, real_err -- luacheck: ignore 122
  if is_done then return options end
  lu.assertEquals(options, "exit")
  return nil, status, printed.out, printed.err
end

local function assert_mistake(expected, ...)
  local options, status, out, err = parse(...)
  lu.assertNil(options)
  lu.assertEquals(status, 2)
  lu.assertEquals(out, "")
  lu.assertStrContains(err, expected)
end

local TestCli = {}

function TestCli:test_defaults()
  local options = parse()
  lu.assertEquals(options.layers, 4)
  lu.assertEquals(options.lr, 3e-4)
  lu.assertEquals(options.style, "gpt2")
  lu.assertFalse(options.overwrite)
  lu.assertTrue(options.trace)
  lu.assertEquals(options.sizes, {8, 16})
  lu.assertNil(options.data)
end

function TestCli:test_values_after_a_space_or_an_equals_sign()
  local options = parse("--layers", "8", "--lr=1e-3", "--clip", "0.5", "--style=llama", "--data", "a=b.npy")
  lu.assertEquals({options.layers, options.lr, options.clip, options.style}, {8, 1e-3, 0.5, "llama"})
  lu.assertEquals(options.data, "a=b.npy")
  lu.assertEquals(parse("--data=a=b").data, "a=b")
  lu.assertEquals(parse("--lr", "5").lr, 5)
end

function TestCli:test_dashes_and_underscores_are_alike()
  lu.assertEquals(parse("--micro-batches", "3").micro_batches, 3)
  lu.assertEquals(parse("--micro_batches=5").micro_batches, 5)
end

function TestCli:test_booleans()
  lu.assertTrue(parse("--overwrite").overwrite)
  lu.assertFalse(parse("--no-trace").trace)
  lu.assertFalse(parse("--trace=false").trace)
  lu.assertTrue(parse("--no-overwrite", "--overwrite").overwrite)
end

function TestCli:test_a_word_after_a_boolean()
  assert_mistake("option '--trace' is switched on by --trace and off by --no-trace, without the word 'false'", "--trace",
                 "false")
  lu.assertFalse(parse("--no-trace").trace)
end

function TestCli:test_lists()
  lu.assertEquals(parse("--sizes", "1,2,3").sizes, {1, 2, 3})
  lu.assertEquals(parse("--sizes=a,2").sizes, {"a", 2})
  lu.assertEquals(parse("--sizes=").sizes, {})
end

function TestCli:test_options_that_repeat()
  local options = parse("--stop", "a", "--seeds=3", "--stop=b,c", "--seeds", "4")
  lu.assertEquals({options.stop, options.seeds}, {{"a", "b,c"}, {3, 4}})
  lu.assertNil(parse().stop)
  assert_mistake("option '--seeds' must be at least 1, got '0'", "--seeds", "1", "--seeds", "0")
end

function TestCli:test_an_option_that_is_given_twice()
  assert_mistake("option '--layers' is given twice, and has one value: leave one out", "--layers", "3", "--layers=3")
  assert_mistake("option '--sizes' is given twice", "--sizes", "3", "--sizes", "4")
  assert_mistake("option '--trace' is given twice", "--trace=true", "--trace=false")
end

function TestCli:test_a_negative_number_is_a_value()
  assert_mistake("option '--layers' must be at least 1, got '-3'", "--layers", "-3")
end

function TestCli:test_unknown_options_name_the_nearest()
  assert_mistake("exp: unknown option '--layrs': did you mean '--layers'?", "--layrs", "3")
  assert_mistake("unknown option '--no-layers'", "--no-layers")
  assert_mistake("exp: unknown option '--learning-rate': here it is '--lr'", "--learning_rate", "3")
  assert_mistake("unexpected argument 'layers'", "layers", "3")
end

function TestCli:test_wrong_types()
  assert_mistake("option '--layers' must be an integer, got 'x'", "--layers", "x")
  assert_mistake("option '--layers' must be an integer, got '1.5' (its default is 4; for other numbers the script must say "
    .. 'type = "number")', "--layers", "1.5")
  assert_mistake("option '--layers' must be an integer, got 'nan'", "--layers", "nan")
  assert_mistake("option '--lr' must be a number, got ''", "--lr=")
  assert_mistake("option '--trace' must be true or false, got 'maybe'", "--trace=maybe")
  assert_mistake("option '--style' must be one of 'gpt2', 'llama', got 'bert'", "--style", "bert")
  assert_mistake("option '--lr' must be above 0, got '0'", "--lr", "0")
end

function TestCli:test_a_missing_value()
  assert_mistake("option '--layers' needs a value (number of blocks)", "--layers")
end

function TestCli:test_help_goes_to_the_output_and_exits_0()
  local options, status, out, err = parse("--layers", "3", "--help")
  lu.assertNil(options)
  lu.assertEquals(status, 0)
  lu.assertEquals(err, "")
  lu.assertStrContains(out, "Tries things.")
  lu.assertStrMatches(out, ".*%-%-layers integer +number of blocks %(4%)\n.*")
  lu.assertStrMatches(out, ".*%-%-style gpt2|llama +architecture %(gpt2%)\n.*")
  lu.assertStrMatches(out, ".*%-%-micro%-batches integer +parts of a batch %(2%)\n.*")
  lu.assertStrMatches(out, ".*%-%-trace, %-%-no%-trace +write a trace %(on%)\n.*")
  lu.assertStrMatches(out, ".*%-%-stop string +a text; may be given several times\n.*")
  lu.assertStrMatches(out, ".*%-%-overwrite +replace an earlier run\n.*")
end

function TestCli:test_mistakes_of_the_script()
  lu.assertErrorMsgContains("zt.cli: unknown option 'option': did you mean 'options'?", zt.cli,
                            {name = "exp", option = {}})
  lu.assertErrorMsgContains("option 'data' has no default, so it needs a type", zt.cli,
                            {name = "exp", options = {{"data", nil, "the tokens"}}, arguments = {}})
  local function refused(message, option)
    lu.assertErrorMsgContains(message, zt.cli, {name = "exp", options = {option}, arguments = {}})
  end
  refused("unknown type 'int'", {"n", 1, "a number", type = "int"})
  refused("zt.cli: options[1] must be a table, got an integer", 5)
  refused("zt.cli.options[1]: the name must be a string, got nil", {nil, 3, "x"})
  refused("zt.cli.options[1] ('n'): the help must be a string, got nil", {"n", 3})
  refused("zt.cli: option 'n': unknown option 'at_leest': did you mean 'at_least'?", {"n", 3, "x", at_leest = 1})
  refused("zt.cli: option 'n'.at_least must be a number, got a string", {"n", 3, "x", at_least = "1"})
  refused("zt.cli: option 'n': between needs two numbers", {"n", 3, "x", between = {1}})
  refused("zt.cli: option 'n': with repeats it has no default", {"n", 3, "x", repeats = true})
  refused("and its type is integer, number or string", {"n", nil, "x", repeats = true, type = "list"})
  refused("zt.cli: option 'n': above is for numbers, and its type is string", {"n", "a", "x", above = 1})
  refused("zt.cli: option 'n' has the type integer, but its default is a string", {"n", "a", "x", type = "integer"})
  lu.assertErrorMsgContains("zt.cli: positional[1] must be a table, got a string", zt.cli,
                            {name = "exp", options = {}, positional = {"folder"}, arguments = {"a"}})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCli", TestCli}})
