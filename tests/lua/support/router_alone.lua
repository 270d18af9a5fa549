-- A model that is one router: its input is the batch field `logits` [samples, tokens, experts], its weight the identity.
local zt = require "zt"
local nn, optim = require "zt.nn", require "zt.optim"

local router_alone = {}

--- Returns the trainer of a router, and a table whose fields `weights` and `experts`, [samples, tokens, routes], are those of the
-- latest micro-batch, and `places` the ranges of this rank's tokens. options: passes = {pass, ...}, precision, alone = true for a
-- trainer of one rank.
function router_alone.trainer(router, experts, options)
  options = options or {}
  local seen = {}
  local model = nn.sequential{
    {"source", nn.layer{params = {one = zt.ones({1})}, io = {inputs = {}, outputs = {"h"}},
                        forward = function(layer, ctx) return ctx:batch "logits":to(layer.one:dtype()) * layer.one end}},
    {"router", router},
    {"last", zt.loss(function(out, ctx)
      seen.weights, seen.experts = out.route_weights:detach():clone(), out.route_experts:clone()
      seen.places = ctx.tokens.of_rank[ctx.tokens.rank + 1]
      return out.route_weights:sum() * 0
    end, {inputs = {"route_weights", "route_experts"}, per = "sample", reduction = "sum", adds_over_tokens = true})},
  }
  model:initialise{["router.weight"] = zt.eye(experts)}
  local program = zt.program(model, {precision = options.precision})
  for _, pass in ipairs(options.passes or {}) do program = program:apply(pass) end
  return zt.trainer(program, {optimizer = optim.sgd{lr = 0}, separate = options.alone}), seen
end

return router_alone
