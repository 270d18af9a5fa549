--- zt.loss: a loss written in Lua, the last layer of a model.
--
--   local model = nn.gpt{..., loss = false}:append(zt.loss(function(out, ctx)
--     return zt.cross_entropy_loss(out.logits:flatten(0, 1), ctx:batch("labels"):flatten())
--   end))

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local text = require "zt.text"

local OF_TOKENS = {"with per = 'token' and without count", function(o) return o.per == "token" and not o.count end}
local SCHEMA = {
  {"inputs", "list", "names of the values that the loss reads", default = {"logits"}},
  {"name", "string", "the term's name in reports and metrics", default = "loss"},
  {"per", "string", "the mean is taken over tokens or samples", default = "token", one_of = {"token", "sample"}},
  {"reduction", "string", "what the function returns: the mean over the micro-batch's tokens or samples, or their sum",
   default = "mean", one_of = {"mean", "sum"}},
  {"adds_over_tokens", "boolean", "with per = 'sample': the loss of a sample is the sum of those of its tokens", default = false,
   only_with = {"with per = 'sample'", function(o) return o.per == "sample" end}},
  {"labels", "string", "the batch field with one label per token", default = "labels", only_with = OF_TOKENS},
  {"ignore_index", "integer", "tokens with this label do not count", default = -100, only_with = OF_TOKENS},
  {"count", "function", "function(batch) -> valid tokens, samples: the numbers that the mean is taken over"},
  {"metrics", "list", "names of the means that the function returns besides", default = {}},
  {"options", "table", "what all ranks must have alike besides"},
  {"whole_samples", "boolean", "the loss of a token depends on others of its sample, so a rank needs all", default = false},
  {"passes_on", "boolean", "the layer outputs its inputs in training, too, for another loss after it", default = false},
}

-- Returns the number of labels that count.
local function valid(labels, ignore_index)
  if labels:device() == "meta" then return labels:numel() end -- a plan knows shapes only
  return labels:ne(ignore_index):sum():item()
end

-- Returns the function `count` of the layer: that of the options, or one that counts labels, or nil, for the rows of a batch.
local function counter_of(options)
  if options.count then
    return function(batch)
      local tokens, samples = options.count(batch)
      if options.per == "sample" and samples == nil then
        fail("zt.loss.count must return the valid tokens and the samples of the batch, and it returned no samples: the loss '%s' "
          .. "is a mean over them, as per = 'sample' says", options.name)
      end
      return tokens, samples
    end
  end
  return options.per == "token" and function(batch)
    local labels = batch(options.labels)
    if not labels then
      fail("zt.loss: the batch has no field '%s' to count tokens in: name it by `labels`, or give per = 'sample'", options.labels)
    end
    return valid(labels, options.ignore_index)
  end or nil
end

-- Returns the number of tokens or samples of this rank's part of the micro-batch, over which the mean is taken, or nil if it is
-- not known: where a rank has some tokens of each sample, it cannot count samples. `first`: the first input of the loss.
local function number_in(ctx, first, options)
  if not options.count then
    return options.per == "token" and valid(ctx:batch(options.labels), options.ignore_index) or first:size(0)
  end
  if first:device() == "meta" then return first:size(0) end
  if options.per == "sample" and #ctx.tokens.of_rank > 1 then
    if options.reduction == "sum" then return nil end
    fail("zt.loss: the samples of the loss '%s' are cut over ranks, so a rank cannot count its own: give reduction = 'sum'",
         options.name)
  end
  local tokens, samples = options.count(function(name) return ctx:has_batch(name) and ctx:batch(name) or nil end)
  return options.per == "token" and tokens or samples
end

-- Returns 0. Where other ranks have tokens of the same samples, layers exchange gradients with them: zeros must flow back here.
local function no_loss(out, ctx, names)
  local zero = core.tensor(0)
  if #ctx.tokens.of_rank == 1 then return zero end
  for _, name in ipairs(names) do
    if out[name]:is_floating_point() then zero = zero + out[name]:flatten():narrow(0, 0, 0):sum() end
  end
  return zero
end

-- Fails unless the function at `place` returned a scalar.
local function check_scalar(scalar, place, options)
  local is_tensor = check.is("tensor", scalar)
  if is_tensor and scalar:numel() == 1 then return end
  local returned = scalar == nil and "nothing" or check.type_name(scalar)
  fail("zt.loss: the function at %s returned %s, and the loss '%s' needs a scalar tensor: let it return the %s over the "
    .. "micro-batch's %ss, as reduction = '%s' says", place,
    is_tensor and "a tensor of the shape " .. text.shape(scalar:size()) or returned, options.name, options.reduction,
    options.per, options.reduction)
end

-- Adds the metrics that the function at `place` returned, {name = {sum, count}}.
local function add_metrics(ctx, returned, place, options)
  if #options.metrics == 0 then return end
  if type(returned) ~= "table" then
    fail("zt.loss: the function at %s returned %s as its second value, and the loss '%s' has metrics: let it return "
      .. "{name = {sum, count}}", place, returned == nil and "nothing" or check.type_name(returned), options.name)
  end
  for _, name in ipairs(options.metrics) do
    local mean = returned[name]
    if type(mean) ~= "table" or #mean ~= 2 then
      fail("zt.loss: the function at %s returned no {sum, count} of the metric '%s'", place, name)
    end
    ctx:metric(name, mean[1], mean[2])
  end
end

--- Returns a layer that adds `run(out, ctx)`, a scalar, to the objective. `out` holds the values named by `inputs`; `ctx` is the
-- layer's context with ctx:batch(name), ctx.mode, ... (zt.nn). The objective is the mean over the valid tokens (or the samples,
-- the rows of the first input) of the global batch, whatever the micro-batches and ranks: the mean of each micro-batch is
-- weighted by its number of tokens or samples. `count(batch)` counts both where samples are not rows, or tokens not labels:
-- batch(name) returns a field. With `metrics = {"accuracy"}`, `run` returns a table as well, {accuracy = {sum, count}}: numbers
-- or scalars without gradients, whose means over all ranks results show as stats["LAYER.accuracy"]. In the mode "generate" the
-- layer returns its inputs; with `passes_on` always, so that another loss may read them.
local function loss(run, value)
  if type(run) ~= "function" then fail("zt.loss takes function(out, ctx), which returns a scalar, got a %s", type(run)) end
  local options = check.options("zt.loss", SCHEMA, value or {})
  local names = options.inputs
  check.items("zt.loss.inputs", "string", names)
  if #names == 0 then fail "zt.loss.inputs must name at least one value" end
  check.items("zt.loss.metrics", "string", options.metrics)

  local info = debug.getinfo(run, "S")
  local place = info.what == "C" and "[C]" or ("%s:%d"):format(info.short_src, info.linedefined)
  local outputs = {}
  for index, name in ipairs(names) do outputs[index] = {name = name, differentiable = options.passes_on} end
  local function add_loss(ctx, given)
    if options.whole_samples and #ctx.tokens.of_rank > 1 then
      fail("zt.loss: the loss '%s' needs all tokens of a sample, and no rank has a whole sample, because the model cuts tokens: "
        .. "give the model no `context`, or another loss", options.name)
    end
    local out = {}
    for index, name in ipairs(names) do out[name] = given[index] end
    local number = number_in(ctx, out[names[1]], options)
    if number == 0 then -- a mean over none would be nan
      ctx:loss(options.name, no_loss(out, ctx, names), options.per)
      return
    end
    local scalar, metrics = run(out, ctx)
    check_scalar(scalar, place, options)
    if not ctx.recompute and scalar:device() ~= "meta" then add_metrics(ctx, metrics, place, options) end
    if options.reduction == "mean" then scalar = scalar * number end
    ctx:loss(options.name, scalar, options.per)
  end
  local function forward(_, ...)
    local ctx, given = select(#names + 1, ...), {...}
    if ctx.mode ~= "generate" then
      add_loss(ctx, given)
      if not options.passes_on then return end
    end
    return unpack(given, 1, #names)
  end

  local compared = {} -- the options that are plain values
  for name, given in pairs(options) do
    if name ~= "count" then compared[name] = given end
  end
  return require("zt.nn").layer{
    kind = "loss", tokens = "separate", defined_at = place, forward = forward,
    io = {inputs = names, outputs = outputs,
          losses = {[options.name] = {per = options.per, adds_over_tokens = options.adds_over_tokens or nil}},
          metrics = options.metrics},
    count = counter_of(options), options = compared,
  }
end

return loss
