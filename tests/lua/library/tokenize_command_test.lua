-- Tests `ztoolkit tokenize`: it names the files that it writes, and its own options in messages.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local command = require "support.command" "tokenize"
local temporary = require "support.temporary"

local TestTokenize = {}

function TestTokenize:setUp()
  self.folder = temporary()
  zt.mkdir_p(self.folder)
  local words = {}
  for number = 1, 3000 do words[number] = ("word%d of %d"):format(number * 7919 % 1000, number) end
  zt.write_file(self.folder .. "/text.txt", table.concat(words, " "))
end

function TestTokenize:run(...)
  return command("--input", self.folder .. "/text.txt", "--output", self.folder .. "/out.npy", ...)
end

function TestTokenize:test_it_names_its_files()
  local text, status = self:run("--vocab", "300")
  lu.assertEquals(status, 0, text)
  for _, ending in ipairs {"npy", "json", "model"} do
    lu.assertStrContains(text, ("wrote %s/out.%s"):format(self.folder, ending))
    lu.assertTrue(zt.exists(self.folder .. "/out." .. ending))
  end
  os.remove(self.folder .. "/out.model")
  lu.assertNotStrContains(self:run("--mode", "bytes"), ".model")
  lu.assertFalse(zt.exists(self.folder .. "/out.model"))
end

function TestTokenize:test_messages_name_its_options()
  local function refused(message, ...)
    local text, status = self:run(...)
    lu.assertEquals(status, 1, text)
    lu.assertStrContains(text, "tokenize: " .. message)
  end
  refused("option '--vocab' must lie between 300 and 1048576", "--vocab", "0")
  refused("option '--kind' must be one of 'bpe', 'unigram'", "--kind", "words")
  refused("option '--sample-bytes' must be at least 65536", "--sample-bytes", "1")
  local text = self:run("--vocab", "40000")
  lu.assertStrMatches(text, ".*Give %-%-vocab %d+ or less.*")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestTokenize", TestTokenize}})
