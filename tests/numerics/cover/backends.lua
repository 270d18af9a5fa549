-- Tests that cut layers have the same bits on the backends `mpi` and `shm` of processes and `local` of threads: some cases of the
-- cover that need four ranks.
--
--   mpirun -n 4 ztoolkit run tests/numerics/cover/backends.lua
local here = arg[0]:match "^(.*)/" or "."
local random_cases = here .. "/../random"
package.path = ("%s/?.lua;%s/?.lua;"):format(here, random_cases) .. package.path
package.cpath = package.cpath:match("^[^;]*"):gsub("lib/%?%.so$", "tests/modules/?.so") .. ";" .. package.cpath
local zt = require "zt"
local array, cases, dimensions = require "array", require "cases", require "dimensions"
local layouts, oracle, random, render = require "layouts", require "oracle", require "case", require "render"
local ranks = require "zt.ranks"

local RANKS, CASES, SEED = 4, 4, 5
assert(zt.world.size == RANKS, "run it under mpirun on 4 ranks")
zt.set_log_level "error"

-- Stands for the library of random cases: it returns the described case instead of running it.
local held = setmetatable({case = function(case)
  case.parts = layouts.size(case.layout)
  return case
end}, {__index = random})

-- Returns the case that a script describes.
local function described(script)
  local code = script:gsub('dofile "tests/numerics/random/case.lua"', "...", 1)
  return assert(loadstring(code, "=case"))(held)
end

-- Returns the combinations that need all ranks and cut something.
local function wanted()
  local found = {}
  for _, combination in ipairs(array.random(dimensions.list, dimensions.is_allowed, SEED, 400)) do
    local sizes = dimensions.sizes(combination)
    local all = sizes.tp * sizes.cp * sizes.dp * sizes.pp * sizes.ep
    if all == RANKS and sizes.tp * sizes.cp >= 2 and #found < CASES then found[#found + 1] = combination end
  end
  assert(#found == CASES, "too few of the drawn combinations need all ranks")
  return found
end

for number, combination in ipairs(wanted()) do
  local case = cases.of(combination, number)
  case.layout.backend = "local"
  local script, outcomes = render.script(case), {}
  for i, backend in ipairs{"mpi", "shm"} do
    local own = described(script)
    own.layout.backend = backend
    outcomes[i] = random.run(own, {precision = case.precision})
  end
  oracle.expect_equal("shm beside mpi", outcomes[2], outcomes[1])
  if zt.world.rank == 0 then
    local variants = {{precision = case.precision}}
    local of_threads = assert(ranks.run(RANKS, random_cases .. "/worker.lua", {script = script, variants = variants}))
    oracle.expect_equal("threads beside mpi", of_threads[1][1], outcomes[1])
    print(("case %d has the same bits: %s"):format(number, cases.text(combination)))
  end
end
