-- On-policy distillation: a student learns the distributions of a teacher on its own answers (Agarwal et al. 2024), so it learns
-- what to do where it would go itself.
--
--   ztoolkit run -n 2 scripts/exp/rlhf/on_policy_distil.lua --teacher runs/grpo               the task of sorting
--   ztoolkit run -n 2 scripts/exp/rlhf/on_policy_distil.lua --teacher large --model small --data ask.jsonl --lr 1e-5 \
--     --max-tokens 256
package.path = (arg[0]:match "^(.*/)[^/]*$" or "./") .. "?.lua;" .. package.path
local experiment, models = require "parts.experiment", require "parts.models"
local options, records, rollouts = require "parts.options", require "parts.records", require "parts.rollouts"
local zt = require "zt"
local ckpt, rlhf = require "zt.ckpt", require "zt.rlhf"

local o = options.read("on_policy_distil", "A student learns from a teacher on its own answers.", {},
  rollouts.options({prompts = 256}, {
    {"teacher", nil, "the model to learn from; default: the run of grpo.lua", type = "string"},
    {"lr", nil, "the peak learning rate", type = "number", above = 0, task = 1e-3, peers = {"learning_rate"}},
    {"kind", "reverse", "the divergence", one_of = {"forward", "reverse", "jsd"}},
    {"top", 0, "learn from so many of the teacher's likeliest tokens; 0: all", at_least = 0},
  }, {reward = true, old = true, clip_ratio = true, clip_high = true, stop_kl = true}), rollouts.needs{})
o.model = experiment.start_of(o)
if o.data and not o.teacher then error("--data needs --teacher, the model to learn from", 0) end
if not o.teacher then
  o.teacher = o.folder .. "/grpo"
  if not zt.exists(o.teacher) or not ckpt.find(o.teacher) then
    experiment.say("there is no teacher: running grpo.lua first")
    experiment.run("grpo.lua", {"--folder", o.folder, "--model", o.model, "--seed", o.seed, "--test", 0})
  end
end
local mesh = experiment.mesh()
local base, of_teacher = models.open(o, o.model), ckpt.pretrained(o.teacher)
local prompts, path = rollouts.prompts(o, mesh, base)
models.check_tokenizer(base, of_teacher.tokenizer, "the teacher has")
local loss = rlhf.loss.distil{kind = o.kind, temperature = o.temperature, top = o.top > 0 and o.top or nil}
local model = models.make(o, base, "lm", {loss = false}):append(loss, "distil")
local student = models.trainer(o, mesh, model, {lr = o.lr, steps = o.iterations * o.updates * o.epochs})
base:load(student)
local teacher = models.frozen(o, mesh, of_teacher, "lm", {loss = false})

local sampler = rollouts.sampler(o, mesh, student, prompts.tokenizer, records.stop_tokens(path))
local run = experiment.begin(o, mesh, student, prompts, base, o.iterations, {"entropy", "distil.agreement"})
local samples = rlhf.samples(run, {done = experiment.resume(run, o.iterations), most = o.print_answers})
for iteration, batch in prompts:steps(o.iterations) do
  local answers, result = rollouts.answers(o, mesh, sampler, batch, iteration)
  for rows in rlhf.batches(answers, {trainer = student, updates = o.updates, epochs = o.epochs, seq = o.seq,
                                     seed = o.seed + iteration}) do
    rlhf.teacher(rows, {teacher = teacher, top = o.top > 0 and o.top or nil,
                        temperature = o.top > 0 and o.temperature or nil})
    result = student:step(rows)
  end
  rollouts.log(o, run, samples, iteration, answers, {policy = result})
  experiment.save(o, run, iteration + 1, o.iterations)
end
rollouts.finish(o, mesh, run, sampler)
