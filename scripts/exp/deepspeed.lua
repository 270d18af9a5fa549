-- Trains the GPT of gpt.lua with DeepSpeed's calls: an engine and its JSON configuration.
--
--   ztoolkit run scripts/exp/deepspeed.lua
--   ztoolkit run -n 2 scripts/exp/deepspeed.lua --config my_ds_config.json
--
-- The configuration may share matrices (tensor_parallel) and the tokens of samples (sequence_parallel_size) among ranks.
local zt = require "zt"
local data = require "zt.data"
local nn = require "zt.nn"

local o = zt.cli{
  name = "deepspeed", about = "Trains a GPT with DeepSpeed's calls and configuration.",
  options = {
    {"config", "scripts/exp/ds_config.json", "DeepSpeed's configuration"},
    {"data", "corpus/gcide.npy", "the token file (ztoolkit tokenize makes one)"},
    {"layers", 5, "blocks", at_least = 1},
    {"hidden", 192, "width", at_least = 1},
    {"heads", 3, "attention heads", at_least = 1},
    {"seq", 128, "tokens per sample", at_least = 1},
    {"steps", 1000, "optimizer steps", at_least = 1},
    {"lr", 1e-3, "peak learning rate, if the configuration says \"auto\"", above = 0},
    {"eval_batches", 8, "batches of validation text", at_least = 1},
    {"seed", 1, "seed of the weights and the data order", at_least = 0},
  },
}

local vocabulary = data.tokenizer.load(o.data).vocab
local engine = zt.initialize{
  model = function(_, _, cut)
    return nn.gpt{
      layers = o.layers, hidden = o.hidden, heads = o.heads, vocab = vocabulary, seq = o.seq, seed = o.seed,
      tensor = cut.tensor, sequence_parallel = cut.sequence_parallel, overlap = cut.overlap, context = cut.context,
    }
  end,
  config = o.config,
  auto = {optimizer = {lr = o.lr}, schedule = {warmup = math.ceil(o.steps / 10), total = o.steps}},
}

-- Returns a stream of batches of `batch` samples over all ranks. The training stream below returns micro-batches, as DeepSpeed's
-- loader does.
local function tokens(split, batch)
  return data.tokens{path = o.data, split = split, seq = o.seq, batch = batch, axis = engine.axis, seed = o.seed}
end
local train = tokens("train", engine:train_micro_batch_size_per_gpu() * engine.axis.size)
for _, batch in train:steps(o.steps * engine:gradient_accumulation_steps()) do
  local loss = engine(batch)
  engine:backward(loss)
  engine:step()
end

engine:eval()
local held_out, sum = tokens("validation", engine:train_batch_size()), 0
for step = 0, o.eval_batches - 1 do sum = sum + engine(held_out:batch(step)) end
if zt.world.rank == 0 then
  print(("%d steps, %d samples each: validation loss %.4f"):format(engine.global_steps, engine:train_batch_size(),
                                                                     sum / o.eval_batches))
end
