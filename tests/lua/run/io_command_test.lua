-- Tests ztoolkit io: the table of a disk's rates, and its mistakes.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local offload = require "zt.offload"
local io_command = require "support.command" "io"
local temporary = require "support.temporary"

local TestIo = {}

function TestIo:setUp()
  self.folder = temporary()
  zt.fs.make_folder(self.folder)
end

function TestIo:test_bench()
  local output, status = io_command("bench", self.folder, self.folder, "--blocks", "0.0625,1", "--depths", "2", "--size", "4",
                                    "--seconds", "0.02", "--no-fio")
  lu.assertEquals(status, 0, output)
  lu.assertStrContains(output, "block MiB  depth  read GB/s  write  mixed\n")
  lu.assertStrMatches(output, ".*\n0%.0625 +2 +%d+%.%d%d +%d+%.%d%d +%d+%.%d%d\n1 .*")
  lu.assertStrContains(output, ('use folder = {"%s", "%s"}, block = '):format(self.folder, self.folder))
  lu.assertEquals(zt.fs.list(self.folder), {})
end

function TestIo:test_mistakes()
  local function refused(status_wanted, text, ...)
    local output, status = io_command(...)
    lu.assertEquals(status, status_wanted, output)
    lu.assertStrContains(output, text)
  end
  refused(2, "usage: ztoolkit io bench FOLDER...")
  refused(0, "usage: ztoolkit io bench FOLDER...", "--help")
  refused(2, "io: unknown command 'bunch': did you mean 'bench'?", "bunch")
  refused(2, "folders", "bench")
  refused(1, "cannot create '/nonexistent/ztoolkit-swap", "bench", "/nonexistent")
  refused(1, "offload.measure_disk.block must be a multiple of 4096 bytes, got 1000", "bench", self.folder, "--blocks",
          tostring(1000 / 2 ^ 20))
  refused(1, "offload.measure_disk.depth must lie between 1 and 4096, got 0", "bench", self.folder, "--depths", "0")
end

function TestIo:test_measure_disk()
  local speed = offload.measure_disk{folder = {self.folder}, size = 2 ^ 20, block = 4096, depth = 4, seconds = 0.01}
  for _, name in ipairs{"read", "write", "mixed"} do lu.assertTrue(speed[name] > 0) end
  lu.assertIsBoolean(speed.direct)
  lu.assertIsBoolean(speed.pinned)
  lu.assertErrorMsgContains("must name a folder", offload.measure_disk, {folder = {}})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestIo", TestIo}})
