-- Trains two GPTs of equal cost per token on the corpus of scripts/corpus.sh: a dense one, and one with experts in every second
-- block. Shows the gain in loss, the speed of both and the load of the experts (plot: runs/moe_experts/expert_load.svg).
--
--   ztoolkit run -n 2 scripts/exp/moe.lua --experts 8 --ep 2
--   ztoolkit run -n 4 scripts/exp/moe.lua --ep 2 --stage 3 --top-k 1 --capacity 1.25
--   ztoolkit plan scripts/exp/moe.lua --only moe --ranks 64 --ep 8 --batch 64
--   ztoolkit run scripts/exp/moe.lua --help
--
-- An expert has 1 / top-k of the columns of the dense MLP, so a token costs the same in both models.
local zt = require "zt"
local comm = require "zt.comm"
local data = require "zt.data"
local moe = require "zt.moe"
local nn = require "zt.nn"
local optim = require "zt.optim"
local zero = require "zt.zero"

local SEED = 1

local o = zt.cli{
  name = "moe", about = "Trains a dense GPT and one with experts, of equal cost per token.",
  options = {
    {"experts", 8, "number of experts", at_least = 1},
    {"top_k", 2, "experts per token", at_least = 1},
    {"ep", 1, "ranks that share the experts", at_least = 1},
    {"stage", 1, "ZeRO stage", between = {0, 3}},
    {"capacity", 0, "room per expert as a factor of balanced routing; 0: no token is dropped", at_least = 0,
     type = "number"},
    {"balance", 0.01, "weight of the balancing loss", at_least = 0},
    {"dispatcher", "all_to_all", "how tokens are sent, as moe.layers says"},
    {"only", "both", "the models to train", one_of = {"both", "dense", "moe"}},
    {"precision", "fp32", "type of parameters and arithmetic", one_of = {"fp32", "bf16", "fp16", "fp64"}},
    {"data", "corpus/gcide.npy", "tokens, from scripts/corpus.sh or ztoolkit tokenize"},
    {"layers", 4, "blocks", at_least = 2},
    {"hidden", 128, "width", at_least = 4},
    {"heads", 4, "attention heads", at_least = 1},
    {"ffn", 512, "columns inside the dense MLP", at_least = 1},
    {"seq", 128, "tokens per sample", at_least = 2},
    {"batch", 16, "samples per step, of all ranks", at_least = 1},
    {"micro_batches", 1, "micro-batches per step", at_least = 1},
    {"steps", 300, "optimizer steps", at_least = 1},
    {"lr", 2e-3, "peak learning rate", above = 0},
    {"folder", "runs", "the parent folder of all runs"},
  },
}
local function say(...) if zt.world.rank == 0 then print(string.format(...)) end end

if o.ffn % o.top_k ~= 0 then error(("--ffn %d cannot be divided by --top-k %d evenly"):format(o.ffn, o.top_k), 0) end
local mesh = comm.mesh{dp = -1, ep = o.ep}
local all = mesh:join{"dp", "ep"}
-- Both models get the same samples.
local function read() return data.tokens{path = o.data, seq = o.seq, batch = o.batch, axis = all, seed = SEED} end

-- The MLP of every second block.
local function experts_of(block)
  if block % 2 == 0 then return nil end
  return moe.layers{
    experts = o.experts, hidden = o.hidden, ffn = o.ffn / o.top_k, top_k = o.top_k, axis = mesh.ep, dispatcher = o.dispatcher,
    router = {
      -- The weight of a token's only expert must not be divided by itself: the loss could not train the router.
      normalise = o.top_k > 1 and "selected" or "none", losses = {balance = o.balance},
      capacity = o.capacity > 0 and {train = o.capacity, eval = 2 * o.capacity} or nil,
    },
  }
end

-- Returns the largest load of an expert as a multiple of the mean, over all routers.
local function imbalance(stats)
  local worst = 0
  for name, value in pairs(stats) do
    if name:match "%.load_max_over_mean$" then worst = math.max(worst, value) end
  end
  return worst
end

local function train(name, mlp)
  local text = read()
  local model = nn.gpt{layers = o.layers, hidden = o.hidden, heads = o.heads, vocab = text.vocab, seq = o.seq, ffn = o.ffn,
                       seed = SEED, mlp = mlp}
  local program = zt.program(model, {micro_batches = o.micro_batches, precision = o.precision})
    :apply(zero.shard{stage = o.stage, axis = all})
  local trainer = zt.trainer(program, {
    optimizer = optim.adamw{lr = o.lr, weight_decay = 0.1},
    schedule = optim.warmup_cosine{warmup = math.floor(o.steps / 10), total = o.steps},
    clip = 1,
  })
  if not zt.world.dry then say("%s: %s", name, trainer:report()) end
  local run = zt.run{name = "moe_" .. name, folder = o.folder, overwrite = true, trainer = trainer, options = o, steps = o.steps,
                     mesh = mesh}
  local last, tail, seconds, tokens = nil, 0, 0, 0
  local counted = math.max(1, math.floor(o.steps / 10)) -- the loss is the mean over the last tenth of the steps
  for step, batch in text:steps(o.steps) do
    last = trainer:step(batch)
    run:log(step, last)
    if step >= o.steps - counted then tail = tail + last.terms.loss / counted end
    if step > 0 then seconds, tokens = seconds + last.seconds, tokens + last.tokens end
  end
  run:finish()
  local speed = seconds > 0 and tokens / seconds or last.tokens_per_second
  say("%s: loss %.4f, %.0f tokens/s%s", name, tail, speed,
      mlp and (", largest load of an expert %.2f of the mean"):format(imbalance(last.stats)) or "")
  return tail
end

local dense = o.only ~= "moe" and train("dense")
local experts = o.only ~= "dense" and train("experts", experts_of)
if dense and experts then
  say("loss %.4f with experts, %.4f without: %.4f %s", experts, dense, math.abs(dense - experts),
      experts < dense and "lower" or "higher")
end
