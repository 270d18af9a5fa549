--- rlhf.loss.value{clip = 0.2, ...}: the critic's loss. Per token that counts, with the value v, the value before the update and
-- the return R: half of max((v - R)^2, (clipped v - R)^2), where clipped v is within `clip` of the value before.

local check = require "zt.check"
local core = require "zt.core"
local means = require "zt.rlhf.loss.means"
local valid = require "zt.rlhf.loss.valid"

local NAME = "rlhf.loss.value"
local SCHEMA = {
  {"name", "string", "the term's name in reports and metrics", default = "value"},
  {"clip", "number", "how far a value counts from that before the update; 0: without bounds", default = 0.2, at_least = 0},
  {"coefficient", "number", "of this loss in the objective", default = 1, above = 0},
}
for _, row in ipairs(means.SCHEMA) do SCHEMA[#SCHEMA + 1] = row end

local function run(out, ctx, o)
  local counts = valid.of(ctx, o.ignore_index)
  local values = out.values:to "float64":masked_fill(counts:logical_not(), 0)
  local returns = valid.values(ctx, "returns", counts)
  local losses, is_clipped = (values - returns):square(), counts:logical_and(counts:logical_not())
  if o.clip > 0 then
    local before = valid.values(ctx, "old_values", counts)
    local bounded = (before + (values - before):clamp(-o.clip, o.clip) - returns):square()
    is_clipped = bounded:gt(losses)
    losses = core.maximum(losses, bounded)
  end
  local metrics = {clipped = {is_clipped:to "float64":sum(), counts:sum()}}
  return means.sum(ctx, losses * (o.coefficient / 2), counts, o), metrics
end

--- Returns a layer. It reads `values`, and the batch's labels, returns and, with a clip, old_values.
local function value_loss(value)
  local o = check.options(NAME, SCHEMA, value or {})
  means.check(NAME, o)
  local of_loss = means.of_loss(NAME, o, o.clip > 0 and {"returns", "old_values"} or {"returns"})
  of_loss.name, of_loss.options, of_loss.inputs, of_loss.metrics = o.name, o, {"values"}, {"clipped"}
  return core.loss(function(out, ctx) return run(out, ctx, o) end, of_loss)
end

return value_loss
