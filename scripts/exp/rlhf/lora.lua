-- Adapters: trains a few percent of the parameters by group relative policy optimisation, with the frozen base as the reference,
-- and writes them as PEFT does.
--
--   ztoolkit run -n 2 scripts/exp/rlhf/lora.lua                                                   the task of sorting
--   ztoolkit run -n 2 scripts/exp/rlhf/lora.lua --model path/to/llama --data ask.jsonl --reward my_reward.lua --lr 1e-5 \
--     --max-tokens 256
--   ztoolkit run -n 2 scripts/exp/rlhf/sft.lua --lora-rank 8 --model path/to/llama --data x.jsonl --lr 1e-4     adapters by SFT
package.path = (arg[0]:match "^(.*/)[^/]*$" or "./") .. "?.lua;" .. package.path
local experiment, models = require "parts.experiment", require "parts.models"
local options, records, rollouts = require "parts.options", require "parts.records", require "parts.rollouts"
local ckpt, rlhf = require "zt.ckpt", require "zt.rlhf"

local o = options.read("lora", "Adapters by group relative policy optimisation.",
  {lora_rank = 8, lora_targets = {"q", "k", "v", "out"}}, rollouts.options({n = 8}, {
    {"lr", nil, "the peak learning rate", type = "number", above = 0,
     task = 1e-2, peers = {"learning_rate", "actor_learning_rate"}},
    {"kl", 0.01, "coefficient of the KL divergence from the base in the loss", type = "number", at_least = 0},
    {"export", false, "write the adapter as PEFT does, into the folder adapter of the run (models of Hugging Face's families)"},
  }), rollouts.needs{})
if o.lora_rank == 0 then error("lora.lua trains adapters, so --lora-rank must be above 0: grpo.lua trains all parameters", 0) end
o.model = experiment.start_of(o)
local mesh = experiment.mesh()
local base = models.open(o, o.model)
local prompts, path = rollouts.prompts(o, mesh, base)
local reward = rollouts.reward(o, mesh, base)
local loss = rlhf.loss.grpo{clip = {low = o.clip_ratio, high = o.clip_high or o.clip_ratio}, kl = {coefficient = o.kl}}
local model = models.make(o, base, "logprobs", {temperature = o.temperature}):append(loss, "policy")
local actor = models.trainer(o, mesh, model, {lr = o.lr, steps = o.iterations * o.updates * o.epochs})
base:load(actor)
local trained = 0
for _, parameter in ipairs(model:parameters()) do trained = trained + (parameter.trainable and parameter.numel or 0) end
experiment.say("%.1f %% of the parameters are trained", 100 * trained / model:numel())

local reference = models.reference(o, mesh, base)
local sampler = rollouts.sampler(o, mesh, actor, prompts.tokenizer, records.stop_tokens(path))
local run = experiment.begin(o, mesh, actor, prompts, base, o.iterations, rollouts.SHOWN)
local samples = rlhf.samples(run, {done = experiment.resume(run, o.iterations), most = o.print_answers})
for iteration, batch in prompts:steps(o.iterations) do
  local answers = rollouts.answers(o, mesh, sampler, batch, iteration)
  rlhf.score(answers, {actor = actor, reference = reference, reward = reward, old = o.old, rows = o.rows, seq = o.seq})
  rlhf.advantages(answers, {kind = "group"})
  rollouts.log(o, run, samples, iteration, answers, {policy = rollouts.update(o, answers, actor, iteration)})
  experiment.save(o, run, iteration + 1, o.iterations)
end
if o.export then ckpt.save_adapter(actor, run.path .. "/adapter", {base_model = o.model, overwrite = true}) end
rollouts.finish(o, mesh, run, sampler, {trained = trained / model:numel()})
