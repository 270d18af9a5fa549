--- Layers in Lua for random models. Each reads and outputs h, [samples, tokens, hidden], unless its comment says more.
local zt = require "zt"
local nn = require "zt.nn"
local ranks = require "zt.ranks"
local faults = require "faults"

local layers = {}

-- Values in [-scale, scale] that depend on the seed alone.
local function values(shape, seed, scale)
  return zt.rand(shape, {generator = zt.generator(seed), dtype = "float64"}):mul(2 * scale):sub(scale)
end

-- A batch field [samples] as a factor for h.
local function factor(ctx, name, h) return ctx:batch(name):to(h:dtype()):view{-1, 1, 1} end

--- Gives the matrices B of adapters, which begin as 0, other initial values.
function layers.wake_adapters(model)
  local changed = {}
  for number, parameter in ipairs(model:parameters()) do
    if parameter.name:find "%.lora%.[%w_]+%.b$" then changed[parameter.name] = values(parameter.shape, 100 + number, 0.5) end
  end
  if next(changed) then model:initialise(changed) end
end

local function named(name) return {inputs = {"h"}, outputs = {"h", name}} end

--- h * (1 + w1) + w2 + w3 * tanh(h) + w4 * h^2 / 10: the first `count` of four parameters [hidden].
function layers.mix(hidden, count, seed)
  local params = {}
  for i = 1, count do params["w" .. i] = values({hidden}, seed + i, 0.5) end
  return nn.layer{kind = "mix", tokens = "separate", params = params, forward = function(self, h)
    local y = h * (1 + self.w1)
    if count > 1 then y = y + self.w2 end
    if count > 2 then y = y + self.w3 * h:tanh() end
    if count > 3 then y = y + self.w4 * (h * h):mul(0.1) end
    return y
  end}
end

--- h + sin(h * w), with a parameter that other layers may hold, too (zt.ranks.param).
function layers.tied(param)
  return nn.layer{kind = "tied", tokens = "separate", params = {w = param}, forward = function(self, h)
    return h + (h * self.w):sin()
  end}
end

--- A choice of experts: with `top_k` 2 the best of the even ones and the best of the odd ones, else the best one.
function layers.choice(top_k)
  return function(scores)
    local is_odd = zt.arange(scores:size(2), {device = scores:device()}):remainder(2):eq(1)
    local function best(of) return (select(2, scores:masked_fill(of, -1):max(2, {keepdim = true}))) end
    local experts = top_k == 1 and best(is_odd:logical_and(false)) or zt.cat({best(is_odd), best(is_odd:logical_not())}, 2)
    return faults.choice(experts, scores:size(2))
  end
end

--- A parameter [hidden] for several layers.
function layers.param(hidden, seed) return ranks.param(values({hidden}, seed, 0.8)) end

--- h, and as `name` tanh(h): for a layer further down.
function layers.fork(name)
  return nn.layer{kind = "fork", tokens = "separate", io = named(name), forward = function(_, h) return h, h:tanh() end}
end

--- h + w * the output `name` of a layer before, with one number w.
function layers.join(name, seed)
  return nn.layer{
    kind = "join", tokens = "separate", io = {inputs = {"h", name}}, params = {w = values({1}, seed, 0.8)},
    forward = function(self, h, aside) return h + self.w * aside end,
  }
end

--- h, and as `name` a mask of the tokens, int64 [samples, tokens, 1], without a gradient.
function layers.mask(name)
  return nn.layer{
    kind = "mask", tokens = "separate", io = {inputs = {"h"}, outputs = {"h", {name = name, differentiable = false}}},
    forward = function(_, h, ctx) return h, ctx:batch "tokens":remainder(3):ne(0):to "int64":unsqueeze(-1) end,
  }
end

--- h times the mask `name`, or half of it.
function layers.masked(name)
  return nn.layer{kind = "masked", tokens = "separate", io = {inputs = {"h", name}}, forward = function(_, h, mask)
    return h * (mask:to(h:dtype()) + 1):mul(0.5)
  end}
end

--- h, and as `name` w * h, which no layer reads: the parameter gets no gradient.
function layers.unread(hidden, name, seed)
  return nn.layer{
    kind = "unread", tokens = "separate", io = named(name), params = {w = values({hidden}, seed, 0.5)},
    forward = function(self, h) return h, h * self.w end,
  }
end

--- h, and a loss term: the sum of w * h^2 over the valid tokens, or over the samples with their factor in the batch.
function layers.penalty(hidden, term, per, seed)
  return nn.layer{
    kind = "penalty", tokens = "separate", io = {losses = {[term] = {per = per, adds_over_tokens = per == "sample"}}},
    params = {w = values({hidden}, seed, 0.2)},
    count = function(batch) return per == "token" and batch "labels":ge(0):sum():item() or 0 end,
    forward = function(self, h, ctx)
      if ctx.mode == "generate" then return h end
      local each = (h * h * self.w):mean{-1}
      local counts = per == "token" and ctx:batch "labels":ge(0):to(h:dtype()) or factor(ctx, "factor", h):squeeze(-1)
      ctx:loss(term, (each * counts):mul(per == "token" and 1 or 0.2):to "float64":sum(), per)
      return h
    end,
  }
end

--- h + used, and + unused for the samples that the batch wants. In a micro-batch without such a sample, `unused` is not read.
function layers.sometimes(hidden, seed)
  return nn.layer{
    kind = "sometimes", tokens = "separate", params = {unused = values({7}, seed, 0.5), used = values({hidden}, seed + 1, 0.5)},
    forward = function(self, h, ctx)
      local y = h + self.used
      if not ctx:has_batch "wanted" then return y end -- as when tokens are generated
      local wanted = factor(ctx, "wanted", h)
      if wanted:sum():item() == 0 then return y end
      return y + self.unused:mean() * wanted
    end,
  }
end

--- silu(h), of any width.
function layers.silu() return nn.layer{kind = "silu", tokens = "separate", forward = function(_, h) return h:silu() end} end

--- h. Fails where the batch field "fuse", [samples], is not 0.
function layers.fuse()
  return nn.layer{kind = "fuse", tokens = "separate", forward = function(_, h, ctx)
    if ctx:has_batch "fuse" and ctx:batch "fuse":sum():item() > 0 then error "the fuse" end
    return h
  end}
end

--- h, with dropout in Lua.
function layers.dropout(p)
  return nn.layer{kind = "lua_dropout", tokens = "separate", forward = function(_, h, ctx) return ctx:dropout(h, p) end}
end

--- The layer, within a layer in Lua.
function layers.within(layer)
  return nn.layer{
    kind = "within", tokens = "separate", layers = {of = layer},
    forward = function(self, h, ctx) return self.of:forward(h, ctx) end,
  }
end

--- h, and the mean square of its elements as a metric. (Their mean may cancel, and is then nothing but rounding.)
function layers.metric()
  return zt.metric("square", function(out) return out.h:to "float64":square():sum(), out.h:numel() end, {inputs = {"h"}})
end

-- The fields of a batch with a number per token.
local FIELDS = {"tokens", "labels", "positions", "segments", "old_logprobs", "ref_logprobs", "advantages", "sequence", "lengths"}

--- Returns options of layers on this mesh: `tensor`, `sequence_parallel`, `context` as a function of its options `method` and
--- `heads_at_once`, `recompute` and `overlap`. They are nil where they have no effect. `how`: {sequence = whether ranks share
--- tokens of the stream, layout =}; `layout`: {[selective = true], [overlap = true], ...}.
function layers.cut(mesh, how, layout)
  local tp, cp = mesh.tp, mesh.cp
  local function context(method, at_once)
    return cp and {axis = cp, method = method, heads_at_once = at_once, layout = how.layout, fields = FIELDS} or nil
  end
  return tp, tp and how.sequence or nil, context, layout.selective and "selective" or nil, tp and layout.overlap
end

--- A gated MLP in Lua, with dropout of its `inner` columns, which are cut over the axis `tp`, if it is given.
function layers.cut_mlp(tp, hidden, inner, seed, dropout)
  local function param(shape, number, dim, groups)
    local whole = values(shape, seed + number, 0.5)
    return tp and {values = whole, cut = {axis = tp, dim = dim, groups = groups}} or whole
  end
  return nn.layer{
    kind = "cut_mlp", tokens = "separate", tensor_axes = {tp},
    params = {up = param({2 * inner, hidden}, 1, 0, {inner, inner}), bias = param({2 * inner}, 2, 0, {inner, inner}),
              down = param({hidden, inner}, 3, 1)},
    forward = function(self, h, ctx)
      local both, own = zt.linear(tp and ctx:copy_to(tp, h) or h, self.up, self.bias), self.bias:size(0) / 2
      local gated = zt.silu(both:narrow(2, 0, own)) * both:narrow(2, own, own)
      local part = zt.linear(ctx:dropout(gated, dropout, tp and {axis = tp, columns = inner}), self.down)
      return tp and ctx:reduce_from(tp, part) or part
    end,
  }
end

--- Two matrices with dropout between them, whose `inner` columns are cut over the axis `tp`, if it is given.
function layers.cut_pair(tp, hidden, inner)
  local function split(name) return tp and name or nil end
  return {
    {"up", nn.linear{["in"] = hidden, out = inner, std = 0.4, tensor = tp, split = split "out"}},
    {"dropout", nn.dropout{p = 0.1, tensor = tp, columns = tp and inner or nil}},
    {"down", nn.linear{["in"] = inner, out = hidden, std = 0.4, tensor = tp, split = split "in"}},
  }
end

--- h + tanh(w * the mean of all tokens of the sample). `context`: how tokens are cut, or nil.
function layers.token_mean(context, hidden, seed)
  local axis = context and context.axis
  return nn.layer{
    kind = "token_mean", context = context and {axis = axis, layout = context.layout, fields = context.fields},
    params = {w = values({hidden}, seed, 0.8)},
    forward = function(self, h, ctx)
      local sum = h:sum(1, true)
      if not axis then return h + (sum / h:size(1) * self.w):tanh() end
      return h + (ctx:copy_to(axis, ctx:reduce_from(axis, sum)) / ctx.tokens.total * self.w):tanh()
    end,
  }
end

--- h + tanh(w * the mean of the tokens up to this one), with dropout of tokens. `context`: how tokens are cut, or nil.
function layers.running_mean(context, hidden, seed, dropout)
  return nn.layer{
    kind = "running_mean",
    context = context and {axis = context.axis, layout = context.layout, fields = context.fields},
    params = {w = values({hidden}, seed, 0.8)},
    forward = function(self, h, ctx)
      local all = ctx:gather_tokens(h, "in_parts")
      local count = (zt.arange(all:size(1), {dtype = h:dtype(), device = h:device()}) + 1):view{1, -1, 1}
      local mean = ctx:own_tokens(all:cumsum(1) / count) * self.w
      local kept = ctx:dropout(zt.ones_like(h:select(2, 0)), dropout, {tokens = true})
      return h + mean:tanh() * kept:unsqueeze(-1)
    end,
  }
end

--- h * (1 + a number that follows from a statistic).
function layers.tally() return ranks.tally() end

return layers
