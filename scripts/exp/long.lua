-- Trains a GPT on long sequences whose tokens are cut over the ranks of an axis (context parallelism). Prints tokens/s and the
-- memory of each rank. The task needs the whole sequence: its second half repeats the first, and only the second half has labels.
--
--   ztoolkit run -n 2 scripts/exp/long.lua --cp 2
--   ztoolkit run -n 2 scripts/exp/long.lua --cp 2 --method ulysses --seq 8192 --recompute blocks --precision bf16 --steps 3
--   ztoolkit plan scripts/exp/long.lua --ranks 16 --cp 8 --seq 131072 --layers 32 --hidden 4096 --heads 32 \
--     --precision bf16 --stage 3 --recompute blocks --costs h100
--   ztoolkit run scripts/exp/long.lua --help
--
-- Losses do not depend on how many ranks share a sequence, nor on the method. With --seq 64 --batch 16, the model copies
-- after 100 steps: the loss is 0.01, where guessing gives ln 16 = 2.77. Longer sequences need more steps.
local zt = require "zt"
local comm = require "zt.comm"
local nn = require "zt.nn"
local optim = require "zt.optim"
local zero = require "zt.zero"

local VOCAB, SEED, IGNORED = 16, 1, -100

local o = zt.cli{
  name = "long", about = "Trains a GPT on sequences that the ranks of an axis share.",
  options = {
    {"cp", 1, "ranks that share each sequence; the others are data parallel", at_least = 1},
    {"method", "ring", "how keys and values reach the queries of other ranks", one_of = {"ring", "gather", "ulysses"}},
    {"heads_at_once", nil, "key heads that ring and gather exchange together; default: all", type = "integer", at_least = 1},
    {"layout", "balanced", "which tokens a rank has", one_of = {"balanced", "contiguous"}},
    {"window", 0, "tokens that a query sees; 0: all before it", at_least = 0},
    {"recompute", "none", "what the backward computes again", one_of = {"none", "selective", "blocks"}},
    {"tile", 0, "rows for which logits and inner columns of MLPs exist at a time; 0: all", at_least = 0},
    {"stage", 1, "ZeRO stage", between = {0, 3}},
    {"precision", "fp32", "type of parameters and arithmetic", one_of = {"fp32", "bf16", "fp16", "fp64"}},
    {"layers", 2, "blocks", at_least = 1},
    {"hidden", 64, "width", at_least = 4},
    {"heads", 4, "attention heads", at_least = 1},
    {"seq", 1024, "tokens per sample; even", at_least = 2},
    {"batch", 2, "samples per step, over all ranks", at_least = 1},
    {"steps", 100, "optimizer steps", at_least = 1},
    {"lr", 1e-2, "peak learning rate", above = 0},
  },
}
local mesh = comm.mesh{dp = -1, cp = o.cp} -- neighbouring ranks share a sequence
if o.batch % mesh.dp.size ~= 0 then
  error(("--batch %d does not divide into %d data-parallel ranks: give a multiple of %d"):format(o.batch, mesh.dp.size,
                                                                                             mesh.dp.size), 0)
end
if o.seq % 2 ~= 0 then
  error(("--seq %d is odd, and the second half of a sample repeats the first: give an even number"):format(o.seq), 0)
end

local model = nn.gpt{
  layers = o.layers, hidden = o.hidden, heads = o.heads, vocab = VOCAB, seq = o.seq, family = "llama", seed = SEED,
  window = o.window > 0 and o.window or nil,
  context = {axis = mesh.cp, method = o.method, layout = o.layout, heads_at_once = o.heads_at_once},
  recompute = o.recompute == "selective" and "selective" or nil, head_tile = o.tile, mlp_tile = o.tile,
}
local program = zt.program(model, {precision = o.precision}):apply(zero.shard{axis = mesh.dp, stage = o.stage})
if o.recompute == "blocks" then program = program:apply(zt.recompute{every = 1}) end
local trainer = zt.trainer(program, {
  optimizer = optim.adamw{lr = o.lr}, clip = 1,
  schedule = optim.warmup_cosine{warmup = math.floor(o.steps / 10), total = o.steps},
})

-- Returns the samples of this data-parallel rank. All ranks of mesh.cp are given the same whole samples, which the trainer cuts.
local samples, half = o.batch / mesh.dp.size, o.seq / 2
local function batch(step)
  local draw = zt.generator(1000 * SEED + step)
  local part = zt.randint(VOCAB, {o.batch, half}, {generator = draw, dtype = "int64"}):narrow(0, mesh.dp.rank * samples, samples)
  local tokens = zt.cat({part, part}, 1)
  local labels = zt.full_like(tokens, IGNORED)
  labels:narrow(1, half - 1, half):copy_(part) -- the label of a token is the next token
  return {tokens = tokens, labels = labels}
end

local seconds, tokens, last = 0, 0, nil
for step = 0, o.steps - 1 do
  last = trainer:step(batch(step))
  if step > 0 then seconds, tokens = seconds + last.seconds, tokens + o.batch * o.seq end
  if zt.world.rank == 0 and step % 50 == 0 then print(("step %4d  loss %.4f"):format(step, last.loss)) end
end
local memory = zt.memory_text(trainer, mesh:world())
if zt.world.rank == 0 then
  print(memory)
  local loss = ("loss %.4f (guessing: %.4f)"):format(last.loss, math.log(VOCAB))
  -- The first step also allocates memory, so it does not count.
  print(o.steps > 1 and ("%s, %.0f tokens/s"):format(loss, tokens / seconds) or loss .. "; tokens/s need more than one step")
end
