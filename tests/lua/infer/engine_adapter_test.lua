-- Tests engines of models with a LoRA adapter added, beside transformers' answers with the same adapter merged by peft
-- (tests/oracle/make_adapters.py). Also runs on two and four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, infer, ckpt, nn = require "zt.comm", require "zt.infer", require "zt.ckpt", require "zt.nn"
local adapters = require "infer.adapter_cases"
local cases = require "infer.engine_cases"
local command = require "support.command" "run"
local temporary = require "support.temporary"

local FOLDER, GOLDEN, CONFIG, TENSORS = adapters.FOLDER, adapters.GOLDEN, adapters.CONFIG, adapters.TENSORS
local MODULE = "base_model.model.model.layers.0.mlp.up_proj."

local TestAdapters = {}

-- Returns whether two engines have equal parameters, bit by bit.
local function have_equal_parameters(one, other)
  for _, parameter in ipairs(one.trainer.model:parameters()) do
    local name = parameter.name
    if not zt.equal(one.trainer:parameter(name), other.trainer:parameter(name)) then return false, name end
  end
  return true
end

function TestAdapters:test_answers_are_those_of_merged_models()
  local count = 0
  for name in pairs(GOLDEN.answers) do
    adapters.check(name, adapters.engine(name))
    count = count + 1
  end
  lu.assertEquals(count, 8)
end

function TestAdapters:test_layouts()
  if zt.world.size == 1 then return end
  local cut = comm.mesh{pp = zt.world.size / 2, tp = 2}
  for _, name in ipairs{"llama_patterns", "qwen2_biased"} do
    adapters.check(name, adapters.engine(name, {mesh = cut, tensor = cut.tp}))
  end
  local divided = comm.mesh{pp = 2, dp = -1}
  for _, name in ipairs{"gpt2_conv1d", "qwen2_tied"} do
    adapters.check(name, adapters.engine(name, {mesh = divided, pipeline = divided.pp, data = divided.dp}))
  end
  local all = comm.mesh{dp = -1}
  adapters.check("llama_saved", adapters.engine("llama_saved", {mesh = all, data = all.dp, shard = {stage = 3}}))
  adapters.check("mixtral_experts", adapters.engine("mixtral_experts", {mesh = all, experts = all.dp}))
end

-- The sums are rounded once: those of a model in bf16 are those of fp32, rounded.
function TestAdapters:test_sums_are_rounded_once()
  if zt.world.size > 1 then return end
  local exact, rounded = adapters.engine "llama_patterns", adapters.engine("llama_patterns", {dtype = "bf16"})
  local default = infer.engine{model = FOLDER .. "llama", adapter = FOLDER .. "llama_patterns"}
  for _, parameter in ipairs(exact.trainer.model:parameters()) do
    local name = parameter.name
    local expected = exact.trainer:parameter(name):to "bfloat16"
    lu.assertTrue(zt.equal(rounded.trainer:parameter(name):to "bfloat16", expected), name)
    lu.assertTrue(zt.equal(default.trainer:parameter(name):to "bfloat16", expected), name)
  end
end

-- The rows of a part are changed alone, by the closed form: W + alpha / r B A.
function TestAdapters:test_a_fused_parameter_gets_the_rows_of_its_parts()
  if zt.world.size > 1 then return end
  local a, b = zt.zeros{2, 32}, zt.zeros{48, 2}
  a:narrow(0, 1, 1):fill_(3)
  b:narrow(0, 5, 1):fill_(0.5)
  local folder = adapters.write({peft_type = "LORA", r = 2, lora_alpha = 8}, {
    [MODULE .. "lora_A.weight"] = a, [MODULE .. "lora_B.weight"] = b})
  local plain, added = infer.engine{model = FOLDER .. "llama", dtype = "fp32"},
    infer.engine{model = FOLDER .. "llama", dtype = "fp32", adapter = folder}
  local name = "blocks.0.mlp.up.weight"
  local expected = plain.trainer:parameter(name):clone()
  expected:narrow(0, 48 + 5, 1):add_(8 / 2 * 0.5 * 3)
  lu.assertTrue(zt.equal(added.trainer:parameter(name), expected))
  name = "blocks.1.mlp.up.weight"
  lu.assertTrue(zt.equal(added.trainer:parameter(name), plain.trainer:parameter(name)))
end

-- GPT-2's weights are [in, out] in files, also those that are trained as a whole.
function TestAdapters:test_a_whole_tensor_is_transposed_where_the_base_is()
  if zt.world.size > 1 then return end
  local whole = zt.arange(32 * 96):to("float32"):reshape{32, 96}
  local folder = adapters.changed("gpt2_conv1d", {}, {
    ["base_model.model.transformer.h.1.attn.c_attn.weight"] = whole,
    ["base_model.model.transformer.h.1.attn.c_attn.lora_A.weight"] = false,
    ["base_model.model.transformer.h.1.attn.c_attn.lora_B.weight"] = false})
  local engine = adapters.engine("gpt2_conv1d", {adapter = folder})
  lu.assertTrue(zt.equal(engine.trainer:parameter "blocks.1.attention.qkv.weight", whole:t()))
end

function TestAdapters:test_weights_are_packed_after_the_sum()
  if zt.world.size > 1 then return end
  local weights = {format = "int8", group = 32}
  local engine, plain = adapters.engine("gpt2_conv1d", {weights = weights}), adapters.engine "gpt2_conv1d"
  lu.assertEquals(engine.trainer.model:parameters()[5].format, "int8")
  local of_sums = infer.engine{trainer = plain.trainer, weights = weights, stop_tokens = {}}
  local answer = engine:generate(adapters.request())[1]
  lu.assertEquals(cases.text(answer), cases.text(of_sums:generate(adapters.request())[1]))
  lu.assertAlmostEquals(answer.logprobs[1].logprob, GOLDEN.answers.gpt2_conv1d.logprobs[1], 0.3)
end

-- The files of a base may name its tensors without the prefix of its head, as those of the first GPT-2 do.
function TestAdapters:test_a_base_without_prefix()
  if zt.world.size > 1 then return end
  local folder, tensors, list = temporary(), {}, {}
  local files = ckpt.safetensors(FOLDER .. "gpt2")
  for place, tensor in ipairs(files:tensors()) do
    local name = tensor.name:gsub("^transformer%.", "")
    tensors[name] = tensor.name
    list[place] = {name = name, shape = tensor.shape, dtype = tensor.dtype}
  end
  zt.mkdir_p(folder)
  zt.write_file(folder .. "/config.json", zt.fs.read(FOLDER .. "gpt2/config.json"))
  ckpt.write_safetensors(folder .. "/model.safetensors", list, 5e9, function(name) return files:read(tensors[name]) end)
  adapters.check("gpt2_conv1d", adapters.engine("gpt2_conv1d", {model = folder}))
end

-- Files of older versions of PEFT name whole tensors with "modules_to_save".
function TestAdapters:test_names_of_older_versions()
  if zt.world.size > 1 then return end
  local head, keys = "base_model.model.lm_head.weight", {enable_lora = {}, merge_weights = false}
  local old = adapters.changed("llama_saved", keys, {[head] = false,
    ["base_model.model.lm_head.modules_to_save.weight"] = adapters.tensors("llama_saved")[head]})
  lu.assertTrue(have_equal_parameters(adapters.engine "llama_saved", adapters.engine("llama_saved", {adapter = old})))
  local both = adapters.changed("llama_saved", keys, {["base_model.model.lm_head.modules_to_save.weight"] = zt.zeros{64, 32}})
  lu.assertErrorMsgContains("are two tensors for one: the file is damaged", adapters.engine, "llama_saved", {adapter = both})
end

-- Runs and checkpoints have our own names: those of a family follow from the model's options.
function TestAdapters:test_a_run_is_the_base()
  local run = temporary() .. "/run"
  local model = nn.gpt{layers = 2, hidden = 32, heads = 4, kv_heads = 2, ffn = 48, vocab = 64, family = "llama", seed = 3}
  local mesh = comm.mesh{dp = -1}
  local trainer = zt.trainer(zt.program(model, {mesh = mesh}):apply(require("zt.zero").shard{axis = mesh.dp, stage = 0}),
    {optimizer = require("zt.optim").adamw{lr = 0.01}})
  ckpt.save(run, {trainer = trainer}, {step = 0, async = false})
  local name = "blocks.1.attention.qkv.weight"
  local module = "base_model.model.model.layers.1.self_attn.k_proj.lora_"
  local folder = temporary()
  if zt.world.rank == 0 then
    zt.mkdir_p(folder)
    zt.write_file(folder .. CONFIG, zt.json.encode{peft_type = "LORA", r = 1, lora_alpha = 2})
    local list = {{name = module .. "A.weight", shape = {1, 32}, dtype = "bfloat16"},
                  {name = module .. "B.weight", shape = {16, 1}, dtype = "bfloat16"}}
    ckpt.write_safetensors(folder .. TENSORS, list, 5e9, function(of)
      return of:find "A.weight" and zt.ones({1, 32}):to "bfloat16" or zt.ones({16, 1}):to "bfloat16"
    end)
  end
  mesh:world():gather_values{0} -- the files are there
  local expected = trainer:parameter(name):clone()
  expected:narrow(0, 32, 16):add_(2)
  for _, path in ipairs{run, run .. "/step_00000000"} do
    local engine = infer.engine{model = path, adapter = folder, max_context = 32, mesh = mesh, data = mesh.dp}
    lu.assertTrue(zt.equal(engine.trainer:parameter(name), expected))
    local other = "blocks.0.attention.qkv.weight"
    lu.assertTrue(zt.equal(engine.trainer:parameter(other), trainer:parameter(other)))
    lu.assertEquals(#engine:generate({prompt = {1, 2}, max_tokens = 3, ignore_eos = true})[1].tokens, 3)
  end
end

function TestAdapters:test_an_adapter_without_effect_is_a_warning()
  if zt.world.size > 1 then return end
  local name = "base_model.model.model.layers.1.self_attn.%s_proj.lora_B.weight"
  local zeros, tensors = {}, adapters.tensors "qwen2_biased"
  for _, each in ipairs{"q", "k", "v", "o"} do zeros[name:format(each)] = tensors[name:format(each)] * 0 end
  local folder = adapters.changed("qwen2_biased", {}, zeros)
  local engine = adapters.engine("qwen2_biased", {adapter = folder})
  lu.assertTrue(have_equal_parameters(engine, infer.engine{model = FOLDER .. "qwen2"}))
  local function output_of(path)
    local script = os.tmpname()
    zt.write_file(script, ('require("zt.infer").engine{model = "%s", adapter = "%s"}'):format(FOLDER .. "qwen2", path))
    local text, status = command(script)
    lu.assertEquals(status, 0, text)
    return text
  end
  lu.assertStrContains(output_of(folder), "each product B A is zero, so the adapter changes nothing")
  lu.assertEquals(output_of(FOLDER .. "qwen2_biased"), "")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestAdapters", TestAdapters}})
