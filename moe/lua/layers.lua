--- moe.layers{experts, hidden, ffn, ...}: the named layers that replace an MLP by a mixture of experts.
--
-- Returns a list for nn.sequential and for nn.gpt{mlp = function(i) ... end}: router, dispatch, experts and combine, with a
-- shared expert or a dense branch between them if asked for. The layers read `h` and output `h`; the residual stream is not
-- added.

local check = require "zt.check"
local fail = require "zt.fail"
local moe = require "zt.moe"
local nn = require "zt.nn"

-- Whether there are MLPs: the experts, or that of a branch.
local function has_mlps(o)
  local branch = o.shared or o.residual
  return not o.expert or (branch ~= nil and branch.layer == nil)
end

local WITHOUT_EXPERT = {"without expert", function(o) return not o.expert end}
local WITH_MLPS = {"on MLPs: without expert, or with shared.ffn or residual.ffn", has_mlps}

local SCHEMA = {
  {"experts", "integer", "number of experts", required = true, at_least = 1},
  {"hidden", "integer", "columns of a token", required = true, at_least = 1},
  {"ffn", "integer", "columns inside an expert's MLP; needed unless `expert` is given", at_least = 1, only_with = WITHOUT_EXPERT},
  {"activation", "string", "activation of the MLPs", default = "gelu_tanh", only_with = WITH_MLPS},
  {"bias", "boolean", "biases in the MLPs", default = true, only_with = WITH_MLPS},
  {"std", "number", "standard deviation of initial weights", default = 0.02, at_least = 0},
  {"residual_std", "number", "standard deviation of the initial weights that end an MLP", default = 0.02, at_least = 0,
   only_with = WITH_MLPS},
  {"expert", "any", "a layer that each expert is like, instead of an MLP"},
  {"top_k", "integer", "experts per token", default = 2, at_least = 1},
  {"select", "function", "function(scores) that returns the experts of each token, instead of the top_k largest scores"},
  {"router", "table", "further options of moe.router", default = {}},
  {"shared", "table", "an expert that all tokens use: {ffn =, gate =} or {layer =, gate =}"},
  {"residual", "table", "a dense branch that is mixed with the experts (PR-MoE): {ffn =} or {layer =}"},
  {"axis", "Axis", "the mesh axis whose ranks share the experts"},
  {"tensor", "Axis", "the mesh axis over whose ranks the matrices of each MLP are cut", only_with = WITH_MLPS},
  {"tp_dtype", "string", "type in which the parts of sums over `tensor` travel, by default the parameters' type",
   only_with = {"with tensor", function(o) return o.tensor ~= nil end}},
  {"context", "table", "how the tokens of samples are cut over ranks: that of nn.gpt"},
  {"dispatcher", "string", "how tokens are sent", default = "all_to_all"},
  {"overlap", "boolean", "send while other actions run; by default over nccl"},
  {"transport", "string", "dtype in which tokens are sent, by default their own"},
  {"grouped_gemm", "boolean", "one GEMM for the rows of all experts; by default in bfloat16 on CUDA, where it serves",
   only_with = WITHOUT_EXPERT},
  {"planned_rows", "number", "of plans, by default 1: rows of a rank as a multiple of balanced routing's", above = 0,
   only_with = {"without router.capacity, which bounds the rows", function(o) return not o.router.capacity end}},
}

local RESIDUAL = {
  {"ffn", "integer", "columns inside its MLP", at_least = 1,
   only_with = {"without layer", function(o) return not o.layer end}},
  {"layer", "any", "any layer, instead of an MLP"},
}
local SHARED = {RESIDUAL[1], RESIDUAL[2], {"gate", "boolean", "multiply by a learnt gate per token"}}

local function mlp(o, ffn)
  return nn.mlp{
    hidden = o.hidden, ffn = ffn, activation = o.activation, bias = o.bias, std = o.std, residual_std = o.residual_std,
    tensor = o.tensor, tp_dtype = o.tp_dtype,
  }
end

-- Returns how tokens are cut, without what attention does about it.
local function cut_of(context)
  if not context then return nil end
  local cut = {}
  for key, value in pairs(context) do cut[key] = value end
  cut.method, cut.heads_at_once = nil, nil
  return cut
end

-- The experts and the exchange of tokens depend on these, too, so the table `router` cannot change them.
local function router_of(o)
  local options = {hidden = o.hidden, experts = o.experts, top_k = o.top_k, select = o.select, std = o.std,
                   context = cut_of(o.context)}
  for key, value in pairs(o.router) do
    if key ~= "std" and options[key] ~= nil and options[key] ~= value then
      local values = type(value) == "function" and {"a function", "another one"} or {tostring(options[key]), tostring(value)}
      fail("moe.layers: %s is %s, but router.%s is %s: give %s once, beside router", key, values[1], key, values[2], key)
    end
    options[key] = value
  end
  return moe.router(options)
end

local function branch_of(o)
  if o.shared and o.residual then fail "moe.layers: give `shared` or `residual`, not both" end
  local name = o.shared and "shared" or "residual"
  local branch = check.options("moe.layers." .. name, o.shared and SHARED or RESIDUAL, o[name])
  if not branch.layer and not branch.ffn then fail("moe.layers.%s: give ffn, the columns inside its MLP, or layer", name) end
  local layer = branch.layer or mlp(o, branch.ffn)
  if o.residual then return {name, moe.residual_branch{layer = layer, hidden = o.hidden}} end
  return {name, moe.shared_expert{layer = layer, hidden = o.hidden, gate = branch.gate}}
end

local function experts_of(o)
  if o.expert then return moe.experts{experts = o.experts, expert = o.expert, axis = o.axis} end
  if not o.ffn then fail "moe.layers: give ffn, the columns inside an expert's MLP, or expert, any layer" end
  return nn.grouped_mlp{
    groups = o.experts, hidden = o.hidden, ffn = o.ffn, activation = o.activation, bias = o.bias, std = o.std,
    residual_std = o.residual_std, axis = o.axis and o.axis.name, parts = o.axis and o.axis.size,
    grouped_gemm = o.grouped_gemm, tensor = o.tensor, tp_dtype = o.tp_dtype,
  }
end

local function layers(given)
  local o = check.options("moe.layers", SCHEMA, given)
  local exchange = {experts = o.experts, hidden = o.hidden, axis = o.axis, dispatcher = o.dispatcher, overlap = o.overlap,
                    transport = o.transport, planned_rows = o.planned_rows, capacity = o.router.capacity, top_k = o.top_k}
  local list = {{"router", router_of(o)}, {"dispatch", moe.dispatch(exchange)}}
  if o.shared or o.residual then
    list[#list + 1] = branch_of(o)
    exchange.shared = true
  end
  list[#list + 1] = {"experts", experts_of(o)}
  list[#list + 1] = {"combine", moe.combine(exchange)}
  return list
end

return layers
