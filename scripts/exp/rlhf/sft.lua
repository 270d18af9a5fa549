-- Supervised fine-tuning: trains a model on conversations, of which only the answers count. Step 1 of RLHF.
--
--   ztoolkit run -n 2 scripts/exp/rlhf/sft.lua                                        the task of sorting (parts/sort.lua)
--   ztoolkit run -n 2 scripts/exp/rlhf/sft.lua --model path/to/llama --data x.jsonl --lr 1e-5   of Hugging Face, and records
package.path = (arg[0]:match "^(.*/)[^/]*$" or "./") .. "?.lua;" .. package.path
local experiment, models = require "parts.experiment", require "parts.models"
local options, records = require "parts.options", require "parts.records"
local data = require "zt.data"

local OF_NEW = "is for a new model, and --model has its own: leave it out"
local function is_new(o) return not o.model end
local o = options.read("sft", "Supervised fine-tuning on conversations.", {seq = 96, warmup = 30}, options.of_batches(250, 3e-3, {
  {"layers", nil, "blocks of a new model; default: 2", type = "integer", at_least = 1},
  {"hidden", nil, "its width; default: 96", type = "integer", at_least = 1},
  {"heads", nil, "its attention heads; default: 4", type = "integer", at_least = 1},
  {"eval_every", 0, "steps between two validations; 0: none", at_least = 0},
}), {
  {"layers", is_new, OF_NEW}, {"hidden", is_new, OF_NEW}, {"heads", is_new, OF_NEW},
})
if o.lora_rank > 0 and not o.model then error("--lora-rank trains adapters of a model that was trained: give --model", 0) end
local mesh, base = experiment.mesh(), o.model and models.open(o, o.model)
if not o.seq then error("--data needs --seq for a new model: its longest sequence", 0) end
local path = records.data(o, mesh, "conversations")
local function stream_of(split)
  return data.conversations{path = path, seq = o.seq, batch = o.batch, micro_batches = o.micro_batches, axis = mesh.dp,
                            seed = o.seed, split = split, phase = records.phase(o, 0)}
end
local stream, held_out = stream_of "train", o.eval_every > 0 and stream_of "validation"
if base then models.check_tokenizer(base, stream.tokenizer, "the data have") end
local of_new = {family = "llama", layers = o.layers or 2, hidden = o.hidden or 96, heads = o.heads or 4, vocab = stream.vocab,
                seq = o.seq, seed = o.seed}
local trainer = models.trainer(o, mesh, models.make(o, base or {options = of_new}, "lm"), {lr = o.lr, steps = o.steps})
if base then base:load(trainer) end

local run = experiment.begin(o, mesh, trainer, stream, base, o.steps)
experiment.resume(run, o.steps)
for step, batch in stream:steps(o.steps) do
  run:log(step, trainer:step(batch))
  if held_out and (step + 1) % o.eval_every == 0 then
    run:log(step, {validation_loss = trainer:evaluate(held_out:batch(0)).loss})
  end
  experiment.save(o, run, step + 1, o.steps)
end
local function engine() return models.engine(o, trainer, stream.tokenizer, records.stop_tokens(path)) end
experiment.finish(o, mesh, run, engine, o.steps)
