-- Runs random cases of models, layouts and passes, and says which fail. CONTRIBUTING.md tells how to use and to extend them.
--
--   ztoolkit run tests/numerics/random/main.lua                        the cases of the seeds 0 to 149
--   ztoolkit run tests/numerics/random/main.lua --first 4711 --count 1
--   ztoolkit run tests/numerics/random/main.lua --faults               shows that planted faults are found
--   ztoolkit run -n 4 tests/numerics/random/main.lua --here nccl       runs those for 4 ranks on this run's ranks, on GPUs
--
-- With --here, cases are compared with one rank in fp64 on the CPU. Sums over nccl have no fixed order, so no bits are compared.
-- Ranks that share one GPU need a stand-in for NCCL, and so do ranks without one (tests/comm/nccl_stand_in):
--   CUDA_VISIBLE_DEVICES=0 ZT_NCCL=$PWD/build/release/tests/libnccl_on_one_gpu.so ztoolkit run -n 4 ...
--   ZT_NCCL=$PWD/build/release/tests/libnccl_on_host.so ztoolkit run -n 4 ...
local here = arg[0]:match "^(.*)/" or "."
package.path = here .. "/?.lua;" .. package.path
package.cpath = package.cpath:match("^[^;]*"):gsub("lib/%?%.so$", "tests/modules/?.so") .. ";" .. package.cpath
local zt = require "zt"
local draw_case, faults, oracle = require "draw.case", require "faults", require "oracle"
local counts, render, suite = require "counts", require "render", require "suite"

local options = zt.cli{
  name = "random cases", about = "Runs random cases of models, layouts and passes, and says which fail.",
  options = {
    {"first", 0, "the first seed", at_least = 0},
    {"count", 150, "number of seeds", at_least = 1},
    {"shrink", 200, "most runs to make a failing case smaller; 0: print it as it is", at_least = 0},
    {"fault", nil, "plant this fault, and stop at the first seed that finds it", type = "string"},
    {"faults", false, "do so with every fault, within the seeds"},
    {"here", nil, "run the cases for this number of ranks on the ranks of this run, over this backend", type = "string"},
    {"counts", false, "print how many of the cases have each feature, and run nothing"},
    {"show", false, "print the scripts of the cases, and run nothing"},
  },
}
zt.set_log_level "error"
local last = options.first + options.count - 1

-- Returns the case of a seed, with the layer of a fault before its head.
local function case_of(seed, fault)
  local case = draw_case.draw(seed)
  return fault and suite.with_fault(case, fault) or case
end

local function run_cases()
  local function case_at(i) return case_of(options.first + i - 1) end
  if options.here then return suite.run_here(options.count, case_at, options.here) end
  return suite.run(options.count, case_at, {most = options.shrink})
end

-- Returns whether a case finds the fault, with that case and its failure.
local function find(fault)
  local tried = 0
  for seed = options.first, last do
    if faults.list[fault].fits(draw_case.draw(seed)) then
      tried = tried + 1
      local case = case_of(seed, fault)
      local failure = oracle.check(case)
      if failure then
        local form = "%-28s seed %d, case %d that can show it; %s: %s"
        print(form:format(fault, seed, tried, failure.check, failure.text))
        return suite.finds(failure), case, failure
      end
    end
  end
  print(("%-28s not found by %d cases"):format(fault, tried))
  return false
end

local function find_and_shrink(fault)
  local is_found, case, failure = find(fault)
  if is_found then suite.report(case, failure, options.shrink) end
  return is_found
end

local function find_all()
  local all = true
  for _, name in ipairs(faults.names()) do
    all = find(name) and all
    io.stdout:flush()
  end
  return all
end

local function show_scripts()
  for seed = options.first, last do print(render.script(case_of(seed), {"Seed " .. seed})) end
  return true
end

local function count_features()
  local cases = {}
  for seed = options.first, last do cases[#cases + 1] = draw_case.draw(seed) end
  print(counts.text(cases))
  return true
end

if options.fault and not faults.list[options.fault] then
  error(("no fault '%s': the faults are %s"):format(options.fault, table.concat(faults.names(), ", ")), 0)
end
local is_good
if options.counts then is_good = count_features()
elseif options.show then is_good = show_scripts()
elseif options.faults then is_good = find_all()
elseif options.fault then is_good = find_and_shrink(options.fault)
else is_good = run_cases() end
if not is_good then os.exit(1) end
