-- Tests data that move between a device with memory of its own, host memory and files: cases of the cover of data that move, for
-- as many ranks as this run has, over nccl. They must have the bits of the same cases whose data stay.
--
--   ZT_NCCL=$PWD/build/release/tests/libnccl_on_test_device.so mpirun -n 2 ztoolkit run tests/numerics/cover/device.lua
--
-- With the library above, ranks compute on the test device (tests/support/test_device), and cases whose layers are those of zt.nn
-- must have the bits of host memory, too; without it, on GPUs.
local here = arg[0]:match "^(.*)/" or "."
package.path = ("%s/?.lua;%s/../random/?.lua;"):format(here, here) .. package.path
package.cpath = package.cpath:match("^[^;]*"):gsub("lib/%?%.so$", "tests/modules/?.so") .. ";" .. package.cpath
local zt = require "zt"
local array, cases, dimensions = require "array", require "move_cases", require "move_dimensions"
local layouts, oracle, random, render = require "layouts", require "oracle", require "case", require "render"

local options = zt.cli{
  name = "device", about = "Runs cases of data that move on the ranks of this run, over nccl.",
  options = {
    {"only", nil, "run the case of this number only", type = "integer"},
    {"more", 0, "also run so many random combinations", at_least = 0},
  },
}
zt.set_log_level "error"
if not os.getenv "OMP_NUM_THREADS" then zt.set_num_threads(1) end

local SEED = 3
local WHERE = {"device", "host", "nvme"}

-- Registers the device, before anything starts autograd's threads.
require("zt.comm").mesh{dp = -1, backend = "nccl"}

-- The dimensions of the cover, with host memory.
local list = {}
for i, dimension in ipairs(dimensions.list) do
  local moves = dimension[2][2] == "nvme"
  list[i] = {dimension[1], moves and WHERE or dimension[2]}
end
list[#list + 1] = {"step_on", {"default", "device"}}

local function ranks_of(combination)
  local sizes = dimensions.sizes(combination)
  return sizes.dp * sizes.pp * sizes.ep
end

local function is_allowed(of) return dimensions.is_allowed(of) and ranks_of(of) <= zt.world.size end

-- Stands for the library of random cases: it returns the described case instead of running it.
local held = setmetatable({case = function(case)
  case.parts = layouts.size(case.layout)
  return case
end}, {__index = random})

-- Returns the outcome of the case with a changed layout.
local function outcome_of(case, change)
  for _ = 1, 2 do collectgarbage() end -- a rank can have 1,024 communicators
  local code = render.script(case):gsub('dofile "tests/numerics/random/case.lua"', "...", 1)
  local own = assert(loadstring(code, "=case"))(held)
  if own.layout.shard then own.layout.shard.node_shared = nil end
  change(own.layout)
  return random.run(own, {precision = case.precision})
end

local function on_device(layout) layout.backend, layout.sum_order = "nccl", "fixed" end

local function check(case, combination)
  if not case.layout.axes then case.layout.axes = {{"dp", 1}} end
  local moved = outcome_of(case, on_device)
  local stays = outcome_of(case, function(layout)
    on_device(layout)
    layout.move = nil
  end)
  oracle.expect_equal("data that move beside data that stay", moved, stays)
  if not os.getenv "ZT_NCCL" or combination.mlp == "lua" then return end -- LibTorch's sums are not in the order of the host's
  local on_host = outcome_of(case, function(layout)
    layout.backend, layout.move = zt.world.size > 1 and "mpi" or "local", nil
  end)
  oracle.expect_equal("the device beside the host", stays, on_host)
end

local all = array.pairwise(list, is_allowed, SEED)
for _, combination in ipairs(array.random(list, is_allowed, SEED, options.more)) do all[#all + 1] = combination end
local count, failed, begin = 0, 0, zt.now()
for number, combination in ipairs(all) do
  if ranks_of(combination) == zt.world.size and (not options.only or options.only == number) then
    local is_equal, message = pcall(check, cases.of(combination, number), combination)
    count = count + 1
    if not is_equal then
      failed = failed + 1
      print(("case %d fails on rank %d: %s\n  %s"):format(number, zt.world.rank, message, cases.text(combination)))
    end
  end
end
if zt.world.rank == 0 then print(("%d cases, %d failed, %.1f s"):format(count, failed, zt.now() - begin)) end
if failed > 0 then os.exit(1) end
