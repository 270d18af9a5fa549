--- Says whether the runs of a case agree:
-- the case in fp64 with one rank in fp64, within 1e-12, and its initial weights in every bit; the case in its own precision with
-- the same data ranks at stage 0 without pipeline, recompute or split backwards, in every bit; all ranks with each other; in some
-- cases gradients with finite differences; and the state before a checkpoint with that after it.
local faults = require "faults"
local ranks, zt = require "zt.ranks", require "zt"
local draw_layout, render = require "draw.layout", require "render"

local oracle = {}

local NEAR = 1e-12
local here = debug.getinfo(1, "S").source:match "^@(.*)/[^/]*$" or "."

-- Runs variants of a case on ranks. Returns the list of what each rank gave, a list of outcomes by variant.
local function run(script, count, variants)
  local results, message, rank = ranks.run(count, here .. "/worker.lua", {script = script, variants = variants})
  if not results then error({check = "error", text = ("rank %d of %d: %s"):format(rank, count, message)}, 0) end
  return results
end

local function fail(check, form, ...) error({check = check, text = form:format(...)}, 0) end

local function distance(a, b)
  local scale = math.max(math.abs(a), math.abs(b))
  return scale == 0 and 0 or math.abs(a - b) / scale
end

local function shown(a, b) return ("%.17g, not %.17g"):format(a, b) end

-- Names the parameter with the largest difference of two vectors.
local function worst_of(places, a, b)
  local worst, text = -1, ""
  for _, place in ipairs(places) do
    local mine, other = a:narrow(0, place.first, place.numel), b:narrow(0, place.first, place.numel)
    local apart = (mine - other):abs()
    local off = apart:max():item()
    if off > worst or off ~= off then
      local at = apart:argmax():item()
      worst, text = off, ("%s[%d] is %s"):format(place.name, at, shown(mine[at]:item(), other[at]:item()))
    end
  end
  return text
end

local function check_vectors(check, what, places, a, b, bound)
  if bound == 0 then
    if not zt.isclose(a, b, 0, 0, true):all():item() then fail(check, "%s: %s", what, worst_of(places, a, b)) end
    return
  end
  local scale = b:norm():item()
  local off = (a - b):norm():item()
  local is_near = off <= bound * scale
  if not is_near then fail(check, "%s: off by %.3g of its norm; %s", what, off / scale, worst_of(places, a, b)) end
end

local function check_numbers(check, what, a, b, bound)
  if a == b or (bound == 0 and a ~= a and b ~= b) then return end
  local is_near = distance(a, b) <= bound
  if not is_near then fail(check, "%s: %s", what, shown(a, b)) end
end

local function check_counts(check, what, a, b)
  for name, value in pairs(b) do
    local mine = a[name]
    local is_equal = mine == value
    if type(value) == "table" then
      is_equal = #mine == #value
      for i = 1, #value do is_equal = is_equal and mine[i] == value[i] end
    end
    if not is_equal then fail(check, "%s: the statistic %s differs", what, name) end
  end
end

-- Compares the losses, norms and gradients of the first `steps` steps.
local function check_steps(check, run_of, wanted, bound, steps)
  for i = 1, math.min(steps, #wanted.steps) do
    local a, b, what = run_of.steps[i], wanted.steps[i], "step " .. (i - 1)
    check_numbers(check, what .. ": loss", a.loss, b.loss, bound)
    for name, value in pairs(b.terms) do check_numbers(check, what .. ": loss term " .. name, a.terms[name], value, bound) end
    check_vectors(check, what .. ": gradient", wanted.trainable, run_of.gradients[i], wanted.gradients[i], bound)
    check_numbers(check, what .. ": norm of the gradient", a.norm, b.norm, bound)
    check_counts(check, what, a.stats, b.stats)
    for name, values in pairs(b.means) do
      for k, value in ipairs(values) do check_numbers(check, what .. ": statistic " .. name, a.means[name][k], value, bound) end
    end
    if a.tokens ~= b.tokens then fail(check, "%s: %d valid tokens, not %d", what, a.tokens, b.tokens) end
  end
end

local function check_rest(check, run_of, wanted, bound)
  for i, loss in ipairs(wanted.evaluations) do check_numbers(check, "evaluation " .. i, run_of.evaluations[i], loss, bound) end
  check_vectors(check, "weights", wanted.parameters, run_of.weights, wanted.weights, bound)
end

local function check_inferences(check, run_of, wanted, bound)
  for i, each in ipairs(run_of.inferred) do
    local samples = each.logits:size(0)
    local other = wanted.inferred[i]
    local part = other.logits:narrow(0, each.first - other.first, samples)
    local places = {{name = "logits", first = 0, numel = part:numel()}}
    check_vectors(check, "inference " .. i, places, each.logits:reshape{-1}, part:reshape{-1}, bound)
  end
end

local function check_generated(check, run_of, wanted)
  for i, tokens in ipairs(wanted.generated) do
    local mine, other = table.concat(run_of.generated[i], " "), table.concat(tokens, " ")
    if mine ~= other then fail(check, "generation %d: the tokens %s, not %s", i, mine, other) end
  end
end

-- Expects that all ranks have the same numbers.
local function check_ranks_agree(results, variant, name)
  local first = results[1][variant]
  for rank = 2, #results do
    local other, check = results[rank][variant], ("ranks 0 and %d of the %s"):format(rank - 1, name)
    check_steps(check, other, first, 0, 1e9)
    check_rest(check, other, first, 0)
    check_generated(check, other, first)
  end
  if first.differs_after_load then fail("load", "%s differs after the checkpoint was loaded", first.differs_after_load) end
end

-- Returns how many steps of the case and of its run without pipeline sum in the same order, and whether all do.
local function comparable_steps(case)
  if not case.second then return 1e9, true end
  local function data_axes(layout)
    local names = {}
    for _, axis in ipairs(layout.axes or {}) do
      if axis[1] ~= "pp" and axis[2] > 1 then names[#names + 1] = axis[1] .. axis[2] end
    end
    return table.concat(names, " ") .. table.concat(layout.joined or {"dp", "ep"}, " ")
  end
  if data_axes(case.layout) == data_axes(case.second) then return 1e9, true end
  return case.second_from - 1, false
end

-- The case in its own precision against the plain layout: equal bits.
local function check_bits(case, script, mine, same_ranks)
  local plain = same_ranks
  if not plain then
    local count = draw_layout.ranks(case.layout) / draw_layout.size(case.layout, "pp")
    local steps = math.min(comparable_steps(case), case.steps_of_bits or case.steps)
    plain = run(script, count, {{precision = case.precision, plain = true, without_mistakes = true, steps = steps}})
    check_ranks_agree(plain, 1, "plain layout")
    plain = plain[1][1]
  end
  local steps, are_all = comparable_steps(case)
  check_steps("bits", mine, plain, 0, steps)
  if are_all then check_rest("bits", mine, plain, 0) end
end

-- Returns whether the plain layout needs as many ranks as the case.
local function has_plain_ranks(case)
  return draw_layout.size(case.layout, "pp") == 1 and not case.second
end

-- Compares a run in fp64 with that of one rank. Lion moves by signs, and that of a number which is 0 but for rounding is chance:
-- after its first step nothing is comparable.
local function check_near(case, laid_out, exact)
  local moves_by_signs = case.optimizer[1] == "lion"
  check_vectors("fp64", "initial weights", exact.parameters, laid_out[1][1].start, exact.start, 0)
  check_steps("fp64", laid_out[1][1], exact, NEAR, moves_by_signs and 1 or 1e9)
  if moves_by_signs then return end
  for rank = 1, #laid_out do check_inferences("fp64", laid_out[rank][1], exact, NEAR) end
  check_generated("fp64", laid_out[1][1], exact)
  for i, loss in ipairs(exact.evaluations) do
    check_numbers("fp64", "evaluation " .. i, laid_out[1][1].evaluations[i], loss, NEAR)
  end
end

-- The distances that a first gradient in these precisions cannot have if it is right.
local FURTHEST = {fp32 = 1e-3, bf16 = 0.5, fp16 = 0.5}

--- Returns whether the distance of the case's gradient from the exact one is that of rounding. A router may choose other experts
--- in fewer bits.
function oracle.has_distance(case)
  for _, item in ipairs(case.items) do
    if item.kind == "mixture" then return false end
  end
  local shard = case.layout.shard or {}
  return case.precision ~= "fp64" and not shard.grad_dtype and not shard.reduce_dtype
end

-- Runs the case on one rank. Returns its outcome in fp64; if there is a distance, that of its first step in the case's precision;
-- and with `finds_differences` that of the comparison with finite differences. `fault`: a fault of all ranks.
local function run_one_rank(case, script, finds_differences, fault)
  local variants = {{precision = "fp64", reference = true, without_mistakes = true, fault = fault}}
  local function add(variant)
    variants[#variants + 1] = variant
    return #variants
  end
  local rounded = oracle.has_distance(case)
                  and add{precision = case.precision, reference = true, without_mistakes = true, steps = 1}
  local differences = finds_differences and add{differences = true, fault = fault}
  local outcomes = run(script, 1, variants)[1]
  return outcomes[1], outcomes[rounded], outcomes[differences]
end

-- As `check` below, but runs the case on the ranks of this run, and compares no bits.
local function check_here(case)
  for _ = 1, 2 do collectgarbage() end -- a rank can have 1,024 communicators
  local script = render.script(case)
  local exact, one_rank = run_one_rank(case, script)
  local run_case = assert(loadstring(script, "=case"))()
  local function outcomes_in(precision) return {{run_case{precision = precision}}} end
  check_near(case, outcomes_in "fp64", exact)
  local mine = outcomes_in(case.precision)[1][1]
  if oracle.has_distance(case) then
    check_vectors(case.precision, "gradient", exact.trainable, mine.gradients[1], exact.gradients[1], FURTHEST[case.precision])
  end
  return {exact = exact, one_rank = one_rank, mine = mine, differences = 0}
end

-- Throws {check =, text =} where something differs. Returns the outcomes in the case's precision, in which a case with
-- `steps_of_bits` makes so many steps.
local function check(case)
  local script = render.script(case)
  local variants = {
    {precision = "fp64", fault = case.fault}, {precision = case.precision, fault = case.fault, steps = case.steps_of_bits},
    {precision = case.precision, plain = true, without_mistakes = true, steps = case.steps_of_bits},
  }
  if not has_plain_ranks(case) then variants[3] = nil end
  local shared = case.fault and faults.list[case.fault].is_of_all and case.fault or nil
  local exact, one_rank, differences = run_one_rank(case, script, case.finds_differences, shared)
  if differences and differences.text then fail("differences", "%s", differences.text) end
  local laid_out = run(script, draw_layout.ranks(case.layout), variants)
  check_ranks_agree(laid_out, 1, "run in fp64")
  check_near(case, laid_out, exact)
  check_ranks_agree(laid_out, 2, "run in " .. case.precision)
  check_bits(case, script, laid_out[1][2], variants[3] and laid_out[1][3])
  return {exact = exact, one_rank = one_rank, mine = laid_out[1][2], differences = differences and differences.checked or 0}
end

--- Throws, with a message that begins with `what`, unless two outcomes have the same bits.
function oracle.expect_equal(what, mine, other)
  local is_equal, failure = pcall(function()
    check_steps(what, mine, other, 0, 1e9)
    check_rest(what, mine, other, 0)
  end)
  if not is_equal then error(what .. ": " .. (type(failure) == "table" and failure.text or failure), 0) end
end

local function result_of(check_case, case)
  local ok, result = pcall(check_case, case)
  if ok then return nil, result end
  if type(result) ~= "table" then result = {check = "error", text = tostring(result)} end
  return result
end

--- Returns nil and what is known of the case, or its failure {check =, text =}.
function oracle.check(case) return result_of(check, case) end

--- Likewise for the case on the ranks of this run, which may be on GPUs.
function oracle.check_here(case) return result_of(check_here, case) end

--- Returns the squared distances of the first gradient from the exact one, of the case and of one rank in its precision.
function oracle.distances(result)
  local exact = result.exact.gradients[1]
  local function squared(run_of)
    local off = (run_of.gradients[1] - exact):norm():item() / exact:norm():item()
    return off * off
  end
  return squared(result.mine), squared(result.one_rank)
end

return oracle
