-- A reward model: learns from pairs of answers to give the better one the higher score. Step 2 of RLHF.
--
--   ztoolkit run -n 2 scripts/exp/rlhf/reward.lua                                         the task of sorting
--   ztoolkit run -n 2 scripts/exp/rlhf/reward.lua --model runs/sft --data pairs.jsonl --lr 1e-5  {prompt, chosen, rejected}
package.path = (arg[0]:match "^(.*/)[^/]*$" or "./") .. "?.lua;" .. package.path
local experiment, models = require "parts.experiment", require "parts.models"
local options, records = require "parts.options", require "parts.records"
local data, rlhf = require "zt.data", require "zt.rlhf"

local o = options.read("reward", "A reward model from pairs of answers.", {seq = 96, warmup = 20}, options.of_batches(200, 2e-3, {
  {"at", "last", "the score at the last token, or the mean from where the answers differ", one_of = {"last", "divergence"}},
  {"margin", 0, "by how much the better answer should win", type = "number", at_least = 0},
}))
o.model = experiment.start_of(o)
local mesh, base = experiment.mesh(), models.open(o, o.model)
local path = records.data(o, mesh, "preferences")
local function stream_of(split)
  return data.preferences{path = path, seq = o.seq, batch = o.batch, micro_batches = o.micro_batches, axis = mesh.dp,
                          seed = o.seed, split = split, phase = records.phase(o, 1)}
end
local stream, held_out = stream_of "train", stream_of "validation"
models.check_tokenizer(base, stream.tokenizer, "the data have")
local model = models.make(o, base, "value"):append(rlhf.loss.reward{at = o.at, margin = o.margin}, "pairs")
local trainer = models.trainer(o, mesh, model, {lr = o.lr, steps = o.steps})
base:load(trainer, {head = "new"})

local run = experiment.begin(o, mesh, trainer, stream, base, o.steps, {"stats.pairs.accuracy"})
experiment.resume(run, o.steps)
for step, batch in stream:steps(o.steps) do
  run:log(step, trainer:step(batch))
  experiment.save(o, run, step + 1, o.steps)
end
local result = trainer:evaluate(held_out:batch(0))
experiment.log_end(run, o.steps, {validation_loss = result.loss, validation_accuracy = result.stats["pairs.accuracy"]})
experiment.say("right in %.3f of the pairs that are held out", result.stats["pairs.accuracy"])
run:finish()
experiment.result = {accuracy = result.stats["pairs.accuracy"], run = run.path}
