-- Tests ckpt.lora_options, load_adapter, save_adapter and merge_lora with adapters that peft has saved.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, infer, moe = require "zt.ckpt", require "zt.infer", require "zt.moe"
local adapters = require "infer.adapter_cases"
local cases = require "ckpt.lora.lora_cases"
local command = require "support.command" "run"
local safetensors = require "support.safetensors"
local temporary = require "support.temporary"

local FOLDER = cases.FOLDER

local TestOptions = {}

local EXPECTED = {
  llama_patterns = {
    rank = 4, alpha = 6, scale = "alpha/sqrt(r)", targets = {"q", "v", "gate", "up_proj", "down"},
    ranks = {["blocks.0.q"] = 2, ["blocks.1.q"] = 2, ["blocks.0.gate"] = 3, ["blocks.1.up_proj"] = 5, ["blocks.1.down"] = 5},
    alphas = {["blocks.0.q"] = 3, ["blocks.1.q"] = 9, ["blocks.0.up_proj"] = 12}},
  llama_all = {
    rank = 2, alpha = 4, scale = "alpha/r", dropout = 0.1, targets = {"q", "k", "v", "out", "gate", "up_proj", "down"}},
  llama_saved = {rank = 2, alpha = 4, scale = "alpha/r", targets = {"out"}},
  qwen2_biased = {rank = 4, alpha = 8, scale = "alpha/r", targets = {"q", "k", "v", "out"}, layers = {1}},
  qwen2_tied = {rank = 2, alpha = 8, scale = "alpha/r", targets = {"q"}},
  gpt2_conv1d = {rank = 4, alpha = 5, scale = "alpha/r", targets = {"qkv", "out", "up", "down"}},
  mixtral_attention = {rank = 4, alpha = 8, scale = "alpha/r", targets = {"q", "k", "v", "out"}},
}

function TestOptions:test_of_adapters_by_peft()
  for name, base in pairs(cases.ADAPTERS) do
    lu.assertEquals(ckpt.lora_options(FOLDER .. name, ckpt.pretrained(FOLDER .. base).options), EXPECTED[name], name)
  end
end

local TestPeft = {}

-- Returns a trainer with an adapter that peft has saved, and the names of what was trained as a whole.
local function loaded(name, options)
  local base = cases.ADAPTERS[name]
  local trainer = cases.trainer(base, ckpt.lora_options(FOLDER .. name, ckpt.pretrained(FOLDER .. base).options), options)
  return trainer, ckpt.load_adapter(trainer, FOLDER .. name)
end

function TestPeft:test_logits_are_those_of_merged_weights()
  for name in pairs(cases.ADAPTERS) do
    local merged = adapters.engine(name)
    lu.assertTrue(cases.distance(cases.logits(loaded(name)), cases.logits(merged.trainer)) <= 1e-5, name)
  end
end

function TestPeft:test_merge_gives_the_weights_of_engines()
  for name in pairs(cases.ADAPTERS) do
    local trainer = loaded(name)
    local before = cases.logits(trainer)
    ckpt.merge_lora(trainer)
    lu.assertTrue(cases.distance(cases.logits(trainer), before) <= 1e-5, name)
    local engine = adapters.engine(name).trainer
    for _, parameter in ipairs(engine:parameters()) do
      lu.assertTrue(zt.equal(trainer:parameter(parameter), engine:parameter(parameter)), name .. " " .. parameter)
    end
    for _, parameter in ipairs(trainer:parameters()) do
      if parameter:find "%.b$" then lu.assertEquals(trainer:parameter(parameter):count_nonzero():item(), 0) end
    end
  end
end

function TestPeft:test_whole_tensors()
  local trained = {qwen2_tied = {"embedding.weight"},
                   llama_saved = {"blocks.0.norm1.weight", "blocks.0.norm2.weight", "blocks.1.norm1.weight",
                                  "blocks.1.norm2.weight", "head.norm.weight", "head.weight"}}
  for name in pairs(cases.ADAPTERS) do
    local _, names = loaded(name)
    lu.assertEquals(names, trained[name] or {}, name)
  end
end

-- What is saved again loads into the same bits.
function TestPeft:test_saved_and_loaded_again()
  for name, base in pairs(cases.ADAPTERS) do
    if name ~= "qwen2_tied" then -- whose embedding PEFT would part from its head
      local _, trained = loaded(name)
      local first = loaded(name, {unfreeze = trained})
      local folder, lora = temporary(), first.model.options.lora
      ckpt.save_adapter(first, folder, {base_model = base})
      local opened = ckpt.pretrained(FOLDER .. base)
      lu.assertEquals(ckpt.lora_options(folder, opened.options), lora, name)
      local second = cases.trainer(base, lora)
      lu.assertEquals(ckpt.load_adapter(second, folder), trained, name)
      cases.check_equal(first, second)
      lu.assertTrue(zt.equal(cases.logits(first), cases.logits(second)), name)
    end
  end
end

-- peft's own files of the same adapter have the same tensors and the same keys. Modules may be named otherwise.
function TestPeft:test_files_are_those_of_peft()
  local targets = {llama_all = {"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"},
                   gpt2_conv1d = {"c_attn", "c_fc", "c_proj"},
                   qwen2_biased = {"k_proj", "o_proj", "q_proj", "v_proj"}}
  for name, of_targets in pairs(targets) do
    local folder = temporary()
    ckpt.save_adapter(loaded(name), folder, {base_model = cases.ADAPTERS[name]})
    local mine, theirs = safetensors.read(folder .. adapters.TENSORS), safetensors.read(FOLDER .. name .. adapters.TENSORS)
    for tensor, values in pairs(theirs) do
      lu.assertTrue(zt.equal(mine[tensor], values), tensor)
      mine[tensor] = nil
    end
    lu.assertNil(next(mine))
    local config = zt.json.decode(zt.fs.read(folder .. adapters.CONFIG))
    local expected = adapters.config(name)
    expected.target_modules, expected.auto_mapping, expected.task_type = of_targets, nil, "CAUSAL_LM"
    expected.init_lora_weights = true
    if name == "qwen2_biased" then expected.layers_pattern = "layers" end
    lu.assertEquals(config, expected, name)
  end
end

local TestFused = {}

-- Saves a trainer's adapter, and checks that a second trainer and an engine compute the same with it.
local function check_round_trip(base, lora, bound)
  local trainer = cases.trainer(base, lora)
  cases.fill(trainer)
  local folder = temporary()
  ckpt.save_adapter(trainer, folder)
  local second = cases.trainer(base, lora)
  ckpt.load_adapter(second, folder)
  local logits, again = cases.logits(trainer), cases.logits(second)
  if bound then lu.assertTrue(cases.distance(logits, again) <= bound) else lu.assertTrue(zt.equal(logits, again)) end
  local engine = infer.engine{model = FOLDER .. base, adapter = folder, dtype = "fp32"}
  lu.assertTrue(cases.distance(logits, cases.logits(engine.trainer)) <= 1e-5)
  return safetensors.read(folder .. adapters.TENSORS), zt.json.decode(zt.fs.read(folder .. adapters.CONFIG)), trainer
end

-- Modules of one fused matrix get the same A, and their rows of B.
function TestFused:test_all_rows_of_several_modules()
  local tensors, config, trainer = check_round_trip("llama", {rank = 3, alpha = 5, targets = {"qkv", "up"}})
  local prefix = "base_model.model.model.layers.1."
  local a, b = trainer:parameter "blocks.1.attention.qkv.lora.qkv.a", trainer:parameter "blocks.1.attention.qkv.lora.qkv.b"
  local first = 0
  for _, row in ipairs{{"q", 32}, {"k", 16}, {"v", 16}} do
    lu.assertTrue(zt.equal(tensors[prefix .. ("self_attn.%s_proj.lora_A.weight"):format(row[1])], a))
    lu.assertTrue(zt.equal(tensors[prefix .. ("self_attn.%s_proj.lora_B.weight"):format(row[1])], b:narrow(0, first, row[2])))
    first = first + row[2]
  end
  lu.assertEquals({config.r, config.lora_alpha}, {3, 5})
  lu.assertEquals(config.target_modules, {"gate_proj", "k_proj", "q_proj", "up_proj", "v_proj"})
end

-- Parts of one module are one adapter: A's one below the other, B's as blocks.
function TestFused:test_parts_of_one_module()
  for _, scale in ipairs{"alpha/r", "alpha/sqrt(r)"} do
    local tensors, config, trainer = check_round_trip("gpt2", {rank = 2, alpha = 8, targets = {"q", "v"}, scale = scale})
    lu.assertEquals(config.r, 4)
    lu.assertAlmostEquals(config.lora_alpha, scale == "alpha/r" and 16 or 8 * math.sqrt(2), 1e-12)
    lu.assertEquals(config.target_modules, {"c_attn"})
    local b = tensors["base_model.model.transformer.h.0.attn.c_attn.lora_B.weight"]
    lu.assertEquals(b:size(), {96, 4})
    lu.assertTrue(zt.equal(b:narrow(0, 0, 32):narrow(1, 0, 2), trainer:parameter "blocks.0.attention.qkv.lora.q.b"))
    lu.assertTrue(zt.equal(b:narrow(0, 64, 32):narrow(1, 2, 2), trainer:parameter "blocks.0.attention.qkv.lora.v.b"))
    local nonzero = 0
    for _, part in ipairs{"q", "v"} do
      nonzero = nonzero + trainer:parameter("blocks.0.attention.qkv.lora." .. part .. ".b"):count_nonzero():item()
    end
    lu.assertEquals(b:count_nonzero():item(), nonzero)
  end
end

-- If their scales differ, the ratio is in B.
function TestFused:test_parts_of_different_scales()
  local tensors, config = check_round_trip("gpt2", {rank = 2, alpha = 6, targets = {"q", "k", "v"}, ranks = {["blocks.1.k"] = 3},
                                                    alphas = {v = 2}}, 1e-5)
  lu.assertEquals({config.r, config.lora_alpha}, {6, 18})
  lu.assertEquals(config.rank_pattern, {["transformer.h.1.attn.c_attn"] = 7})
  lu.assertEquals(config.alpha_pattern, {["transformer.h.1.attn.c_attn"] = 21})
  lu.assertEquals(tensors["base_model.model.transformer.h.1.attn.c_attn.lora_A.weight"]:size(), {7, 32})
end

-- The head of a tied model has an adapter of its own; the matrix stays the embedding's.
function TestFused:test_head()
  for _, base in ipairs{"qwen2", "llama"} do
    local lora = {rank = 2, targets = {"q", "head"}, layers = {1}, alphas = {head = 3}}
    local trainer = cases.trainer(base, lora)
    cases.fill(trainer)
    local folder = temporary()
    ckpt.save_adapter(trainer, folder)
    local config = zt.json.decode(zt.fs.read(folder .. adapters.CONFIG))
    lu.assertEquals(config.target_modules, {"lm_head", "q_proj"})
    lu.assertEquals({config.layers_to_transform, config.layers_pattern}, {{1}, "layers"})
    lu.assertEquals(ckpt.lora_options(folder, ckpt.pretrained(FOLDER .. base).options), {
      rank = 2, alpha = 3, scale = "alpha/r", targets = {"q", "head"}, layers = {1}, alphas = {["blocks.1.q"] = 32}})
    local second = cases.trainer(base, lora)
    ckpt.load_adapter(second, folder)
    lu.assertTrue(zt.equal(cases.logits(trainer), cases.logits(second)))
  end
end

-- PEFT saves the base's head beside an adapter of it.
function TestFused:test_head_of_the_base_beside_its_adapter()
  for base, is_tied in pairs{qwen2 = true, llama = false} do
    local lora = {rank = 2, targets = {"head"}}
    local trainer, folder = cases.trainer(base, lora), temporary()
    cases.fill(trainer)
    ckpt.save_adapter(trainer, folder)
    local tensors = safetensors.read(folder .. adapters.TENSORS)
    tensors["base_model.model.lm_head.base_layer.weight"] = zt.ones{64, 32}
    local other = adapters.write(zt.fs.read(folder .. adapters.CONFIG), tensors)
    local second = cases.trainer(base, lora)
    lu.assertEquals(ckpt.load_adapter(second, other), {})
    if is_tied then cases.check_equal(trainer, second)
    else lu.assertTrue(zt.equal(second:parameter "head.weight", zt.ones{64, 32})) end
  end
end

-- Names that are targets must not be found in experts.
function TestFused:test_targets_beside_experts()
  local options = {layers = 2, hidden = 32, heads = 4, kv_heads = 2, head_dim = 8, ffn = 48, vocab = 64, seq = 64,
                   family = "llama", qk_norm = true, tied = false, lora = {rank = 2, targets = {"q", "gate", "down"}},
                   moe = {experts = 4, ffn = 16, top_k = 2, blocks = {1}, router = {normalise = "selected"}}}
  local trainer, folder = zt.trainer(zt.program(moe.gpt(options))), temporary()
  ckpt.save_adapter(trainer, folder)
  local config = zt.json.decode(zt.fs.read(folder .. adapters.CONFIG))
  lu.assertEquals(config.target_modules, {"mlp.down_proj", "mlp.gate_proj", "q_proj"})
  lu.assertNil(config.layers_to_transform)
  options.lora = nil
  lu.assertEquals(ckpt.lora_options(folder, options), {rank = 2, alpha = 32, scale = "alpha/r", targets = {"q", "gate", "down"}})
end

local TestMerge = {}

-- The sums of a model in bf16 are those of fp64, rounded. The scale is that of the defaults of nn.gpt.
function TestMerge:test_sums_are_rounded_once()
  local trainer = cases.trainer("llama", {targets = {"q", "v"}}, {precision = "bf16"})
  cases.fill(trainer)
  local name = "blocks.0.attention.qkv.weight"
  local exact = trainer:parameter(name):to "float64"
  for _, row in ipairs{{"q", 0, 32}, {"v", 48, 16}} do
    local function of(half) return trainer:master(("blocks.0.attention.qkv.lora.%s.%s"):format(row[1], half)):to "float64" end
    exact:narrow(0, row[2], row[3]):add_(of "b":matmul(of "a") * (32 / 16))
  end
  ckpt.merge_lora(trainer)
  local merged = trainer:parameter(name):to "float64"
  lu.assertTrue(((merged - exact):abs() - exact:abs() * 2 ^ -8):max():item() <= 1e-9)
  local untouched = "blocks.0.attention.out.weight"
  lu.assertTrue(zt.equal(trainer:parameter(untouched), cases.trainer("llama", {}, {precision = "bf16"}):parameter(untouched)))
end

function TestMerge:test_in_fp64()
  local trainer = cases.trainer("gpt2", {rank = 3, scale = "alpha/sqrt(r)", targets = {"k", "out", "up", "down"}},
    {precision = "fp64"})
  cases.fill(trainer)
  local before = cases.logits(trainer)
  ckpt.merge_lora(trainer)
  lu.assertTrue(cases.distance(before, cases.logits(trainer)) <= 1e-12)
  ckpt.merge_lora(trainer) -- B is 0: nothing changes
  lu.assertTrue(cases.distance(before, cases.logits(trainer)) <= 1e-12)
end

local TestBase = {}

function TestBase:test_hash_and_overwriting()
  local trainer, folder = cases.trainer("qwen2", {rank = 2}), temporary()
  cases.fill(trainer)
  ckpt.save_adapter(trainer, folder)
  cases.refused("has an adapter already (adapter_config.json): give another folder, or overwrite", ckpt.save_adapter, trainer,
    folder)
  local base = zt.json.decode(zt.fs.read(folder .. "/ztoolkit_adapter.json")).base
  lu.assertEquals({#base.hash, base.dtype}, {16, "float32"})
  local other = cases.trainer("qwen2", {rank = 2})
  local name = "blocks.1.norm1.weight"
  other:set_parameter(name, other:parameter(name) * 2)
  local before = other:parameter "blocks.0.attention.qkv.lora.q.a"
  cases.refused("is an adapter of another base: the hash of its parameters is " .. base.hash, ckpt.load_adapter, other, folder)
  lu.assertTrue(zt.equal(other:parameter "blocks.0.attention.qkv.lora.q.a", before))
  ckpt.load_adapter(cases.trainer("qwen2", {rank = 2}), folder)
  ckpt.save_adapter(trainer, folder, {overwrite = true, hash = false})
  lu.assertFalse(zt.exists(folder .. "/ztoolkit_adapter.json"))
  ckpt.load_adapter(other, folder)
  lu.assertEquals(zt.fs.list(folder), {"adapter_config.json", "adapter_model.safetensors"})
end

-- What the functions say goes to the console of another process.
function TestBase:test_lines()
  local trainer, folder = cases.trainer("qwen2", {rank = 2}), temporary()
  ckpt.save_adapter(trainer, folder)
  local script = os.tmpname()
  zt.write_file(script, ([[
    package.path = "tests/lua/?.lua;" .. package.path
    local cases = require "ckpt.lora.lora_cases"
    require("zt.ckpt").load_adapter(cases.trainer("qwen2", {rank = 2}, {precision = "bf16"}), "%s")]]):format(folder))
  local output, status = command(script)
  lu.assertEquals(status, 0, output)
  lu.assertStrContains(output, "the base is not compared with that of the training: its parameters are bfloat16 here, and were "
    .. "float32")
  lu.assertStrContains(output, "each product B A is zero, so the matrices change nothing")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestOptions", TestOptions}, {"TestPeft", TestPeft}, {"TestFused", TestFused},
  {"TestMerge", TestMerge}, {"TestBase", TestBase}})
