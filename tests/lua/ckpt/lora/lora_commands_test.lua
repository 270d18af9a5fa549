-- Tests ztoolkit ckpt export and import with adapters.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, infer, moe, optim = require "zt.ckpt", require "zt.infer", require "zt.moe", require "zt.optim"
local adapters = require "infer.adapter_cases"
local cases = require "ckpt.lora.lora_cases"
local command = require "ckpt.own_command"
local safetensors = require "support.safetensors"
local temporary = require "support.temporary"

local FOLDER = cases.FOLDER

local function done(...)
  local output, status = command(...)
  lu.assertEquals(status, 0, output)
  return output
end

local function refused(message, ...)
  local output, status = command(...)
  lu.assertNotEquals(status, 0)
  lu.assertStrContains((output:gsub("%s+", " ")), message)
end

-- Returns the folder of a run with a trainer, and the trainer.
local function run_of(base, lora, options)
  local trainer, run = cases.trainer(base, lora, options), temporary()
  cases.fill(trainer)
  ckpt.save(run, {trainer = trainer}, {step = 1, async = false})
  return run, trainer
end

local function logits_of(folder, more)
  return cases.logits(infer.engine(cases.with({model = folder, dtype = "fp32"}, more)).trainer)
end

local TestExport = {}

local LORA = {
  llama = {rank = 2, alpha = 3, targets = {"q", "v", "gate", "down", "head"}, scale = "alpha/sqrt(r)"},
  qwen2 = {rank = 2, targets = {"qkv", "up"}, layers = {1}, ranks = {["blocks.1.up"] = 3}},
  gpt2 = {rank = 2, targets = {"k", "out", "up"}},
  mixtral = {rank = 2, targets = {"q", "out"}},
}

function TestExport:test_merged()
  for base, lora in pairs(LORA) do
    local run, trainer = run_of(base, lora)
    local out = temporary()
    done("export", run, out, "--merge", "--huggingface")
    lu.assertNil(zt.json.decode(zt.fs.read(out .. "/config.json")).lora)
    lu.assertTrue(cases.distance(logits_of(out), cases.logits(trainer)) <= 1e-5, base)
    done("export", run, out .. "/own.safetensors", "--merge")
    ckpt.merge_lora(trainer)
    local own = safetensors.read(out .. "/own.safetensors")
    for _, name in ipairs(trainer:parameters()) do
      local is_adapter = name:find "lora%." ~= nil
      lu.assertEquals(own[name] == nil, is_adapter, name)
      lu.assertTrue(is_adapter or zt.equal(own[name], trainer:parameter(name)), name)
    end
    lu.assertTrue(zt.equal(logits_of(out), cases.logits(trainer)), base)
  end
end

function TestExport:test_adapter()
  for base, lora in pairs(LORA) do
    local run, trainer = run_of(base, lora)
    local by_command, by_call = temporary(), temporary()
    done("export", run, by_command, "--adapter", "--base-model", "some/" .. base)
    ckpt.save_adapter(trainer, by_call, {base_model = "some/" .. base})
    for _, name in ipairs(zt.fs.list(by_call)) do
      lu.assertTrue(zt.fs.read(by_command .. "/" .. name) == zt.fs.read(by_call .. "/" .. name), name)
    end
    refused("has an adapter already", "export", run, by_command, "--adapter")
    done("export", run, by_command, "--adapter", "--overwrite")
  end
end

-- What was trained beside the adapters is in the checkpoint's record.
function TestExport:test_whole_modules_and_options_of_a_file()
  local run, trainer = run_of("llama", {rank = 2}, {unfreeze = {"^head"}, precision = "bf16"})
  local by_command, by_call, file = temporary(), temporary(), temporary() .. ".json"
  zt.write_file(file, zt.json.encode(trainer.model.options))
  done("export", run, by_command, "--adapter", "--model", file)
  ckpt.save_adapter(trainer, by_call)
  for _, name in ipairs(zt.fs.list(by_call)) do
    lu.assertTrue(zt.fs.read(by_command .. "/" .. name) == zt.fs.read(by_call .. "/" .. name), name)
  end
  local config = zt.json.decode(zt.fs.read(by_call .. adapters.CONFIG))
  lu.assertEquals(config.modules_to_save, {"lm_head", "model.norm"})
end

function TestExport:test_refused()
  local run, out = run_of("llama", LORA.llama), temporary()
  local advice = "has adapters (lora), which plain weights have not: give --merge to add them to the weights, or --adapter"
  refused(advice, "export", run, out)
  refused(advice, "export", run, out, "--huggingface")
  refused("--adapter writes no weights, so --merge has no effect", "export", run, out, "--adapter", "--merge")
  refused("--base-model is a field of adapter_config.json", "export", run, out, "--merge", "--base-model", "x")
  local tied = run_of("qwen2", {rank = 2, targets = {"head"}})
  refused("is tied to the embedding, and its adapter is the head's alone", "export", tied, out, "--merge")
  local plain = run_of("llama")
  refused("has no adapters by the options of its model, so there is nothing to merge", "export", plain, out, "--merge")
  refused("has no adapters by the options of its model (lora): leave --adapter out", "export", plain, out, "--adapter")
  local file = temporary() .. ".json"
  zt.write_file(file, zt.json.encode(cases.with(ckpt.pretrained(run).options, {lora = {rank = 3}})))
  refused("are not those of the checkpoint's model", "export", run, out, "--adapter", "--model", file)
  lu.assertFalse(zt.exists(out))
end

local TestImport = {}

function TestImport:test_adapters_by_peft()
  for name, base in pairs(cases.ADAPTERS) do
    local run, out = temporary(), temporary()
    done("import", FOLDER .. name, run, "--adapter", "--base", FOLDER .. base)
    local merged = adapters.engine(name).trainer
    lu.assertTrue(cases.distance(logits_of(run), cases.logits(merged)) <= 1e-5, name)
    -- Its training goes on.
    local options = zt.json.decode(zt.fs.read(run .. "/model.json"))
    lu.assertEquals(options.lora, ckpt.lora_options(FOLDER .. name, ckpt.pretrained(FOLDER .. base).options))
    local trainer = zt.trainer(zt.program(moe.gpt(options)), {optimizer = optim.adamw{lr = 0.01}})
    ckpt.load(run, {model = trainer})
    local batch = {tokens = cases.TOKENS, labels = cases.TOKENS}
    local loss = trainer:step(batch).loss
    lu.assertTrue(trainer:step(batch).loss < loss)
    if name ~= "qwen2_tied" then
      done("export", run, out, "--adapter")
      local mine, theirs = safetensors.read(out .. adapters.TENSORS), safetensors.read(FOLDER .. name .. adapters.TENSORS)
      for tensor, values in pairs(theirs) do lu.assertTrue(zt.equal(mine[tensor], values), name .. " " .. tensor) end
    end
  end
end

function TestImport:test_a_run_is_the_base()
  local run, first = run_of("gpt2", {rank = 2, targets = {"q", "up"}})
  local adapter, plain, again = temporary(), temporary(), temporary()
  ckpt.save_adapter(first, adapter)
  refused("has adapters already: merge them first", "import", adapter, again, "--adapter", "--base", run)
  local base = cases.trainer("gpt2")
  ckpt.save(plain, {trainer = base}, {step = 0, async = false})
  done("import", adapter, again, "--adapter", "--base", plain)
  lu.assertTrue(cases.distance(logits_of(again), cases.logits(first)) <= 1e-5)
  local name = "blocks.0.norm1.weight"
  base:set_parameter(name, base:parameter(name) + 1)
  ckpt.save(plain, {trainer = base}, {step = 1, async = false})
  refused("is an adapter of another base than '" .. plain, "import", adapter, temporary(), "--adapter", "--base", plain)
  lu.assertStrContains(done("import", adapter, temporary(), "--adapter", "--base", FOLDER .. "gpt2"),
    "the base is not compared with that of the training: its parameters are bfloat16, and were float32")
end

-- A trainer, a checkpoint and a folder of Hugging Face's have the same hash.
function TestImport:test_the_base_is_known_again()
  local trainer, adapter = cases.trainer("llama", {rank = 2}, {precision = "bf16"}), temporary()
  cases.fill(trainer)
  ckpt.save_adapter(trainer, adapter)
  local output = done("import", adapter, temporary(), "--adapter", "--base", FOLDER .. "llama")
  lu.assertNil(output:find "not compared")
  local file, run = adapter .. "/ztoolkit_adapter.json", temporary()
  zt.write_file(file, (zt.fs.read(file):gsub('"hash": "%x%x', '"hash": "zz')))
  refused("is an adapter of another base than 'tests/golden/adapters/llama'", "import", adapter, run, "--adapter", "--base",
    FOLDER .. "llama")
  zt.write_file(file, "{}")
  refused("is not of the format 'ztoolkit adapter 1': save the adapter again", "import", adapter, run, "--adapter", "--base",
    FOLDER .. "llama")
  lu.assertFalse(zt.exists(run))
end

function TestImport:test_refused()
  local out = temporary()
  local adapter, base = FOLDER .. "llama_all", FOLDER .. "llama"
  refused("--adapter needs --base: the model", "import", adapter, out, "--adapter")
  refused("--base belongs to an adapter: give --adapter", "import", adapter, out, "--base", base)
  refused("--map is for tensors without config.json", "import", adapter, out, "--adapter", "--base", base, "--map", "x.json")
  refused("holds a LoRA adapter, which is no model by itself: give --adapter --base BASE", "import", adapter, out)
  refused("changes modules that the model lacks", "import", adapter, out, "--adapter", "--base", FOLDER .. "gpt2")
  refused("are packed, as nf4, and a checkpoint has plain numbers only", "import", adapter, out, "--adapter", "--base",
    "tests/golden/bitsandbytes/llama")
  refused("a matrix of an expert, and experts have none here", "import", FOLDER .. "mixtral_experts", out, "--adapter", "--base",
    FOLDER .. "mixtral")
  lu.assertFalse(zt.exists(out))
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestExport", TestExport}, {"TestImport", TestImport}})
