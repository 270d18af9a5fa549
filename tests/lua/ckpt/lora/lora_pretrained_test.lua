-- Tests ckpt.pretrained: folders of all kinds as the base of a training with adapters, and engines of what was trained.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, infer, moe = require "zt.ckpt", require "zt.infer", require "zt.moe"
local optim = require "zt.optim"
local cases = require "ckpt.lora.lora_cases"
local temporary = require "support.temporary"

local FOLDER, refused = cases.FOLDER, cases.refused
local LORA = {rank = 2, targets = {"q", "v", "down"}}

local function trainer_of(options, precision, pack)
  local model = moe.gpt(options)
  if pack then model:pack(pack) end
  return zt.trainer(zt.program(model, {precision = precision}), {optimizer = optim.adamw{lr = 0.01}})
end

local function batch() return {tokens = cases.TOKENS, labels = cases.TOKENS} end

-- Trains a base with adapters. Returns the trainer.
local function trained(base, lora)
  local trainer = cases.trainer(base, lora)
  for _ = 1, 3 do trainer:step(batch()) end
  return trainer
end

local TestFolders = {}

function TestFolders:test_of_hugging_face()
  local base = ckpt.pretrained(FOLDER .. "llama")
  lu.assertEquals({base.dtype, base.stop_tokens, base.options.layers}, {"bf16", {1}, 2})
  lu.assertNil(base.weights)
  lu.assertNil(base.tokenizer)
  local plain = trainer_of(base.options, "bf16")
  base:load(plain)
  base.options.lora = LORA
  local adapted = trainer_of(base.options, "bf16")
  cases.fill(adapted)
  local b = adapted:parameter "blocks.0.attention.qkv.lora.q.b"
  base:load(adapted)
  lu.assertTrue(zt.equal(adapted:parameter "blocks.0.attention.qkv.lora.q.b", b))
  for _, name in ipairs(plain:parameters()) do lu.assertTrue(zt.equal(adapted:parameter(name), plain:parameter(name)), name) end
  refused("a Pretrained has no member 'seq'", function() return base.seq end)
end

function TestFolders:test_of_a_run()
  local run, before = temporary(), cases.trainer("llama")
  ckpt.save(run, {trainer = before}, {step = 2, async = false})
  local base = ckpt.pretrained(run)
  base.options.lora = LORA
  local trainer = trainer_of(base.options, base.dtype)
  base:load(trainer)
  for _, name in ipairs(before:parameters()) do lu.assertTrue(zt.equal(trainer:parameter(name), before:parameter(name)), name) end
  refused("pretrained:load: the trainer's model has parameters that '" .. run .. "' lacks, 6: blocks.2.", base.load, base,
    trainer_of(cases.with(base.options, {layers = 3})))
  refused("the trainer's model lacks parameters that '" .. run .. "' has, ", base.load, base,
    trainer_of(cases.with(base.options, {layers = 1})))
  refused("'load' is a method", base.load, trainer)
end

-- A run of a model with adapters is a base, and a model of an engine.
function TestFolders:test_of_a_run_with_adapters()
  for _, name in ipairs{"llama", "qwen2", "gpt2", "mixtral"} do
    local lora = name == "mixtral" and {rank = 2} or cases.with(LORA, {targets = {"q", "v", "out", "head"}, layers = {1}})
    local trainer, run = trained(name, lora), temporary()
    ckpt.save(run, {trainer = trainer}, {step = 3, async = false})
    local engine = infer.engine{model = run, cache = {memory = 2 ^ 22}}
    lu.assertTrue(zt.equal(cases.logits(engine.trainer), cases.logits(trainer)), name)
    lu.assertEquals(#engine:generate({prompt = {1, 2}, max_tokens = 3, ignore_eos = true})[1].tokens, 3)
    engine:update(trainer)
    local base = ckpt.pretrained(run)
    local second = trainer_of(base.options, base.dtype)
    base:load(second)
    cases.check_equal(trainer, second)
    base.options.lora = nil
    refused("the trainer's model lacks parameters that '" .. run .. "' has, ", base.load, base, trainer_of(base.options))
  end
end

-- An engine may have an adapter added to a model that has others.
function TestFolders:test_an_engine_adds_a_second_adapter()
  local trainer, run = trained("llama", {rank = 2, targets = {"q"}}), temporary()
  ckpt.save(run, {trainer = trainer}, {step = 3, async = false})
  local both = infer.engine{model = run, adapter = FOLDER .. "llama_all"}.trainer
  local other = infer.engine{model = FOLDER .. "llama", adapter = FOLDER .. "llama_all", dtype = "fp32"}.trainer
  for _, name in ipairs(other:parameters()) do lu.assertTrue(zt.equal(both:parameter(name), other:parameter(name)), name) end
  local a = "blocks.0.attention.qkv.lora.q.a"
  lu.assertTrue(zt.equal(both:parameter(a), trainer:parameter(a)))
end

local TestPacked = {}

-- Returns a packed folder of a base.
local function packed_folder(name, weights)
  local folder = temporary()
  require("zt.infer.packed_folder").write(require("zt.ckpt.pretrained.folder").open(FOLDER .. name), folder, weights)
  return folder
end

-- QLoRA: the base stays packed, and its adapters are trained and saved.
function TestPacked:test_packed_folders()
  for name, keep in pairs{llama = {"down"}, qwen2 = {"down", "head"}, gpt2 = {"head"}} do
    local base = ckpt.pretrained(packed_folder(name, {format = "int4", group = 32, keep = keep}))
    lu.assertEquals(base.weights.format, "int4")
    base.options.lora = {rank = 2}
    local trainer = trainer_of(base.options, base.dtype, base.weights)
    base:load(trainer)
    local loss = trainer:evaluate(batch()).loss
    for _ = 1, 5 do trainer:step(batch()) end
    lu.assertTrue(trainer:evaluate(batch()).loss < loss)
    local folder, second = temporary(), trainer_of(base.options, base.dtype, base.weights)
    ckpt.save_adapter(trainer, folder)
    lu.assertStrContains(zt.json.decode(zt.fs.read(folder .. "/ztoolkit_adapter.json")).base.dtype, "int4")
    base:load(second)
    ckpt.load_adapter(second, folder)
    lu.assertTrue(zt.equal(cases.logits(trainer), cases.logits(second)), name)
  end
end

-- Plain weights are packed as they are read, and those that bitsandbytes has packed stay so.
function TestPacked:test_packed_while_reading()
  local weights = {format = "int4", group = 32, keep = {"down", "head"}}
  local plain, run = cases.trainer("llama"), temporary()
  ckpt.save(run, {trainer = plain}, {step = 0, async = false})
  local expected
  for _, path in ipairs{FOLDER .. "llama", run} do
    local base = ckpt.pretrained(path)
    base.options.lora = {rank = 2}
    local trainer = trainer_of(base.options, "fp32", weights)
    base:load(trainer)
    expected = expected or cases.logits(trainer)
    lu.assertTrue(zt.equal(cases.logits(trainer), expected))
  end
  local base = ckpt.pretrained "tests/golden/bitsandbytes/llama"
  base.options.lora = {rank = 2}
  local trainer = trainer_of(base.options, "fp32", base.weights)
  base:load(trainer)
  local engine = infer.engine{model = "tests/golden/bitsandbytes/llama", dtype = "fp32"}
  lu.assertTrue(zt.equal(cases.logits(trainer), cases.logits(engine.trainer)))
end

local TestMistakes = {}

function TestMistakes:test_folders_without_a_model()
  refused("holds a LoRA adapter: give the folder of its model", ckpt.pretrained, FOLDER .. "llama_all")
  refused("there is no folder '/none': give the folder of a model", ckpt.pretrained, "/none")
  refused("ckpt.pretrained: the folder of a model must be a string", ckpt.pretrained, 3)
  refused("pretrained:load: the first argument must be a Trainer", function() ckpt.pretrained(FOLDER .. "llama"):load(3) end)
end

function TestMistakes:test_the_tokenizer_is_that_of_the_folder()
  local folder = temporary()
  zt.mkdir_p(folder)
  for _, file in ipairs{"config.json", "model.safetensors"} do
    zt.write_file(folder .. "/" .. file, zt.fs.read(FOLDER .. "llama/" .. file))
  end
  zt.write_file(folder .. "/chat_template.jinja", "{{ messages[0].content }}")
  lu.assertEquals(ckpt.pretrained(folder).chat.source, "{{ messages[0].content }}")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestFolders", TestFolders}, {"TestPacked", TestPacked},
  {"TestMistakes", TestMistakes}})
