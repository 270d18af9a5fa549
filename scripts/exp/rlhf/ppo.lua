-- Proximal policy optimisation with four models: the actor is trained to get more from the reward model, the critic to say what
-- it will get, and the reference holds the actor near its start. Step 3 of RLHF. Defaults are those of DeepSpeed-Chat.
--
--   ztoolkit run -n 2 scripts/exp/rlhf/ppo.lua                                       the task of sorting
--   ztoolkit run -n 2 scripts/exp/rlhf/ppo.lua --model runs/sft --reward runs/reward --data ask.jsonl --lr 1e-6 \
--     --critic-lr 5e-6 --max-tokens 256
--
-- With --lora-rank the reference is the actor without its adapters. --ptx-data mixes text into the actor's steps.
package.path = (arg[0]:match "^(.*/)[^/]*$" or "./") .. "?.lua;" .. package.path
local experiment, models = require "parts.experiment", require "parts.models"
local options, records, rollouts = require "parts.options", require "parts.records", require "parts.rollouts"
local turns = require "parts.turns"
local zt = require "zt"
local ckpt, data, rlhf = require "zt.ckpt", require "zt.data", require "zt.rlhf"

local o = options.read("ppo", "Proximal policy optimisation with a reward model.", {}, rollouts.options({prompts = 256}, {
  {"lr", nil, "the peak learning rate of the actor", type = "number", above = 0, task = 1e-3,
   peers = {"learning_rate", "actor_learning_rate"}},
  {"critic", nil, "the model that the critic begins as; default: --reward", type = "string"},
  {"critic_lr", nil, "the peak learning rate of the critic", type = "number", above = 0, task = 1e-3,
   peers = {"critic_learning_rate"}},
  {"kl", 0.1, "coefficient of the KL divergence from the reference in the rewards", type = "number", at_least = 0,
   peers = {"kl_coef", "kl_ctl", "init_kl_coef"}},
  {"kl_estimator", "k1", "how it is estimated", one_of = {"k1", "k2", "k3"}},
  {"reward_clip", 5, "rewards count from minus this to this; 0: all", type = "number", at_least = 0},
  {"clip_value", 0.2, "how far a value counts from that before the update; 0: without bounds", type = "number", at_least = 0,
   peers = {"cliprange_value"}},
  {"gamma", 1, "discount per token", type = "number", between = {0, 1}},
  {"lambda", 0.95, "of generalised advantage estimation", type = "number", between = {0, 1}, peers = {"lam"}},
  {"whiten", "none", "advantages get mean 0 and standard deviation 1", one_of = {"none", "batch"}},
  {"ptx_data", nil, "a token file of text, or of conversations, that the actor learns in the same steps", type = "string",
   peers = {"unsupervised_dataset_name"}},
  {"ptx_batch", nil, "rows of it per step, over all ranks; default: 8", type = "integer", at_least = 1},
  {"ptx", nil, "coefficient of its loss; default: 27.8", type = "number", above = 0},
  {"critic_weight_decay", 0, "decay of the critic's matrices", type = "number", at_least = 0},
  {"critic_stage", nil, "ZeRO stage of the critic; default: --stage", type = "integer", between = {0, 3},
   peers = {"critic_zero_stage"}},
  {"critic_recompute", 0, "keep no activations in every k-th block of the critic; 0: keep all", at_least = 0},
  {"critic_dropout", nil, "of the critic's blocks in training; default: the model's", type = "number", between = {0, 0.99}},
  {"critic_lora_rank", 0, "train adapters of this rank in the critic; 0: all parameters", at_least = 0,
   peers = {"critic_lora_dim"}},
  {"critic_lora_targets", nil, "matrices with adapters; default: q,v", type = "list", peers = {"critic_lora_module_name"}},
  {"align_overflow", false, "a gradient of actor or critic that is not finite lets neither update (fp16)"},
  {"evict", nil, "where models are that wait for their phase: host, or a folder on NVMe; default: in memory", type = "string"},
  {"ema", 0, "keep an average of the actor's parameters with this decay, such as 0.992; 0: none", type = "number",
   between = {0, 1}},
}), rollouts.needs{
  {"ptx", function(o) return o.ptx_data end, "is the coefficient of --ptx-data: give that, too"},
  {"ptx_batch", function(o) return o.ptx_data end, "is of --ptx-data: give that, too"},
  {"critic_lora_targets", function(o) return o.critic_lora_rank > 0 end,
   "names matrices with adapters: give --critic-lora-rank, too"},
})
if o.reward and o.reward:find "%.lua$" and not o.critic then
  error("--reward is a function, and the critic begins as a reward model by default: give --critic, a run of reward.lua, or use "
    .. "grpo.lua, which needs none", 0)
end
o.model = experiment.start_of(o)
if o.data and not o.reward then error("--data needs --reward: the run of reward.lua for these data", 0) end
if not o.reward then
  o.reward = o.folder .. "/reward"
  if not zt.exists(o.reward) or not ckpt.find(o.reward) then
    experiment.say("there is no reward model: running reward.lua first")
    experiment.run("reward.lua", {"--folder", o.folder, "--model", o.model, "--seed", o.seed})
  end
end
local mesh = experiment.mesh()
local base, of_critic = models.open(o, o.model), ckpt.pretrained(o.critic or o.reward)
local prompts, path = rollouts.prompts(o, mesh, base)
models.check_tokenizer(base, of_critic.tokenizer, "the critic has")
local reward = rollouts.reward(o, mesh, base)
local steps = o.iterations * o.updates * o.epochs

local clip = {low = o.clip_ratio, high = o.clip_high or o.clip_ratio}
local model = models.make(o, base, "logprobs", {temperature = o.temperature})
  :append(rlhf.loss.ppo{clip = clip}, "policy")
if o.ptx_data then model = model:append(rlhf.loss.ptx{coefficient = o.ptx or 27.8}, "ptx") end
local actor = models.trainer(o, mesh, model, {lr = o.lr, steps = steps, ema = o.ema})
base:load(actor)
local reference = models.reference(o, mesh, base)
local c = setmetatable({
  is_critic = true, pack = false, lora_alpha = false,
  stage = o.critic_stage or o.stage, weight_decay = o.critic_weight_decay, recompute = o.critic_recompute,
  dropout = o.critic_dropout or false, lora_rank = o.critic_lora_rank, lora_targets = o.critic_lora_targets or false,
}, {__index = o})
local value_model = models.make(c, of_critic, "value"):append(rlhf.loss.value{clip = o.clip_value}, "value")
local critic = models.trainer(c, mesh, value_model, {lr = o.critic_lr, steps = steps})
of_critic:load(critic)
local text
if o.ptx_data then
  local open = records.has_conversations(o.ptx_data) and data.conversations or data.tokens
  text = open{path = o.ptx_data, seq = o.seq, batch = o.ptx_batch or 8, axis = mesh.dp, seed = o.seed}
  models.check_tokenizer(base, text.tokenizer, "--ptx-data has")
end

local sampler = rollouts.sampler(o, mesh, actor, prompts.tokenizer, records.stop_tokens(path))
local run = experiment.begin(o, mesh, actor, prompts, base, o.iterations, {"reward", "kl", "entropy", "length"})
local done = experiment.resume(run, o.iterations, {objects = {critic = critic}})
local samples = rlhf.samples(run, {done = done, most = o.print_answers})
local all = {{"actor", actor}, {"critic", critic}}
if reference ~= "base" then all[3] = {"reference", reference, true} end
if type(reward) ~= "function" then all[#all + 1] = {"reward", reward, true} end
local enter = turns.of(all, o.evict)
for iteration, batch in prompts:steps(o.iterations) do
  enter{}
  local answers = rollouts.answers(o, mesh, sampler, batch, iteration)
  enter{"reference", "reward"}
  rlhf.score(answers, {actor = actor, reference = reference, critic = critic, reward = reward, old = o.old, rows = o.rows,
                       seq = o.seq})
  rlhf.advantages(answers, {kind = "gae", gamma = o.gamma, lambda = o.lambda, whiten = o.whiten,
                            kl = {coefficient = o.kl, estimator = o.kl_estimator},
                            reward_clip = o.reward_clip > 0 and o.reward_clip or nil})
  local of_text = text and function(update) return text:batch(iteration * o.updates * o.epochs + update) end
  local of_actor, of_value
  if o.align_overflow then
    enter{"actor", "critic"}
    of_actor, of_value = rollouts.update_both(o, answers, actor, critic, iteration, of_text)
  else
    enter{"actor"}
    of_actor = rollouts.update(o, answers, actor, iteration, of_text)
    enter{"critic"}
    of_value = rollouts.update(o, answers, critic, iteration)
  end
  rollouts.log(o, run, samples, iteration, answers, {policy = of_actor, value = of_value})
  if experiment.saves(o, iteration + 1, o.iterations) then enter{"actor", "critic"} end
  experiment.save(o, run, iteration + 1, o.iterations, {critic = critic})
end
enter{"actor"}
if o.ema > 0 then rollouts.save_average(o, mesh, run, base, actor) end
rollouts.finish(o, mesh, run, sampler)
