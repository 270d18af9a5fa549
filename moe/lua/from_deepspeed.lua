--- moe.from_deepspeed{hidden_size, num_experts, k, ...}: the layers of moe.layers for the options of deepspeed.moe.layer.MoE.
--
-- DeepSpeed's expert is a module; here `ffn` gives experts that are MLPs, or `expert` any layer. `axis` is the mesh axis of the
-- ranks that share the experts, instead of process groups. DeepSpeed returns the balancing loss to the script, which multiplies
-- and adds it; here `aux_loss` is its weight. Options that DeepSpeed does not use beside the others, such as use_rts with k = 2,
-- are taken as DeepSpeed takes them.

local check = require "zt.check"
local fail = require "zt.fail"
local layers = require "zt.moe.layers"

local WITHOUT_EXPERT = {"without expert", function(o) return not o.expert end}

local SCHEMA = {
  {"hidden_size", "integer", "columns of a token", required = true, at_least = 1},
  {"num_experts", "integer", "number of experts", default = 1, at_least = 1},
  {"expert", "any", "a layer that each expert is like"},
  {"ffn", "integer", "columns inside an expert's MLP, without `expert`", at_least = 1, only_with = WITHOUT_EXPERT},
  {"activation", "string", "activation of the experts' MLPs", only_with = WITHOUT_EXPERT},
  {"axis", "Axis", "the mesh axis whose ranks share the experts"},
  {"tensor", "Axis", "the mesh axis over whose ranks each expert is cut: DeepSpeed's model-parallel group",
   only_with = {"with enable_expert_tensor_parallelism and ffn",
                function(o) return o.enable_expert_tensor_parallelism and o.ffn ~= nil end}},
  {"context", "table", "how the tokens of samples are cut over ranks: that of nn.gpt"},
  {"ep_size", "integer", "ranks that share the experts: those of `axis`", at_least = 1},
  {"k", "integer", "experts per token", default = 1, at_least = 1},
  {"capacity_factor", "number", "room per expert in training", default = 1, above = 0},
  {"eval_capacity_factor", "number", "room per expert in evaluation", default = 1, above = 0},
  {"min_capacity", "integer", "room for at least so many tokens; 0: no such bound", default = 4, at_least = 0},
  {"use_residual", "boolean", "mix the experts with a dense branch (PR-MoE)", default = false},
  {"noisy_gate_policy", "string", "noise in training", one_of = {"None", "Jitter", "RSample"}, default = "None"},
  {"drop_tokens", "boolean", "drop tokens of experts without room", default = true},
  {"use_rts", "boolean", "with k = 1, keep random tokens instead of the first ones", default = true},
  {"use_tutel", "boolean", "Tutel's kernels; only false", default = false},
  {"enable_expert_tensor_parallelism", "boolean", "cut each expert over the ranks of `tensor`", default = false},
  {"top2_2nd_expert_sampling", "boolean", "with k = 2, draw the second expert, in evaluation too", default = true},
  {"aux_loss", "number", "weight of the balancing loss", default = 0.01, at_least = 0},
}

-- Returns the router's noise. The second expert is drawn in evaluation, too; other noise is for training.
local function noise_of(o)
  local has_jitter, draws_second = o.noisy_gate_policy == "Jitter", o.k == 2 and o.top2_2nd_expert_sampling
  if draws_second then return has_jitter and "jitter_gumbel_second" or "gumbel_second", true end
  if has_jitter then return "jitter" end
  return o.k == 1 and o.noisy_gate_policy == "RSample" and "gumbel" or "none"
end

-- Returns which tokens an expert without room keeps, and in which order the first ones take places.
local function kept(o)
  if o.k == 1 and o.use_rts then return "random" end
  if o.k <= 2 then return "place", "by_choice" end
  return "probability"
end

local function capacity_of(o)
  if not o.drop_tokens then return nil end
  local keep, places = kept(o)
  return {train = o.capacity_factor, eval = o.eval_capacity_factor, min = math.max(1, o.min_capacity), per = "micro_batch",
          keep = keep, places = places}
end

local function check_unsupported(o)
  if o.use_tutel then fail "moe.from_deepspeed: use_tutel = true asks for Tutel's kernels: leave it out" end
  if o.enable_expert_tensor_parallelism and not o.tensor then
    fail("moe.from_deepspeed: enable_expert_tensor_parallelism = true cuts each expert over ranks: give tensor = mesh.tp, their "
      .. "axis, and ffn")
  end
end

local function from_deepspeed(given)
  local o = check.options("moe.from_deepspeed", SCHEMA, given)
  check_unsupported(o)
  local ranks = o.axis and o.axis.size or 1
  if o.ep_size and o.ep_size ~= ranks then
    fail("moe.from_deepspeed: ep_size is %d, but the axis of the experts has %d ranks: give axis = mesh.ep of that size",
         o.ep_size, ranks)
  end
  if o.k > o.num_experts then
    fail("moe.from_deepspeed: k is %d, but there are only %d experts: give a smaller k, or more num_experts", o.k, o.num_experts)
  end
  if not (o.ffn or o.expert) then fail "moe.from_deepspeed: give ffn or expert" end
  local noise, draw_always = noise_of(o)
  local has_loss = o.aux_loss > 0
  return layers{
    experts = o.num_experts, hidden = o.hidden_size, ffn = o.ffn, expert = o.expert, activation = o.activation, axis = o.axis,
    tensor = o.tensor, context = o.context, top_k = o.k, residual = o.use_residual and {ffn = o.ffn, layer = o.expert} or nil,
    router = {
      normalise = o.k == 1 and "none" or "kept", noise = noise, draw_always = draw_always,
      losses = has_loss and {balance = o.aux_loss, per = "micro_batch", of = o.k == 2 and "first" or "all"} or nil,
      capacity = capacity_of(o),
    },
  }
end

return from_deepspeed
