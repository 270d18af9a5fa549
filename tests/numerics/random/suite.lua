--- Runs cases one after the other, prints what fails, and sums distances from fp64 over all of them.
local zt = require "zt"
local draw_layout, faults, oracle = require "draw.layout", require "faults", require "oracle"
local render, shrink = require "render", require "shrink"

local suite = {}

-- The largest distance of first gradients from fp64, as a multiple of that of one rank. Ranks that share matrices or tokens also
-- round the parts of sums that they exchange.
local FURTHEST, FURTHEST_IN_PARTS = 2, {bf16 = 2.5}

local function script_of(case, failure)
  local ranks = draw_layout.ranks(case.layout)
  return render.script(case, {
    ("Seed %d, %s: %s"):format(case.seed, failure.check, failure.text:gsub("\n.*", ""):sub(1, 300)),
    ("Run it: ztoolkit run --threads %d FILE; its reference: ztoolkit run FILE"):format(ranks),
  })
end

--- Returns whether a failure shows that a planted fault is found, by the oracle, or by the trainer where it compares ranks.
function suite.finds(failure)
  return failure.check ~= "error" or failure.text:find "but their %a+ differ" ~= nil
end

--- Returns the case with a planted fault. Its layer, if it is one, stands before the head.
function suite.with_fault(case, fault)
  case.fault = fault
  if not faults.list[fault].layer then return case end
  local code = ('require("faults").layer(%q)'):format(fault)
  local item = {name = "fault", kind = "fault", positions = 1, code = code}
  local is_shared = case.cut and case.cut.sequence -- then the last layer outputs some tokens only
  table.insert(case.items, #case.items + (is_shared and 0 or 1), item)
  return case
end

--- Prints a failure, and a smaller case that fails in the same way. `most`: runs to find it; 0: the case as it is.
function suite.report(case, failure, most)
  print(("seed %d fails, %s: %s"):format(case.seed, failure.check, failure.text))
  local small, why, runs = case, failure, 0
  if most > 0 then small, why, runs = shrink.run(case, failure, oracle.check, most) end
  print(("after %d smaller cases:\n%s"):format(runs, script_of(small, why)))
end

-- In fp16 a gradient may overflow: then it has no distance.
local function is_overflow(mine, one) return mine ~= mine or one ~= one or mine == math.huge or one == math.huge end

-- Adds squared distances of the first gradients from the exact ones: of the case, and of one rank.
local function add_distances(distances, case, result)
  if not oracle.has_distance(case) then return end
  local kind = case.precision .. (case.cut and ", cut" or "")
  local most = case.cut and FURTHEST_IN_PARTS[case.precision] or FURTHEST
  local sums = distances[kind] or {cases = 0, mine = 0, one = 0, most = most}
  distances[kind] = sums
  local mine, one = oracle.distances(result)
  if case.precision == "fp16" and is_overflow(mine, one) then return end
  sums.cases, sums.mine, sums.one = sums.cases + 1, sums.mine + mine, sums.one + one
end

-- The rounding errors of a single case are random, so many are summed. Prints how far they are, and returns how many kinds of
-- cases are too far.
local function check_distances(distances)
  local failed, kinds = 0, {}
  for kind in pairs(distances) do kinds[#kinds + 1] = kind end
  table.sort(kinds)
  for _, kind in ipairs(kinds) do
    local sums = distances[kind]
    local is_near = sums.mine <= sums.most ^ 2 * sums.one
    local is_failed = sums.cases >= 10 and not is_near
    failed = failed + (is_failed and 1 or 0)
    local limit = is_failed and (", more than %g times"):format(sums.most) or ""
    print(("%s: the first gradients of %d cases are %.2f times as far from fp64 as those of one rank%s")
      :format(kind, sums.cases, math.sqrt(sums.mine / sums.one), limit))
  end
  return failed
end

--- Runs the cases that `case_at(i)` returns for i = 1 .. count. Options: `most`, the number of runs to make a failing case
--- smaller; `check`, a function of the oracle. Returns whether all passed.
function suite.run(count, case_at, options)
  local failed, checked, begin, distances, check = 0, 0, zt.now(), {}, options.check or oracle.check
  for i = 1, count do
    local case = case_at(i)
    local failure, result = check(case)
    if failure then
      failed = failed + 1
      suite.report(case, failure, options.most or 0)
    else
      add_distances(distances, case, result)
      checked = checked + result.differences
    end
    -- If the process ends within a case, the last such line says where to look.
    if i % 25 == 0 then
      print(("%d cases are done"):format(i))
      collectgarbage()
    end
    io.stdout:flush()
  end
  failed = failed + check_distances(distances)
  local form = "%d cases, %d failed, %d parameters compared with finite differences, %.1f s"
  print(form:format(count, failed, checked, zt.now() - begin))
  return failed == 0
end

--- Likewise for the cases that are for as many ranks as this run has, on these ranks and this backend, which may be on GPUs. They
--- are compared with one rank in fp64 on the CPU. Sums over nccl have no fixed order, so no bits are compared.
function suite.run_here(count, case_at, backend)
  -- Registers the device, before anything starts autograd's threads.
  local mesh = require("zt.comm").mesh{dp = -1, backend = backend}
  local has_host_memory = mesh.dp:allocate({1}, "float32"):device() ~= "cpu"
  local cases = {}
  for i = 1, count do
    local case = case_at(i)
    for _, layout in ipairs{case.layout, case.second} do
      layout.backend = backend
      if layout.shard then layout.shard.node_shared = nil end -- only some backends share memory
      local updates = layout.move and (layout.move.optimizer or "device") ~= "device"
      if updates and not has_host_memory then layout.move.step_on = "device" end
      for n, kind in ipairs{"optimizer", "gradients", "parameters", "activations"} do
        local moves = layout.move and layout.move[kind] == "nvme"
        if moves and has_host_memory and (case.seed + n) % 2 == 0 then layout.move[kind] = "host" end
      end
    end
    if draw_layout.ranks(case.layout) == zt.world.size then cases[#cases + 1] = case end
  end
  if #cases == 0 then
    print(("none of %d cases is for %d ranks: run more of them (--count)"):format(count, zt.world.size))
    return false
  end
  return suite.run(#cases, function(i) return cases[i] end, {check = oracle.check_here})
end

return suite
