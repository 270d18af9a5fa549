-- A GPT under data parallelism, for plans of published runs: see published_runs.py. Nothing is trained.
--
--   ztoolkit plan bench/plans/gpt.lua --ranks 64 --costs a100 --layers 32 --hidden 4096 --heads 32 --stage 3
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local o = zt.cli{
  name = "gpt", about = "Plans a step of a GPT under data parallelism.",
  options = {
    {"layers", 32, "blocks", at_least = 1}, {"hidden", 4096, "width", at_least = 1},
    {"heads", 32, "attention heads", at_least = 1},
    {"kv_heads", 0, "heads of keys and values; 0: as many as heads", at_least = 0},
    {"ffn", 0, "columns inside an MLP; 0: the family's default", at_least = 0},
    {"vocab", 32000, "tokens in the vocabulary", at_least = 1}, {"seq", 2048, "tokens per sample", at_least = 1},
    {"family", "gpt2", "kind of model", one_of = {"gpt2", "llama"}},
    {"samples", 1, "samples per rank and micro-batch", at_least = 1},
    {"micro_batches", 1, "micro-batches per step", at_least = 1},
    {"recompute", 0, "recompute every so many blocks; 0: none", at_least = 0},
    {"stage", 3, "ZeRO stage", one_of = {0, 1, 2, 3}},
    {"precision", "bf16", "type of parameters and arithmetic", one_of = {"fp32", "bf16", "fp16"}},
  },
}

local mesh = comm.mesh{dp = -1}
local model = nn.gpt{
  layers = o.layers, hidden = o.hidden, heads = o.heads, kv_heads = o.kv_heads > 0 and o.kv_heads or nil,
  ffn = o.ffn > 0 and o.ffn or nil, vocab = o.vocab, seq = o.seq, family = o.family,
}
local program = zt.program(model, {micro_batches = o.micro_batches, precision = o.precision})
if o.recompute > 0 then program = program:apply(zt.recompute{every = o.recompute}) end
program = program:apply(zero.shard{stage = o.stage, axis = mesh.dp})
local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 1e-4}, clip = 1})
local tokens = zt.zeros({o.samples * o.micro_batches, o.seq}, {dtype = "int64"})
trainer:step{tokens = tokens, labels = tokens}
