-- Large models for bench/plan_table.py, which runs: ztoolkit plan bench/plan_models.lua --model 7B --stage 3 --ranks 64
local zt = require "zt"
local comm = require "zt.comm"
local nn = require "zt.nn"
local optim = require "zt.optim"
local zero = require "zt.zero"

-- GPT-2 XL, Llama 2 7B, 13B and 70B, and the model with 1 T parameters of Narayanan et al. (2021).
local MODELS = {
  ["1.5B"] = {family = "gpt2", layers = 48, hidden = 1600, heads = 25, vocab = 50257},
  ["7B"] = {family = "llama", layers = 32, hidden = 4096, heads = 32, ffn = 11008, vocab = 32000},
  ["13B"] = {family = "llama", layers = 40, hidden = 5120, heads = 40, ffn = 13824, vocab = 32000},
  ["70B"] = {family = "llama", layers = 80, hidden = 8192, heads = 64, kv_heads = 8, ffn = 28672, vocab = 32000},
  ["1T"] = {family = "gpt2", layers = 128, hidden = 25600, heads = 160, vocab = 51200},
}

local o = zt.cli{
  name = "plan_models", about = "Makes a large model for ztoolkit plan; it never runs.",
  options = {
    {"model", "7B", "which model", one_of = {"1.5B", "7B", "13B", "70B", "1T"}},
    {"stage", 3, "ZeRO stage", between = {0, 3}},
    {"seq", 1024, "tokens per sample", at_least = 1},
    {"samples", 1, "samples per rank and step", at_least = 1},
    {"recompute", 1, "keep no activations in every k-th block; 0: keep all", at_least = 0},
    {"grads", "bf16", "type of the gradients", one_of = {"bf16", "fp32"}},
  },
}

local options = MODELS[o.model]
options.seq = o.seq
local model = nn.gpt(options)
local mesh = comm.mesh{dp = -1}
local program = zt.program(model, {precision = {params = "bf16", grads = o.grads}})
  :apply(zero.shard{stage = o.stage, axis = mesh.dp, bucket_bytes = 0})
if o.recompute > 0 then program = program:apply(zt.recompute{every = o.recompute}) end
local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 1e-4}})
print(("parameters %d"):format(model:numel()))
local tokens = zt.zeros({o.samples, o.seq}, {dtype = "int64"})
trainer:step{tokens = tokens, labels = tokens}
