-- Tests zt.deepspeed.hjson: JSON with comments, as DeepSpeed reads its configurations.
local lu = require "luaunit"
local hjson = require "zt.deepspeed.hjson"

local TestHjson = {}

function TestHjson:test_what_is_read()
  local text = '\239\187\191// first\n{a: [1, -2.5e3, 0.125,], # list\n'
    .. ' "b c": "q\\u00e4\\ud83d\\ude00\\n\\/" /* text\n */, d: true\n'
    .. "e: null\n 'f'" -- a single quote cannot begin a key
  lu.assertErrorMsgContains("f:6:2: a key or '}' is expected here, found '''", hjson.decode, text, "f")
  local value = hjson.decode(text:gsub("'f'$", "\r\n}"), "f")
  lu.assertEquals(value, {a = {1, -2500, 0.125}, ["b c"] = "q\195\164\240\159\152\128\n/", d = true, e = hjson.null})
  lu.assertEquals(tostring(value.e), "null")
  lu.assertEquals(hjson.decode("{a: Infinity}"), {a = math.huge})
end

function TestHjson:test_mistakes_name_line_and_column()
  for text, expected in pairs {
    ["{a: 1,\n b: 2,\n a: 3}"] = "f:3:2: the key 'a' is given twice: it stands on line 1 already",
    ['{"x": {y: 1, "y": 2}}'] = "f:1:14: the key 'y' is given twice",
    ["{a 1}"] = "f:1:4: ':' is expected after the key 'a', found '1'",
    ["{a: 1 b: 2}"] = "f:1:7: ',' or '}' is expected here, found 'b'",
    ["{a: 1,, b: 2}"] = "f:1:7: a key or '}' is expected here, found ','",
    ["{a: fast}"] = "f:1:5: 'fast' is no value: text needs quotes",
    ["{a: 'x'}"] = "f:1:5: a value is expected here, found '''",
    ["{a: \"x\ny\"}"] = "f:1:5: this text has no closing quote on its line",
    ['{a: "\\x"}'] = "f:1:6: unknown escape '\\x'",
    ['{a: "\\ud800"}'] = "f:1:6: half of a pair",
    ['{a: "\\u12"}'] = "f:1:6: \\u needs four hexadecimal digits",
    ["\n {a: [1,"] = "f:2:6: this '[' is not closed",
    ["{} /* x"] = "f:1:4: this comment has no end",
    ["{} x"] = "f:1:4: nothing may follow the value, found 'x'",
    ["{a: 1e999}"] = "f:1:5: the number 1e999 is too large",
    [("["):rep(300)] = "tables are nested more than 200 deep",
    [""] = "f:1:1: a value is expected here, found the end of the text",
  } do
    lu.assertErrorMsgContains(expected, hjson.decode, text, "f")
  end
  for _, number in ipairs {"01", "1.", ".5", "1.e5", "--1", "+1", "0x10", "1e", "1e+", "-", "1.2.3", "NaN", "-Infinity"} do
    lu.assertErrorMsgContains("f:1:1: ", hjson.decode, number, "f")
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestHjson", TestHjson}})
