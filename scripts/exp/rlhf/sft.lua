-- Supervised fine-tuning: trains a model on conversations, of which only the answers count. Step 1 of RLHF.
--
--   ztoolkit run -n 2 scripts/exp/rlhf/sft.lua                                        the task of sorting (parts/sort.lua)
--   ztoolkit run -n 2 scripts/exp/rlhf/sft.lua --model path/to/llama --data x.jsonl   a model of Hugging Face, and records
package.path = (arg[0]:match "^(.*/)[^/]*$" or "./") .. "?.lua;" .. package.path
local experiment = require "parts.experiment"
local ckpt, data = require "zt.ckpt", require "zt.data"

local OF_NEW = "is for a new model, and --model has its own: leave it out"
local function is_new(o) return not o.model end
local o = experiment.options("sft", "Supervised fine-tuning on conversations.", {seq = 96, warmup = 30}, {
  {"steps", 250, "optimizer steps", at_least = 1}, {"batch", 32, "rows per step, over all ranks", at_least = 1},
  {"lr", 3e-3, "peak learning rate", above = 0},
  {"layers", nil, "blocks of a new model; default: 2", type = "integer", at_least = 1},
  {"hidden", nil, "its width; default: 96", type = "integer", at_least = 1},
  {"heads", nil, "its attention heads; default: 4", type = "integer", at_least = 1},
  {"eval_every", 0, "steps between two validations; 0: none", at_least = 0},
}, {
  {"layers", is_new, OF_NEW}, {"hidden", is_new, OF_NEW}, {"heads", is_new, OF_NEW},
})
if o.lora_rank > 0 and not o.model then error("--lora-rank trains adapters of a model that was trained: give --model", 0) end
local mesh = experiment.mesh()
local path = experiment.data(o, mesh, "conversations")
local function stream_of(split)
  return data.conversations{path = path, seq = o.seq, batch = o.batch, micro_batches = o.micro_batches, axis = mesh.dp,
                            seed = o.seed, split = split, phase = experiment.phase(o, 0)}
end
local stream, held_out = stream_of "train", o.eval_every > 0 and stream_of "validation"
local base = o.model and ckpt.pretrained(o.model)
local options = base and base.options or {family = "llama", layers = o.layers or 2, hidden = o.hidden or 96, heads = o.heads or 4,
                                          vocab = stream.vocab, seq = o.seq, seed = o.seed}
local trainer = experiment.trainer(o, mesh, experiment.model(o, options, "lm"), {lr = o.lr, steps = o.steps})
if base then base:load(trainer) end

local run = experiment.begin(o, mesh, trainer, stream, base, o.steps)
ckpt.resume(run)
for step, batch in stream:steps(o.steps) do
  run:log(step, trainer:step(batch))
  if held_out and (step + 1) % o.eval_every == 0 then
    run:log(step, {validation_loss = trainer:evaluate(held_out:batch(0)).loss})
  end
  experiment.save(o, run, step + 1, o.steps)
end
local engine = experiment.engine(o, trainer, stream.tokenizer, experiment.stop_tokens(path))
experiment.finish(o, mesh, run, engine, o.steps)
