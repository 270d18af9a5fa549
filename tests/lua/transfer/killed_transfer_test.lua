-- Tests that ranks learn of one that is killed during a transfer, and end.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local command = require "support.command" "run"

local TestKilled = {}

function TestKilled:test_the_others_end()
  local text, status = command("-n", "2", "tests/lua/transfer/dying_rank.lua")
  lu.assertStrContains(text, "the process of rank 1")
  lu.assertStrContains(text, "it was killed")
  lu.assertNotEquals(status, 0)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestKilled", TestKilled}})
