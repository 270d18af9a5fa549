--- zt.loss: a loss written in Lua, the last layer of a model.
--
--   local model = nn.gpt{..., loss = false}:append(zt.loss(function(out, ctx)
--     return zt.cross_entropy_loss(out.logits:flatten(0, 1), ctx:batch("labels"):flatten())
--   end))

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local text = require "zt.text"

local OF_TOKENS = {"with per = 'token'", function(o) return o.per == "token" end}
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
}

--- Returns a layer that adds `run(out, ctx)`, a scalar, to the objective. `out` holds the values named by `inputs`; `ctx` is the
-- layer's context with ctx:batch(name), ctx.mode, ... (zt.nn). The objective is the mean over the valid tokens (or the samples,
-- the rows of the first input) of the global batch, whatever the micro-batches and ranks: the mean of each micro-batch is
-- weighted by its number of tokens or samples. In the mode "generate" the layer returns its inputs.
local function loss(run, value)
  if type(run) ~= "function" then fail("zt.loss takes function(out, ctx), which returns a scalar, got a %s", type(run)) end
  local options = check.options("zt.loss", SCHEMA, value or {})
  local names = options.inputs
  check.items("zt.loss.inputs", "string", names)
  if #names == 0 then fail "zt.loss.inputs must name at least one value" end

  local function valid(labels)
    if labels:device() == "meta" then return labels:numel() end -- a plan knows shapes only
    return labels:ne(options.ignore_index):sum():item()
  end

  -- Returns 0. Where other ranks have tokens of the same samples, layers exchange gradients with them: zeros must flow back here.
  local function no_loss(out, ctx)
    local zero = core.tensor(0)
    if #ctx.tokens.of_rank == 1 then return zero end
    for _, name in ipairs(names) do
      if out[name]:is_floating_point() then zero = zero + out[name]:flatten():narrow(0, 0, 0):sum() end
    end
    return zero
  end

  local info = debug.getinfo(run, "S")
  local place = info.what == "C" and "[C]" or ("%s:%d"):format(info.short_src, info.linedefined)
  local outputs = {}
  for index, name in ipairs(names) do outputs[index] = {name = name, differentiable = false} end
  local function forward(_, ...)
    local ctx = select(#names + 1, ...)
    local out, given = {}, {...}
    if ctx.mode == "generate" then return unpack(given, 1, #names) end
    for index, name in ipairs(names) do out[name] = given[index] end
    local count = options.per == "token" and valid(ctx:batch(options.labels)) or out[names[1]]:size(0)
    if count == 0 then return ctx:loss(options.name, no_loss(out, ctx), options.per) end -- a mean over no tokens would be nan
    local scalar = run(out, ctx)
    local is_tensor = check.is("tensor", scalar)
    if not is_tensor or scalar:numel() ~= 1 then
      local returned = scalar == nil and "nothing" or check.type_name(scalar)
      fail("zt.loss: the function at %s returned %s, and the loss '%s' needs a scalar tensor: let it return the %s over the "
        .. "micro-batch's %ss, as reduction = '%s' says", place,
        is_tensor and "a tensor of the shape " .. text.shape(scalar:size()) or returned, options.name, options.reduction,
        options.per, options.reduction)
    end
    if options.reduction == "mean" then scalar = scalar * count end
    ctx:loss(options.name, scalar, options.per)
  end
  local function count_tokens(batch)
    local labels = batch(options.labels)
    if not labels then
      fail("zt.loss: the batch has no field '%s' to count tokens in: name it by `labels`, or give per = 'sample'", options.labels)
    end
    return valid(labels)
  end

  return require("zt.nn").layer{
    kind = "loss", tokens = "separate", defined_at = place, forward = forward,
    io = {inputs = names, outputs = outputs,
          losses = {[options.name] = {per = options.per, adds_over_tokens = options.adds_over_tokens or nil}}},
    count = options.per == "token" and count_tokens or nil, options = options,
  }
end

return loss
