--- The report of DeepSpeed's flops_profiler: the floating-point operations of a step on rank 0, counted by a rehearsal without
-- memory, and the times of the step's trace.

local core = require "zt.core"
local text = require "zt.text"

local flops = {}

local PASSES = {
  {"F", "forward"}, {"R", "recompute"}, {"B", "backward"}, {"I", "backward of inputs"}, {"W", "backward of weights"},
}

-- A machine that makes one operation per second and moves data in no time: the seconds of an action are its operations.
local COUNTER = {
  name = "one operation per second", flops = {fp32 = 1, fp64 = 1, bf16 = 1, fp16 = 1}, memory_bandwidth = 1e300,
  inside = {latency = 0, bandwidth = 1e300}, across = {latency = 0, bandwidth = 1e300}, ranks_per_machine = 1, efficiency = 1,
  launch = 0, overlaps = true, source = "a counter of operations",
}

-- Adds `amount` to the field `key` of the entry of pass `pass` and layer `layer`.
local function add(out, pass, layer, key, amount)
  for _, entry in ipairs{{out.passes, pass}, {out.layers, layer}} do
    local sums, name = entry[1], entry[2]
    sums[name] = sums[name] or {flops = 0, seconds = 0}
    sums[name][key] = sums[name][key] + amount
  end
end

--- Returns {passes = {F = {flops =, seconds =}, ...}, layers = {[position] = {flops =, seconds =}}} of a step of rank 0 over
-- `batch`, this rank's whole batch. `events` is the trace of such a step. A position counts from 0. Fails if an operator of the
-- model cannot run without memory.
function flops.count(trainer, batch, events)
  local out, is_pass = {passes = {}, layers = {}}, {}
  for _, pass in ipairs(PASSES) do is_pass[pass[1]] = true end
  for _, action in ipairs(trainer:simulate(batch, {hardware = COUNTER, measured = {}}).ranks[1].actions) do
    if is_pass[action.kind] then add(out, action.kind, action.target, "flops", action.stop - action.begin) end
  end
  for _, event in ipairs(core.json.decode("[" .. events .. "]")) do
    local pass, layer = event.name:match "^(%u) (%d+)"
    if event.cat == "compute" and event.dur and is_pass[pass] then add(out, pass, tonumber(layer), "seconds", event.dur / 1e6) end
  end
  return out
end

local function row(name, sums)
  local rate = sums.seconds > 0 and text.count(sums.flops / sums.seconds) or "-"
  return {name, text.count(sums.flops), ("%.2f"):format(1000 * sums.seconds), rate}
end

-- Returns the rows of the layers: the first `top` by operations, or with `detailed` all in the model's order.
local function layer_rows(layers, wanted)
  local places = {}
  for place in pairs(layers) do places[#places + 1] = place end
  table.sort(places, function(a, b)
    if wanted.detailed or layers[a].flops == layers[b].flops then return a < b end
    return layers[a].flops > layers[b].flops
  end)
  local rows = {}
  for index = 1, wanted.detailed and #places or math.min(#places, wanted.top) do
    rows[index] = row("position " .. places[index], layers[places[index]])
  end
  return rows
end

--- Returns the report as text. `counted` is the result of flops.count, `wanted` is reports.flops_profiler of the configuration,
-- and `seconds` the time of the whole step.
function flops.text(counted, wanted, step, seconds)
  local rows, all = {{"rank 0", "operations", "ms", "per second"}}, {flops = 0, seconds = seconds}
  for _, pass in ipairs(PASSES) do
    local sums = counted.passes[pass[1]]
    if sums then
      rows[#rows + 1], all.flops = row(pass[2], sums), all.flops + sums.flops
    end
  end
  rows[#rows + 1] = row("the whole step", all)
  for _, line in ipairs(layer_rows(counted.layers, wanted)) do rows[#rows + 1] = line end
  return ("floating-point operations of matmuls and layers at step %d\n%s\n"):format(step, text.columns(rows))
end

return flops
