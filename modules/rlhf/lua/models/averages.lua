--- rlhf.ema{decay = 0.992}: a pass that keeps a moving average of the parameters beside them.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local same_model = require "zt.ckpt.pretrained.same_model"

local NAME = "rlhf.ema"
local SCHEMA = {
  {"decay", "number", "weight of the average so far", default = 0.992, between = {0, 1}},
  {"mesh", "Mesh", "that of the program's other passes"},
}
local BUFFER = "ema"

-- Returns the program's actions with one before the first STEP of each unit, and one after each STEP.
local function with_averages(actions, begin, average)
  local list = {}
  for _, action in ipairs(actions) do
    local is_step = action.kind == "STEP"
    if is_step then list[#list + 1] = begin(action.target) end
    list[#list + 1] = action
    if is_step then list[#list + 1] = average(action.target) end
  end
  return list
end

--- Returns a pass of the phase overlap. The average begins as the parameters before the first step; each update makes it decay *
-- average + (1 - decay) * parameters, in float32. It is sharded and saved like the optimizer's state.
-- rlhf.take_ema copies it to another trainer.
local function ema(value)
  local o = check.options(NAME, SCHEMA, value or {})
  local buffer = core.buffer{name = BUFFER, residence = "sharded"}
  local begin = core.action{
    name = "EMA_BEGIN", reads = {"master"}, buffers = {buffer},
    start = function(ctx)
      if ctx.step == 0 then ctx.buffer.ema:copy_(ctx.unit.master) end
    end,
  }
  local average = core.action{
    name = "EMA", role = "update", reads = {"master"}, buffers = {buffer},
    start = function(ctx) ctx.buffer.ema:lerp_(ctx.unit.master:to(ctx.buffer.ema:dtype()), 1 - o.decay) end,
  }
  return core.pass{
    name = "rlhf.ema", phase = "overlap", mesh = o.mesh, actions = {begin, average}, buffers = {buffer},
    differs_along = o.mesh and {} or nil,
    apply = function(program)
      program.actions = with_averages(program.actions, begin, average)
      return program
    end,
  }
end

-- Fails unless both trainers have the same parameters, before any is set.
local function check_equal_models(from, to)
  local shapes, differences = {}, {}
  local function shape_of(trainer, name) return "[" .. table.concat(trainer:describe_parameter(name).shape, ", ") .. "]" end
  for _, name in ipairs(to:parameters()) do shapes[name] = shape_of(to, name) end
  for _, name in ipairs(from:parameters()) do
    local shape, other = shape_of(from, name), shapes[name]
    if other ~= shape then
      differences[#differences + 1] = other
        and ("'%s' is %s in the first trainer and %s in the second"):format(name, shape, other)
        or ("only the first trainer has '%s' %s"):format(name, shape)
    end
    shapes[name] = nil
  end
  for _, name in ipairs(check.sorted_keys(shapes)) do
    differences[#differences + 1] = ("only the second trainer has '%s' %s"):format(name, shapes[name])
  end
  for _, each in ipairs(#differences == 0 and same_model.differences(from.model, to.model) or {}) do
    differences[#differences + 1] =
      ("the option %s is %s in the first trainer and %s in the second"):format(each.name, each.from or "none", each.to or "none")
  end
  if #differences == 0 then return end
  fail("rlhf.take_ema: the trainers are not of the same model, so nothing is set:\n  %s", table.concat(differences, "\n  "))
end

--- Sets the parameters of `to`, a trainer of the same model, to the average that `from` keeps. Frozen parameters are those of
-- `from`. Collective.
local function take(from, to)
  check.argument("rlhf.take_ema", "the first argument", "Trainer", from)
  check.argument("rlhf.take_ema", "the second argument", "Trainer", to)
  if from.global_step == 0 then fail "rlhf.take_ema: the first trainer has made no step, so there is no average yet" end
  check_equal_models(from, to)
  local is_trainable = {}
  for _, parameter in ipairs(from.model:parameters()) do is_trainable[parameter.name] = parameter.trainable end
  for _, name in ipairs(from:parameters()) do
    core.scope(function()
      to:set_parameter(name, is_trainable[name] and from:buffer(BUFFER, name) or from:parameter(name))
    end)
  end
end

return {pass = ema, take = take}
