-- Tests that options without effect beside the others are errors in the modules, and how a schema says so.
local lu = require "luaunit"
local zt = require "zt"
local ckpt, nn, optim, pipe = require "zt.ckpt", require "zt.nn", require "zt.optim", require "zt.pipe"
local comm, data, zero = require "zt.comm", require "zt.data", require "zt.zero"

local mesh = comm.mesh{dp = -1}

local function fails(path, when, make, ...)
  local key = path:match "[^.]+$"
  lu.assertErrorMsgContains(("%s has an effect only %s: change that, or leave %s out"):format(path, when, key), make, ...)
end

local TestEffects = {}

function TestEffects:test_layers_and_models()
  local attention = {hidden = 8, heads = 2}
  local function with(base, more)
    local out = {}
    for key, value in pairs(base) do out[key] = value end
    for key, value in pairs(more) do out[key] = value end
    return out
  end
  fails("nn.attention.rope_base", "with rotary = true", nn.attention, with(attention, {rope_base = 100}))
  fails("nn.attention.rope_scaling", "with rotary = true", nn.attention,
        with(attention, {rope_scaling = {type = "linear", factor = 2}}))
  fails("rope_scaling.original", 'with type = "llama3"', nn.attention,
        with(attention, {rotary = true, rope_scaling = {type = "linear", factor = 2, original = 8}}))
  fails("nn.attention.qk_norm_eps", "with qk_norm = true", nn.attention, with(attention, {qk_norm_eps = 1e-5}))
  fails("nn.attention.window", "with causal = true", nn.attention, with(attention, {causal = false, window = 3}))
  fails("nn.block.eps", "with a norm", nn.block, with(attention, {norm = "none", eps = 1e-4}))
  nn.attention(with(attention, {rope_base = 100, rotary = true, qk_norm_eps = 1e-5, qk_norm = true}))
  nn.block(with(attention, {rope_base = 10000, sequence_parallel = false})) -- the defaults
  local head = {vocab = 5, hidden = 8}
  fails("nn.lm_loss.eps", "with a norm", nn.lm_loss, with(head, {norm = "none", eps = 1e-4}))
  fails("nn.lm_loss.norm_bias", 'with norm = "layernorm"', nn.lm_loss, with(head, {norm = "rmsnorm", norm_bias = false}))
  fails("nn.lm_loss.ignore_index", "with loss = true", nn.lm_loss, with(head, {loss = false, ignore_index = 3}))
  fails("nn.lm_loss.tile", "with loss = true", nn.lm_loss, with(head, {loss = false, tile = 3}))
  fails("nn.lm_loss.std", "without tied", nn.lm_loss, with(head, {tied = nn.embedding{vocab = 5, hidden = 8}, std = 1}))
  local gpt = {layers = 1, hidden = 8, heads = 2, vocab = 5, seq = 4}
  fails("nn.gpt.rope_base", "with rotary positions", nn.gpt, with(gpt, {rope_base = 100}))
  fails("nn.gpt.rope_base", "with rotary positions", nn.gpt, with(gpt, {family = "llama", position = "none", rope_base = 100}))
  fails("nn.gpt.rope_scaling", "with rotary positions", nn.gpt, with(gpt, {rope_scaling = {type = "linear", factor = 2}}))
  fails("nn.gpt.ignore_index", 'with loss = true, or head = "logprobs"', nn.gpt, with(gpt, {loss = false, ignore_index = 3}))
  fails("nn.gpt.head_tile", 'with loss = true, or head = "logprobs"', nn.gpt, with(gpt, {loss = false, head_tile = 3}))
  fails("nn.gpt.entropy", 'with head = "logprobs"', nn.gpt, with(gpt, {entropy = true}))
  fails("nn.gpt.loss", 'with head = "lm"', nn.gpt, with(gpt, {head = "value", loss = false}))
  nn.gpt(with(gpt, {family = "llama", rope_base = 100, eps = 1e-6}))
end

function TestEffects:test_optimizers_and_trainers()
  fails("optim.sgd.dampening", "with momentum above 0", optim.sgd, {lr = 0.1, dampening = 0.5})
  fails("optim.warmup_cosine.start_ratio", "with warmup above 0", optim.warmup_cosine, {total = 5, start_ratio = 0.5})
  optim.sgd{lr = 0.1, momentum = 0.5, dampening = 0.5}
  local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = 5, seq = 4}
  fails("zt.trainer.fp16.hysteresis", "with loss_scale = 0, a dynamic scale", zt.trainer, zt.program(model, {precision = "fp16"}),
        {optimizer = optim.sgd{lr = 0.1}, fp16 = {loss_scale = 8, hysteresis = 3}})
end

function TestEffects:test_passes()
  for _, key in ipairs{"prefetch", "persist_below", "max_reuse_distance", "max_live"} do
    fails("zero.shard." .. key, "at stage 3, which shards parameters", zero.shard, {axis = mesh.dp, stage = 2, [key] = 1})
  end
  fails("zero.shard.keep", "at stage 3, which shards parameters", zero.shard, {axis = mesh.dp, stage = 1, keep = "forward"})
  fails("zero.shard.gather_bucket_bytes", "at stages 1 to 3", zero.shard, {axis = mesh.dp, stage = 0, gather_bucket_bytes = 8})
  fails("pipe.split.costs", 'with partition = "cost"', pipe.split, {axis = mesh.dp, costs = {}})
  fails("pipe.schedule.empty.placement", "without rank_of_stage", pipe.schedule.empty,
        {ranks = 2, micro_batches = 2, placement = "loop", rank_of_stage = {1, 0}})
  fails("pipe.schedule.search.activations", "with memory", pipe.schedule.search, {ranks = 2, micro_batches = 2, activations = 2})
end

function TestEffects:test_files_and_functions()
  fails("ckpt.save.keep_every", "with keep above 0", ckpt.save, "no/folder", {}, {keep_every = 3})
  fails("ckpt.save.skip_if_busy", "with async = true", ckpt.save, "no/folder", {}, {async = false, skip_if_busy = true})
  fails("data.tokens.seed", "with shuffle = true", data.tokens, {path = "x.npy", seq = 1, batch = 1, shuffle = false, seed = 2})
  local of_labels = "with per = 'token' and without count"
  fails("zt.loss.ignore_index", of_labels, zt.loss, function() end, {per = "sample", ignore_index = 3})
  fails("zt.loss.labels", of_labels, zt.loss, function() end, {count = function() end, labels = "targets"})
  fails("zt.generate.top_k", "with temperature above 0", zt.generate, nil, {1}, {seq = 4, temperature = 0, top_k = 3})
end

function TestEffects:test_a_schema_in_lua()
  local schema = {
    {"every", "integer", "steps between two saves"},
    {"keep", "integer", "saves that stay", default = 1, only_with = {"with every", function(o) return o.every end}},
  }
  lu.assertEquals(zt.check_options("zt.thing", schema, {}), {keep = 1})
  lu.assertEquals(zt.check_options("zt.thing", schema, {every = 2, keep = 3}), {every = 2, keep = 3})
  fails("zt.thing.keep", "with every", zt.check_options, "zt.thing", schema, {keep = 3})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestEffects", TestEffects}})
