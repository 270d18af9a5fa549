-- Tests that a lack of memory is an error that a script can catch, whatever libraries the process has loaded.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local data = require "zt.data"

local TestMemory = {}

-- No address space has room for 4 PB.
local function assert_refused()
  local is_done, message = pcall(zt.ones, {1e15})
  lu.assertFalse(is_done)
  lu.assertStrMatches(tostring(message),
                      ".*there is no memory for 3638 TiB; [%d.]+ %aiB of [%d.]+ %aiB are free on this machine.*")
end

-- With a sanitizer, whose memory libraries must share, sentencepiece's library cannot have variables of its own (kOwnScope).
function TestMemory:setUp() lu.skipIf(os.getenv "ZT_TEST_SANITIZER", "LibTorch ends the process") end

function TestMemory:test_with_all_modules()
  assert_refused()
  for _, name in ipairs(require("zt.host").modules()) do require(name) end
  assert_refused()
end

-- sentencepiece's library and LibTorch define a variable of the same name.
function TestMemory:test_after_learning_a_tokenizer()
  local path = os.tmpname()
  zt.write_file(path, ("a few words in a line that comes again\n"):rep(200))
  local tokenizer = data.tokenizer.train{input = path, vocab = 300}
  lu.assertEquals(tokenizer:decode(tokenizer:encode "a few words"), "a few words")
  assert_refused()
  os.remove(path)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestMemory", TestMemory}})
