-- Tests what engines say of adapters that cannot be added to the weights of a model.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local infer, ckpt = require "zt.infer", require "zt.ckpt"
local adapters = require "infer.adapter_cases"
local cases = require "infer.engine_cases"
local temporary = require "support.temporary"

local FOLDER, CONFIG, TENSORS = adapters.FOLDER, adapters.CONFIG, adapters.TENSORS
local MODULE = "base_model.model.model.layers.0.mlp.up_proj."
local A, B = MODULE .. "lora_A.weight", MODULE .. "lora_B.weight"

local TestRefusals = {}

local function refused(message, name, more)
  lu.assertErrorMsgContains(message, adapters.engine, name, more)
end

function TestRefusals:test_keys_that_change_the_function_are_refused_by_name()
  local values = {
    use_dora = true, lora_bias = true, trainable_token_indices = {1, 2}, target_parameters = {"mlp.experts.gate_up_proj"},
    layer_replication = {{0, 2}}, megatron_config = {a = 1}, alora_invocation_tokens = {3}, use_qalora = true, bias = "all",
    use_bdlora = {nblocks = 2}, arrow_config = {top_k = 2}, kasa_config = {beta = 1}, monteclora_config = {num_samples = 8},
    init_lora_weights = "pissa_niter_4", peft_type = "IA3", of_the_future = 7,
  }
  for key, value in pairs(values) do
    refused(("adapter_config.json has '%s' = "):format(key), "llama_all", {
      adapter = adapters.changed("llama_all", {[key] = value})})
  end
  for key, why in pairs{use_dora = "the rows of sums are scaled (DoRA", bias = "biases of the base were trained",
                        of_the_future = "the key is not known here, so it may change what the model computes",
                        init_lora_weights = "path_initial_model_for_weight_conversion",
                        peft_type = "only the matrices of the type LORA"} do
    refused(why, "llama_all", {adapter = adapters.changed("llama_all", {[key] = values[key]})})
  end
  local accepted = adapters.changed("llama_all", {of_the_future = false, velora_config = {scale = 1}, use_dora = false,
                                                  init_lora_weights = "orthogonal", lora_dropout = 0.3})
  adapters.check("llama_all", adapters.engine("llama_all", {adapter = accepted}))
end

function TestRefusals:test_wrong_numbers_of_the_config()
  local function wrong(message, keys) refused(message, "llama_all", {adapter = adapters.changed("llama_all", keys)}) end
  wrong("'r' = 0 (a number), where a whole number of at least 1 is needed", {r = 0})
  wrong("'lora_alpha' = 'x' (a string), where a finite number is needed", {lora_alpha = "x"})
  wrong("'use_rslora' = 1 (a number), where true or false is needed", {use_rslora = 1})
  wrong("'rank_pattern' has 'q_proj' = 0.5, where a whole number", {rank_pattern = {q_proj = 0.5}})
  wrong("down_proj.lora_A.weight' is [2, 48] instead of [3, 48], by the rank of adapter_config.json", {r = 3})
  wrong("lora_A.weight' is [2, 32] instead of [5, 32], by the rank", {rank_pattern = {["layers.1.*up_proj"] = 5}})
  wrong("the pattern '(?<=x)q_proj' is no regular expression that is read here", {
    alpha_pattern = {["(?<=x)q_proj"] = 2}})
  wrong("'pissa' (a string), where an object of patterns and numbers is needed", {alpha_pattern = "pissa"})
end

function TestRefusals:test_damaged_tensors()
  local function wrong(message, tensors) refused(message, "llama_all", {adapter = adapters.changed("llama_all", {}, tensors)}) end
  wrong("'" .. A .. "' is there, but '" .. B .. "' is missing", {[B] = false})
  wrong("'" .. B .. "' is there, but '" .. A .. "' is missing", {[A] = false})
  wrong("'" .. B .. "' is [32, 2] instead of [48, 2]", {[B] = zt.zeros{32, 2}})
  wrong("'" .. A .. "' is [0], which holds nothing: training with DeepSpeed's ZeRO-3", {[A] = zt.zeros{0}})
  wrong("'" .. A .. "' is [64], no matrix: training with DeepSpeed's ZeRO-3", {[A] = zt.zeros{64}})
  wrong("'" .. B .. "' has numbers that are not finite", {[B] = zt.ones{48, 2} / 0})
  wrong("'" .. A .. "' has numbers that are not finite", {[A] = zt.zeros{2, 32} / 0})
  wrong("'" .. A .. "' is int64, where floating-point numbers are needed", {[A] = zt.zeros({2, 32}, {dtype = "int64"})})
  wrong("belongs to an adapter with lora_bias", {[MODULE .. "lora_B.bias"] = zt.zeros{48}})
  wrong("belongs to an adapter with use_dora", {[MODULE .. "lora_magnitude_vector"] = zt.zeros{48}})
  wrong("belongs to an adapter of an embedding", {["base_model.model.model.embed_tokens.lora_embedding_A"] = zt.zeros{2, 64}})
  wrong("belongs to a kind of LoRA that is not known here", {[MODULE .. "lora_A.default.weight"] = zt.zeros{2, 32}})
  wrong("'x.weight' does not begin with 'base_model.model.'", {["x.weight"] = zt.zeros{2}})
  wrong("'base_model.model.lm_head.weight' is [65, 32] instead of [64, 32], as in the model", {
    ["base_model.model.lm_head.weight"] = zt.zeros{65, 32}})
  local empty = adapters.write(adapters.config "llama_all", {})
  refused("has no tensors, so the adapter changes nothing", "llama_all", {adapter = empty})
end

function TestRefusals:test_modules_of_another_model()
  refused("changes modules that the model lacks (8): transformer.h.0.attn.c_attn, transformer.h.0.attn.c_proj, "
    .. "transformer.h.0.mlp.c_fc and 5 more. The model has the linear layers lm_head, model.layers.0.mlp.down_proj, "
    .. "model.layers.0.mlp.gate_proj and 12 more", "llama_all", {adapter = FOLDER .. "gpt2_conv1d"})
  refused("changes modules that the model lacks (1): score.weight", "llama_all", {
    adapter = adapters.changed("llama_all", {}, {["base_model.model.score.weight"] = zt.zeros{2, 32}})})
  local norm = "base_model.model.model.norm.lora_%s.weight"
  refused("modules that the model lacks (1): model.norm.", "llama_all", {adapter = adapters.changed("llama_all", {}, {
    [norm:format "A"] = zt.zeros{2, 32}, [norm:format "B"] = zt.zeros{32, 2}})})
end

function TestRefusals:test_tied_heads()
  local head, embedding = "base_model.model.lm_head.weight", "base_model.model.model.embed_tokens.weight"
  local reason = "changes the head or the embedding, which are one matrix in this model (tied)"
  local function wrong(name, tensors)
    refused("'" .. name .. "' " .. reason, "qwen2_tied", {adapter = adapters.changed("qwen2_tied", {}, tensors)})
  end
  wrong(embedding, {[head] = false})
  wrong(head, {[embedding] = false})
  wrong(head, {[head] = zt.zeros{64, 32}})
  local half = "base_model.model.lm_head.lora_%s.weight"
  wrong(half:format "A", {[half:format "A"] = zt.zeros{2, 32}, [half:format "B"] = zt.zeros{64, 2}})
end

-- Returns a copy of the folder of an adapter, whose file of tensors has this content. nil: there is none.
local function with_file(content)
  local folder = temporary()
  zt.mkdir_p(folder)
  zt.write_file(folder .. CONFIG, zt.fs.read(FOLDER .. "llama_all" .. CONFIG))
  if content then zt.write_file(folder .. TENSORS, content) end
  return folder
end

function TestRefusals:test_folders_that_are_no_adapters()
  local content = zt.fs.read(FOLDER .. "llama_all" .. TENSORS)
  local function wrong(message, folder) refused(message, "llama_all", {adapter = folder}) end
  wrong("there is no folder '/none': give the folder of a LoRA adapter", "/none")
  wrong("has no adapter_config.json, so it is no adapter as PEFT saves it", FOLDER .. "llama")
  wrong("has no adapter_model.safetensors: look for the missing file", with_file())
  local pickled = with_file()
  zt.write_file(pickled .. "/adapter_model.bin", "x")
  wrong("save the adapter again by PEFT with safe_serialization=True", pickled)
  wrong("adapter_model.safetensors", with_file(content:sub(1, #content - 100)))
  wrong("adapter_model.safetensors", with_file(content:sub(1, 100)))
  wrong("adapter_model.safetensors", with_file "")
end

function TestRefusals:test_bases_that_take_no_adapter()
  refused("are packed already, as nf4, and the sums with the adapter's would be rounded a second time", "llama_all",
    {model = "tests/golden/bitsandbytes/llama"})
  local trainer = cases.trainer "llama"
  lu.assertErrorMsgContains("an adapter is added to weights that are read from a folder: give model, not trainer", infer.engine,
    {trainer = trainer, adapter = FOLDER .. "llama_all"})
  local run = temporary() .. "/run"
  local model = require("zt.nn").gpt{layers = 1, hidden = 32, heads = 2, vocab = 64, family = "llama", norm = "layernorm"}
  ckpt.save(run, {trainer = zt.trainer(zt.program(model), {optimizer = require("zt.optim").adamw{lr = 0.01}})},
    {step = 0, async = false})
  refused("is of none that is known: its options", "llama_all", {model = run})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestRefusals", TestRefusals}})
