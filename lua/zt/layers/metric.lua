--- zt.metric: a number for people, such as the part of the tokens that a model predicts. It stands in a model before what uses up
-- its inputs, such as the loss, and changes nothing.
--
--   local model = nn.gpt{..., loss = false}
--     :append(zt.metric("accuracy", function(out, ctx)
--       local labels = ctx:batch "labels"
--       return out.logits:argmax(-1):eq(labels):sum(), labels:numel()
--     end), "metrics")
--     :append(zt.loss(...))
--   trainer:step(batch).stats["metrics.accuracy"]

local check = require "zt.check"
local fail = require "zt.fail"

local SCHEMA = {{"inputs", "list", "names of the values that the function reads", default = {"logits"}}}

--- Returns a layer that passes its inputs on and shows `name` in the result of a step and of an evaluation: the sum of the sums
-- over the sum of the counts that `run(out, ctx)` returns for the micro-batches of all ranks. `out` holds the values named by
-- `inputs`, without gradients; `ctx` is the layer's context.
local function metric(name, run, value)
  if type(name) ~= "string" or type(run) ~= "function" then
    fail("zt.metric takes a name and function(out, ctx), which returns a sum and a count, got a %s and a %s", type(name),
         type(run))
  end
  local options = check.options("zt.metric", SCHEMA, value or {})
  local names = options.inputs
  check.items("zt.metric.inputs", "string", names)
  if #names == 0 then fail "zt.metric.inputs must name at least one value" end
  local info = debug.getinfo(run, "S")
  local place = info.what == "C" and "[C]" or ("%s:%d"):format(info.short_src, info.linedefined)

  local function forward(_, ...)
    local ctx, given, out, passed, versions = select(#names + 1, ...), {...}, {}, {}, {}
    for index, input in ipairs(names) do
      out[input] = given[index]:detach()
      versions[index] = out[input]:_version()
      passed[index] = given[index]:view(given[index]:size())
    end
    if ctx.mode ~= "generate" and not ctx.recompute and given[1]:device() ~= "meta" then
      local sum, count = run(out, ctx)
      for index, input in ipairs(names) do
        if out[input]:_version() ~= versions[index] then
          fail("zt.metric: the function at %s changed out.%s, which the layers after it read: change a copy", place, input)
        end
      end
      if sum == nil or count == nil then
        fail("zt.metric: the function at %s returned %s: let it return a sum and a count", place,
             sum == nil and "nothing" or "no count")
      end
      ctx:metric(name, sum, count)
    end
    return unpack(passed, 1, #names)
  end
  return require("zt.nn").layer{
    kind = "metric", tokens = "separate", defined_at = place, forward = forward, options = options,
    io = {inputs = names, outputs = names, metrics = {name}},
  }
end

return metric
