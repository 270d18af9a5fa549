-- Tests what ckpt's functions for LoRA say of what they refuse.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, moe, nn = require "zt.ckpt", require "zt.moe", require "zt.nn"
local adapters = require "infer.adapter_cases"
local cases = require "ckpt.lora.lora_cases"
local temporary = require "support.temporary"

local FOLDER, refused = cases.FOLDER, cases.refused

local function options_of(base) return ckpt.pretrained(FOLDER .. base).options end

-- Returns the names of the two matrices of a module of block `layer`.
local function halves(layer, module)
  local name = ("base_model.model.model.layers.%d.%s.lora_"):format(layer, module)
  return name .. "A.weight", name .. "B.weight"
end

local TestOptions = {}

function TestOptions:test_blocks_need_the_same_modules()
  local a, b = halves(1, "mlp.up_proj")
  local folder = adapters.changed("llama_all", {}, {[a] = false, [b] = false})
  refused("has adapters of model.layers.0.mlp.up_proj, and none of model.layers.1.mlp.up_proj, though those blocks have others: "
    .. "the option lora.layers of nn.gpt holds for all targets", ckpt.lora_options, folder, options_of "llama")
end

function TestOptions:test_matrices_without_targets()
  refused("has an adapter of 'model.layers.0.block_sparse_moe.experts.0.w1', a matrix of an expert, and experts have none here",
    ckpt.lora_options, FOLDER .. "mixtral_experts", options_of "mixtral")
  local a, b = halves(0, "block_sparse_moe.gate")
  local folder = adapters.changed("mixtral_attention", {}, {[a] = zt.zeros{4, 32}, [b] = zt.zeros{4, 4}})
  refused("nn.gpt's option lora has no target for 'blocks.0.router.weight'", ckpt.lora_options, folder, options_of "mixtral")
end

function TestOptions:test_other_mistakes()
  refused("changes modules that the model lacks (8): transformer.h.0.attn.c_attn", ckpt.lora_options, FOLDER .. "gpt2_conv1d",
    options_of "llama")
  refused("there is no folder '/none': give the folder of a LoRA adapter", ckpt.lora_options, "/none", options_of "llama")
  refused("has no adapter_config.json", ckpt.lora_options, FOLDER .. "llama", options_of "llama")
  refused("and the model of these options is of none that is known", ckpt.lora_options, FOLDER .. "llama_all",
    {layers = 2, hidden = 32, heads = 2, vocab = 64, family = "llama", norm = "layernorm"})
  local folder = adapters.changed("llama_all", {rank_pattern = {up_proj = 3}})
  refused("lora_A.weight' is [2, 32] instead of [3, 32], by the rank of adapter_config.json", ckpt.lora_options, folder,
    options_of "llama")
  local tensors = {["base_model.model.lm_head.weight"] = zt.zeros{64, 32}}
  refused("has whole tensors only, and no matrices A and B", ckpt.lora_options,
    adapters.write(adapters.config "llama_all", tensors), options_of "llama")
  refused("ckpt.lora_options: the options of the base must be a table", ckpt.lora_options, FOLDER .. "llama_all", 3)
end

local TestLoad = {}

-- Fails unless ckpt.load_adapter refuses, and leaves the trainer as it was.
local function check_load(message, trainer, folder)
  local before = {}
  for _, name in ipairs(trainer:parameters()) do before[name] = trainer:parameter(name) end
  refused(message, ckpt.load_adapter, trainer, folder)
  for name, values in pairs(before) do lu.assertTrue(zt.equal(trainer:parameter(name), values), name) end
end

local ALL = {rank = 2, alpha = 4, targets = {"q", "k", "v", "out", "gate", "up_proj", "down"}}

function TestLoad:test_modules_of_file_and_model_differ()
  local trainer = cases.trainer("llama", {rank = 2, alpha = 4, targets = {"q", "head"}})
  check_load("have adapters of other modules. The file has, and the model lacks, 12: model.layers.0.mlp.down_proj, "
    .. "model.layers.0.mlp.gate_proj, model.layers.0.mlp.up_proj and 9 more. The model has, and the file lacks, 1: lm_head. Make "
    .. "the model with lora = ckpt.lora_options(folder, options)", trainer, FOLDER .. "llama_all")
  check_load("changes modules that the model lacks (8)", trainer, FOLDER .. "gpt2_conv1d")
end

function TestLoad:test_ranks_and_scales()
  check_load("'model.layers.0.self_attn.q_proj' has rank 2 (r, rank_pattern), and 3 in the trainer's model",
    cases.trainer("llama", cases.with(ALL, {ranks = {q = 3}})), FOLDER .. "llama_all")
  check_load("has the scale 2 (lora_alpha, alpha_pattern, use_rslora), and 16 in the trainer's model, so B A would count for",
    cases.trainer("llama", cases.with(ALL, {alpha = 32})), FOLDER .. "llama_all")
  check_load("'model.layers.1.mlp.down_proj' has the scale 2 (", cases.trainer("llama", cases.with(ALL, {alphas = {
    ["blocks.1.down"] = 5}})), FOLDER .. "llama_all")
  check_load("has the scale 2 (lora_alpha, alpha_pattern, use_rslora), and 2.82842712 in",
    cases.trainer("llama", cases.with(ALL, {scale = "alpha/sqrt(r)"})), FOLDER .. "llama_all")
end

function TestLoad:test_damaged_tensors()
  local trainer = cases.trainer("llama", ALL)
  local a, b = halves(0, "mlp.up_proj")
  local function wrong(message, tensors) check_load(message, trainer, adapters.changed("llama_all", {}, tensors)) end
  wrong("is [0], which holds nothing: training with DeepSpeed's ZeRO-3", {[a] = zt.zeros{0}})
  wrong("has numbers that are not finite", {[b] = zt.ones{48, 2} / 0})
  wrong("is [32, 2] instead of [48, 2]", {[b] = zt.zeros{32, 2}})
  wrong("has numbers that are too large for float32", {[b] = zt.full({48, 2}, 1e300, {dtype = "float64"})})
  wrong("is there, but '" .. b .. "' is missing", {[b] = false})
  wrong("'base_model.model.lm_head.weight' is [65, 32] instead of [64, 32], as in the model", {
    ["base_model.model.lm_head.weight"] = zt.zeros{65, 32}})
end

function TestLoad:test_missing_tensors_of_whole_modules()
  local trainer = cases.trainer("llama", {rank = 2, alpha = 4, targets = {"out"}})
  check_load("'lm_head' was trained as a whole (modules_to_save in", trainer,
    adapters.changed("llama_saved", {}, {["base_model.model.lm_head.weight"] = false}))
  check_load("these of its tensors are missing: model.norm.weight. Get the files again", trainer,
    adapters.changed("llama_saved", {}, {["base_model.model.model.norm.weight"] = false}))
end

function TestLoad:test_fused_matrices()
  check_load("'model.layers.0.self_attn.q_proj' and 'model.layers.0.self_attn.k_proj' have different matrices A",
    cases.trainer("llama", {rank = 2, alpha = 4, targets = {"qkv", "out", "gate", "up_proj", "down"}}), FOLDER .. "llama_all")
  check_load("'transformer.h.0.attn.c_attn' has one adapter for all its rows, and the trainer's model has adapters of parts",
    cases.trainer("gpt2", {rank = 2, alpha = 2.5, targets = {"q", "v", "out", "up", "down"}, ranks = {out = 4, up = 4, down = 4},
                           alphas = {out = 5, up = 5, down = 5}}), FOLDER .. "gpt2_conv1d")
end

function TestLoad:test_heads_of_tied_models()
  local head, embedding = "base_model.model.lm_head.weight", "base_model.model.model.embed_tokens.weight"
  local trainer = cases.trainer("qwen2", {rank = 2, alpha = 8, targets = {"q"}})
  for tensor, left in pairs{[head] = embedding, [embedding] = head} do
    check_load("'" .. left .. "' changes the head or the embedding, which are one matrix", trainer,
      adapters.changed("qwen2_tied", {}, {[tensor] = false}))
  end
end

function TestLoad:test_models_without_adapters()
  local plain = zt.trainer(zt.program(moe.gpt(options_of "llama")))
  for _, call in ipairs{"load_adapter", "save_adapter", "merge_lora"} do
    refused("ckpt." .. call .. ": the trainer's model has no adapters: give nn.gpt or moe.gpt the option lora", ckpt[call], plain,
      FOLDER .. "llama_all")
    refused("ckpt." .. call .. ": the first argument must be a Trainer", ckpt[call], 3)
  end
  local model = nn.gpt(cases.with(options_of "llama", {lora = {rank = 2}, mlp = function() return nil end}))
  refused("the trainer's model does not tell its options", ckpt.merge_lora, zt.trainer(zt.program(model)))
end

function TestLoad:test_packed_matrices_are_not_replaced()
  local lora = ckpt.lora_options(FOLDER .. "llama_saved", options_of "llama")
  local trainer = cases.trainer("llama", lora, {pack = {format = "int8", group = 32, keep = {"down"}}})
  refused("replaces 'head.weight', which is packed as int8 in the trainer's model", ckpt.load_adapter, trainer,
    FOLDER .. "llama_saved")
end

local TestSave = {}

function TestSave:test_what_is_trained_beside()
  local function trainer(base, lora, name) return cases.trainer(base, lora, {unfreeze = {name}}) end
  local folder = temporary()
  refused("the parameter 'blocks.1.mlp.down.weight' is trained, too, and an adapter as PEFT saves it cannot have it: only heads, "
    .. "norms and embeddings", ckpt.save_adapter, trainer("llama", {rank = 2}, "^blocks.1.mlp.down.weight$"), folder)
  refused("the parameter 'embedding.weight' is trained, too, and an adapter as PEFT saves it cannot have it: it is the embedding "
    .. "and the head of a tied model", ckpt.save_adapter, trainer("qwen2", {rank = 2}, "^embedding"), folder)
  refused("its module 'lm_head' has an adapter", ckpt.save_adapter,
    trainer("llama", {rank = 2, targets = {"q", "head"}}, "^head.weight$"), folder)
  lu.assertFalse(zt.exists(folder))
end

function TestSave:test_folders()
  local trainer = cases.trainer("llama", {rank = 2})
  refused("is the name of a file: give a folder", ckpt.save_adapter, trainer, temporary() .. ".safetensors")
  local file = temporary()
  zt.write_file(file, "x")
  refused("is no folder", ckpt.save_adapter, trainer, file)
  refused("ckpt.save_adapter: unknown option 'base'", ckpt.save_adapter, trainer, temporary(), {base = "x"})
end

local TestMerge = {}

function TestMerge:test_what_cannot_change()
  local packed = cases.trainer("llama", {rank = 2}, {pack = {format = "int4", group = 32, keep = {"down"}}})
  refused("ckpt.merge_lora: 'blocks.0.attention.qkv.weight' is packed as int4, so the sum with its adapter would be rounded",
    ckpt.merge_lora, packed)
  refused("ckpt.merge_lora: the head is tied to the embedding 'embedding.weight'", ckpt.merge_lora,
    cases.trainer("qwen2", {rank = 2, targets = {"head"}}))
  local other = cases.trainer("llama", {rank = 2, targets = {"out"}}, {
    pack = {format = "int4", group = 32, keep = {"attention.out", "down"}}})
  ckpt.merge_lora(other) -- only others are packed
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestOptions", TestOptions}, {"TestLoad", TestLoad}, {"TestSave", TestSave},
  {"TestMerge", TestMerge}})
