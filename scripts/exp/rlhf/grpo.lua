-- Group relative policy optimisation: samples several answers to each prompt, and makes those more likely that get more reward
-- than the others. The reward is a function in Lua.
--
--   ztoolkit run -n 2 scripts/exp/rlhf/grpo.lua                     the task of sorting, in which an answer is right or wrong
--   ztoolkit run -n 2 scripts/exp/rlhf/grpo.lua --model path/to/llama --data ask.jsonl --reward my_reward.lua --lr 1e-6 \
--     --max-tokens 256
--
-- my_reward.lua returns function(prompt, answer, item, tokens), which returns a number, or nil to drop the answer; `item` is the
-- record {prompt = ..., answer = ..., ...} of the data.
package.path = (arg[0]:match "^(.*/)[^/]*$" or "./") .. "?.lua;" .. package.path
local experiment, models = require "parts.experiment", require "parts.models"
local options, records, rollouts = require "parts.options", require "parts.records", require "parts.rollouts"
local rlhf = require "zt.rlhf"

local o = options.read("grpo", "Group relative policy optimisation.", {}, rollouts.options({n = 8}, {
  {"lr", nil, "the peak learning rate", type = "number", above = 0,
   task = 1e-3, peers = {"learning_rate", "actor_learning_rate"}},
  {"kind", "group", "how advantages are estimated", one_of = {"group", "rloo", "reinforce++"}},
  {"scale", nil, "divide advantages of --kind group by a standard deviation; default: group", type = "string",
   one_of = {"group", "batch", "none"}, peers = {"scale_rewards"}},
  {"mean", "token", "the mean of the loss", one_of = {"token", "sequence", "constant"}, peers = {"loss_type"}},
  {"level", "token", "ratios of tokens or of whole answers", one_of = {"token", "sequence"},
   peers = {"importance_sampling_level"}},
  {"kl", 0, "coefficient of the KL divergence from the start in the loss", type = "number", at_least = 0,
   peers = {"beta", "kl_coef"}},
  {"kl_estimator", nil, "how it is estimated; default: k3", type = "string", one_of = {"k2", "k3"}},
}), rollouts.needs{
  {"scale", function(o) return o.kind == "group" end, "divides advantages of --kind group: leave it out"},
  {"kl_estimator", function(o) return o.kl > 0 end, "estimates the divergence of --kl: give that, too"},
})
o.model = experiment.start_of(o)
local mesh = experiment.mesh()
local base = models.open(o, o.model)
local prompts, path = rollouts.prompts(o, mesh, base)
local reward = rollouts.reward(o, mesh, base)
local loss = rlhf.loss.grpo{
  clip = {low = o.clip_ratio, high = o.clip_high or o.clip_ratio}, mean = o.mean, level = o.level,
  max_tokens = o.mean == "constant" and o.max_tokens or nil,
  kl = o.kl > 0 and {coefficient = o.kl, estimator = o.kl_estimator} or nil,
}
local model = models.make(o, base, "logprobs", {temperature = o.temperature}):append(loss, "policy")
local actor = models.trainer(o, mesh, model, {lr = o.lr, steps = o.iterations * o.updates * o.epochs})
base:load(actor)
local reference = o.kl > 0 and models.reference(o, mesh, base) or nil

local sampler = rollouts.sampler(o, mesh, actor, prompts.tokenizer, records.stop_tokens(path))
local run = experiment.begin(o, mesh, actor, prompts, base, o.iterations,
                             reference and {"reward", "kl", "entropy", "length"} or rollouts.SHOWN)
local samples = rlhf.samples(run, {done = experiment.resume(run, o.iterations), most = o.print_answers})
for iteration, batch in prompts:steps(o.iterations) do
  local answers = rollouts.answers(o, mesh, sampler, batch, iteration)
  rlhf.score(answers, {actor = actor, reference = reference, reward = reward, old = o.old, rows = o.rows, seq = o.seq})
  rlhf.advantages(answers, {kind = o.kind, scale = o.scale})
  local result = rollouts.update(o, answers, actor, iteration)
  rollouts.log(o, run, samples, iteration, answers, {policy = result})
  experiment.save(o, run, iteration + 1, o.iterations)
end
rollouts.finish(o, mesh, run, sampler)
