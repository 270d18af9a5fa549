-- A GPT on any mesh, for plans of published runs: see published_runs.py. Nothing is trained.
--
--   ztoolkit plan bench/plans/gpt.lua --ranks 64 --costs a100 --layers 32 --hidden 4096 --heads 32 --stage 3
--   ztoolkit plan bench/plans/gpt.lua --ranks 512 --costs h100 --family llama --layers 80 --hidden 8192 --heads 64 --kv-heads 8 \
--     --ffn 28672 --vocab 128256 --seq 8192 --tp 8 --sequence-parallel --pp 4 --micro-batches 16 --stage 1
local zt = require "zt"
local comm, moe, nn, optim = require "zt.comm", require "zt.moe", require "zt.nn", require "zt.optim"
local pipe, zero = require "zt.pipe", require "zt.zero"

local o = zt.cli{
  name = "gpt", about = "Plans a step of a GPT.",
  options = {
    {"layers", 32, "blocks", at_least = 1}, {"hidden", 4096, "width", at_least = 1},
    {"heads", 32, "attention heads", at_least = 1},
    {"kv_heads", 0, "heads of keys and values; 0: as many as heads", at_least = 0},
    {"ffn", 0, "columns inside an MLP; 0: the family's default", at_least = 0},
    {"vocab", 32000, "tokens in the vocabulary", at_least = 1}, {"seq", 2048, "tokens per sample", at_least = 1},
    {"family", "gpt2", "kind of model", one_of = {"gpt2", "llama"}},
    {"experts", 0, "experts instead of each MLP; 0: none", at_least = 0}, {"top_k", 2, "experts per token", at_least = 1},
    {"tp", 1, "ranks that share matrices", at_least = 1},
    {"sequence_parallel", false, "they share the tokens between the matrices, too"},
    {"cp", 1, "ranks that share the tokens of samples", at_least = 1},
    {"method", "ring", "how they exchange what attention needs", one_of = {"ring", "gather", "ulysses"}},
    {"ep", 1, "ranks that share experts", at_least = 1},
    {"pp", 1, "ranks of a pipeline", at_least = 1},
    {"chunks", 1, "stages per rank; above 1, the schedule is interleaved", at_least = 1},
    {"samples", 1, "samples per data-parallel rank and micro-batch", at_least = 1},
    {"micro_batches", 1, "micro-batches per step", at_least = 1},
    {"selective", false, "recompute norms, attention and activations"},
    {"tile", 0, "rows for which logits and inner columns of MLPs exist at a time; 0: all", at_least = 0},
    {"recompute", 0, "recompute every so many blocks; 0: none", at_least = 0},
    {"stage", 3, "ZeRO stage", one_of = {0, 1, 2, 3}},
    {"precision", "bf16", "type of parameters and arithmetic", one_of = {"fp32", "bf16", "fp16"}},
  },
}

if o.experts > 0 and (o.ffn == 0 or o.tile > 0) then
  error("--experts needs --ffn, the columns inside an expert, and takes no --tile", 0)
end
local mesh = comm.mesh{pp = o.pp, dp = -1, ep = o.ep, cp = o.cp, tp = o.tp}
local is_llama = o.family == "llama"
local function experts()
  return moe.layers{
    experts = o.experts, hidden = o.hidden, ffn = o.ffn, top_k = o.top_k, axis = mesh.ep,
    activation = is_llama and "swiglu" or nil, bias = not is_llama, tensor = mesh.tp,
    context = {axis = mesh.cp, method = o.method},
  }
end
local model = nn.gpt{
  layers = o.layers, hidden = o.hidden, heads = o.heads, kv_heads = o.kv_heads > 0 and o.kv_heads or nil,
  ffn = o.ffn > 0 and o.ffn or nil, vocab = o.vocab, seq = o.seq, family = o.family,
  tensor = mesh.tp, sequence_parallel = o.sequence_parallel, context = {axis = mesh.cp, method = o.method},
  recompute = o.selective and "selective" or nil, head_tile = o.tile, mlp_tile = o.tile,
  mlp = o.experts > 0 and experts or nil,
}
local program = zt.program(model, {micro_batches = o.micro_batches, precision = o.precision})
if o.pp > 1 then
  local schedule = o.chunks > 1 and "interleaved" or "one_f_one_b"
  program = program:apply(pipe.split{axis = mesh.pp, schedule = schedule, chunks = o.chunks > 1 and o.chunks or nil})
end
if o.recompute > 0 then program = program:apply(zt.recompute{every = o.recompute}) end
program = program:apply(zero.shard{stage = o.stage, axis = o.ep > 1 and mesh:join{"dp", "ep"} or mesh.dp})
local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 1e-4}, clip = 1})
local tokens = zt.zeros({o.samples * o.micro_batches, o.seq}, {dtype = "int64"})
trainer:step{tokens = tokens, labels = tokens}
