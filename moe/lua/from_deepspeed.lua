--- moe.from_deepspeed{hidden_size, num_experts, k, ...}: the layers of moe.layers for the options of deepspeed.moe.layer.MoE.
--
-- DeepSpeed's expert is a module; here `ffn` gives experts that are MLPs, or `expert` any layer. `axis` is the mesh axis of the
-- ranks that share the experts, instead of process groups. DeepSpeed returns the balancing loss to the script, which multiplies
-- and adds it; here `aux_loss` is its weight.

local check = require "zt.check"
local fail = require "zt.fail"
local layers = require "zt.moe.layers"

local SCHEMA = {
  {"hidden_size", "integer", "columns of a token", required = true, at_least = 1},
  {"num_experts", "integer", "number of experts", default = 1, at_least = 1},
  {"expert", "any", "a layer that each expert is like"},
  {"ffn", "integer", "columns inside an expert's MLP, without `expert`", at_least = 1},
  {"activation", "string", "activation of the experts' MLPs", default = "gelu_tanh"},
  {"axis", "any", "the mesh axis whose ranks share the experts"},
  {"ep_size", "integer", "ranks that share the experts: those of `axis`", at_least = 1},
  {"k", "integer", "experts per token", default = 1, at_least = 1},
  {"capacity_factor", "number", "room per expert in training", default = 1, above = 0},
  {"eval_capacity_factor", "number", "room per expert in evaluation", default = 1, above = 0},
  {"min_capacity", "integer", "room for at least so many tokens", default = 4, at_least = 1},
  {"use_residual", "boolean", "mix the experts with a dense branch (PR-MoE)", default = false},
  {"noisy_gate_policy", "string", "noise in training", one_of = {"None", "Jitter", "RSample"}, default = "None"},
  {"drop_tokens", "boolean", "drop tokens of experts without room", default = true},
  {"use_rts", "boolean", "with k = 1, keep random tokens instead of the first ones", default = true},
  {"top2_2nd_expert_sampling", "boolean", "with k = 2, draw the second expert", default = true},
  {"aux_loss", "number", "weight of the balancing loss", default = 0.01, at_least = 0},
}

local function noise_of(o)
  if o.noisy_gate_policy == "Jitter" then return "jitter" end
  if o.noisy_gate_policy == "RSample" and o.k == 1 then return "gumbel" end
  return o.k == 2 and o.top2_2nd_expert_sampling and "gumbel_second" or "none"
end

-- Which tokens an expert without room keeps.
local function kept(o)
  if o.k == 1 then return o.use_rts and "random" or "place" end
  return o.k == 2 and "place" or "probability"
end

local function from_deepspeed(given)
  local o = check.options("moe.from_deepspeed", SCHEMA, given)
  local ranks = o.axis and o.axis.size or 1
  if o.ep_size and o.ep_size ~= ranks then
    fail("moe.from_deepspeed: ep_size is %d, but the axis of the experts has %d ranks: give axis = mesh.ep of that size",
         o.ep_size, ranks)
  end
  if o.use_residual and not (o.ffn or o.expert) then fail "moe.from_deepspeed: give ffn or expert" end
  return layers{
    experts = o.num_experts, hidden = o.hidden_size, ffn = o.ffn, expert = o.expert, activation = o.activation, axis = o.axis,
    top_k = o.k, residual = o.use_residual and {ffn = o.ffn, layer = o.expert} or nil,
    router = {
      normalise = o.k == 1 and "none" or "kept", noise = noise_of(o),
      losses = {balance = o.aux_loss, per = "micro_batch", of = o.k == 2 and "first" or "all"}, -- as top2gating
      capacity = o.drop_tokens and {
        train = o.capacity_factor, eval = o.eval_capacity_factor, min = o.min_capacity, per = "micro_batch", keep = kept(o),
      } or nil,
    },
  }
end

return from_deepspeed
