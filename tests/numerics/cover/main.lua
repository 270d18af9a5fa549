-- Runs a cover, of cut layers (dimensions.lua) or of data that move (move_dimensions.lua): cases in which each pair of values of
-- two dimensions occurs. The random tests' oracle says which fail.
--
--   ztoolkit run tests/numerics/cover/main.lua                         all cases of the cover of cut layers
--   ztoolkit run tests/numerics/cover/main.lua --of moves              those of data that move
--   ztoolkit run tests/numerics/cover/main.lua --part 1 --parts 4      every fourth case, from the second
--   ztoolkit run tests/numerics/cover/main.lua --exhaustive            also products of dimensions, and 500 random combinations
--   ztoolkit run tests/numerics/cover/main.lua --fault norms_of_heads_see_same_data
--   ztoolkit run tests/numerics/cover/main.lua --list                  prints the combinations
local here = arg[0]:match "^(.*)/" or "."
package.path = ("%s/?.lua;%s/../random/?.lua;"):format(here, here) .. package.path
package.cpath = package.cpath:match("^[^;]*"):gsub("lib/%?%.so$", "tests/modules/?.so") .. ";" .. package.cpath
local zt = require "zt"
local array = require "array"
local faults, oracle, render, suite = require "faults", require "oracle", require "render", require "suite"

local options = zt.cli{
  name = "cover", about = "Runs cases in which each pair of values of two dimensions occurs.",
  options = {
    {"of", "cuts", "what the cases are of: cut layers, or data that move", one_of = {"cuts", "moves"}},
    {"part", 0, "the part of the cases to run, from 0", at_least = 0},
    {"parts", 1, "into how many parts the cases are divided", at_least = 1},
    {"only", nil, "run the case of this number only", type = "integer"},
    {"exhaustive", false, "also run products of dimensions, and 500 random combinations"},
    {"shrink", 200, "most runs to make a failing case smaller; 0: print it as it is", at_least = 0},
    {"fault", nil, "plant this fault of the random tests into the cases that can show it, and fail unless each finds it",
     type = "string"},
    {"here", nil, "run the cases for this number of ranks on the ranks of this run, over this backend", type = "string"},
    {"list", false, "print the combinations, and run nothing"},
    {"show", false, "print the scripts of the cases, and run nothing"},
  },
}
zt.set_log_level "error"

local SEED, RANDOM = 3, 500

local is_of_cuts = options.of == "cuts"
local cases = require(is_of_cuts and "cases" or "move_cases")
local dimensions = require(is_of_cuts and "dimensions" or "move_dimensions")

local function combinations()
  local found = array.pairwise(dimensions.list, dimensions.is_allowed, SEED)
  local function add(more)
    for _, combination in ipairs(more) do found[#found + 1] = combination end
  end
  add(array.random(dimensions.list, dimensions.is_allowed, SEED + 100, dimensions.random))
  if not options.exhaustive then return found end
  for i, names in ipairs(dimensions.products) do add(array.product(dimensions.list, names, dimensions.is_allowed, SEED + i)) end
  add(array.random(dimensions.list, dimensions.is_allowed, SEED, RANDOM))
  return found
end

-- Returns the cases of this part.
local function wanted(all)
  local found = {}
  for number = 0, #all - 1 do
    local is_mine = number % options.parts == options.part
    if options.only then is_mine = number == options.only end
    if is_mine then found[#found + 1] = {number = number, combination = all[number + 1]} end
  end
  return found
end

local all = combinations()
local mine = wanted(all)
local function case_at(i) return cases.of(mine[i].combination, mine[i].number) end

-- Returns whether the fault is found by each case that can show it.
local function all_find(fault)
  local tried, found = 0, 0
  for i, each in ipairs(mine) do
    local case = case_at(i)
    if faults.list[fault].fits(case) then
      local failure = oracle.check(suite.with_fault(case, fault))
      local is_found = failure ~= nil and suite.finds(failure)
      tried, found = tried + 1, found + (is_found and 1 or 0)
      print(("case %d: %s"):format(each.number, failure and failure.check .. ": " .. failure.text or "does not find it"))
    end
  end
  print(("%d of %d cases that can show the fault '%s' find it"):format(found, tried, fault))
  return tried > 0 and found == tried
end

local form = "%d cases, of which %d run here; %d pairs of values occur"
print(form:format(#all, #mine, array.pairs(dimensions.list, dimensions.is_allowed)))
if options.list then
  for _, each in ipairs(mine) do print(("case %d: %s"):format(each.number, cases.text(each.combination))) end
elseif options.show then
  for i, each in ipairs(mine) do print(render.script(case_at(i), {"Case " .. each.number, cases.text(each.combination)})) end
elseif options.fault then
  if not all_find(options.fault) then os.exit(1) end
elseif options.here then
  if not suite.run_here(#mine, case_at, options.here) then os.exit(1) end
elseif not suite.run(#mine, case_at, {most = options.shrink}) then os.exit(1) end
