-- Direct preference optimisation: learns from pairs of answers without a reward model.
--
--   ztoolkit run -n 2 scripts/exp/rlhf/dpo.lua                                         the task of sorting
--   ztoolkit run -n 2 scripts/exp/rlhf/dpo.lua --model runs/sft --data pairs.jsonl --lr 5e-7   records {prompt, chosen, rejected}
--
-- The loss of a pair alone is content with any policy that makes the worse answer much less likely, and often makes the better
-- one less likely, too (Razin et al. 2025): without --sft the policy here ends right in 0.3 to 0.6 of its samples, with it in
-- 0.98. With --lora-rank the reference is the policy without its adapters; else it is a second, frozen model.
package.path = (arg[0]:match "^(.*/)[^/]*$" or "./") .. "?.lua;" .. package.path
local experiment, models = require "parts.experiment", require "parts.models"
local options, records = require "parts.options", require "parts.records"
local data, rlhf = require "zt.data", require "zt.rlhf"

local o = options.read("dpo", "Direct preference optimisation.", {seq = 96, warmup = 10}, options.of_batches(100, 5e-4, {
  {"beta", 0.3, "how much the policy is held to the reference", above = 0},
  {"kind", "sigmoid", "the loss of a pair", one_of = {"sigmoid", "ipo", "hinge", "kto", "robust"},
   peers = {"loss_type"}},
  {"label_smoothing", 0, "the share of pairs that are taken to be the wrong way round", type = "number", between = {0, 0.49}},
  {"sft", 0.2, "coefficient of the cross entropy of the better answer, per token", type = "number", at_least = 0,
   peers = {"rpo_alpha"}},
}))
o.model = experiment.start_of(o)
local mesh, base = experiment.mesh(), models.open(o, o.model)
local path = records.data(o, mesh, "preferences")
local stream = data.preferences{path = path, seq = o.seq, batch = o.batch, micro_batches = o.micro_batches, axis = mesh.dp,
                                seed = o.seed, phase = records.phase(o, 1)}
models.check_tokenizer(base, stream.tokenizer, "the data have")
local loss = rlhf.loss.dpo{beta = o.beta, kind = o.kind, label_smoothing = o.label_smoothing, sft = o.sft}
local policy = models.trainer(o, mesh, models.make(o, base, "logprobs"):append(loss, "pairs"),
                                  {lr = o.lr, steps = o.steps})
base:load(policy)
local reference = models.reference(o, mesh, base)
local is_base = reference == "base"

local run = experiment.begin(o, mesh, policy, stream, base, o.steps, {"stats.pairs.accuracy", "stats.pairs.margin"})
experiment.resume(run, o.steps)
for step, batch in stream:steps(o.steps) do
  rlhf.reference(batch, {reference = is_base and policy or reference, adapters = not is_base,
                         policy = o.kind == "kto" and policy or nil, axis = mesh.dp})
  run:log(step, policy:step(batch))
  experiment.save(o, run, step + 1, o.steps)
end
local function engine() return models.engine(o, policy, stream.tokenizer, records.stop_tokens(path)) end
experiment.finish(o, mesh, run, engine, o.steps)
