-- Tests the commands for Hugging Face models: import, load, export.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt = require "zt.ckpt"
local moe = require "zt.moe"
local nn = require "zt.nn"
local optim = require "zt.optim"
local huggingface = require "zt.ckpt.huggingface"
local command = require "ckpt.own_command"
local models = require "support.huggingface_models"
local safetensors = require "support.safetensors"
local temporary = require "support.temporary"

local TestCommands = {}

for _, name in ipairs(models.NAMES) do
  TestCommands["test_import_and_export_of_" .. name] = function()
    local folder = temporary()
    local text, status = command("import", models.FOLDER .. name, folder)
    lu.assertEquals(status, 0, text)
    local options = models.read_json(folder .. "/model.json")
    local expected = models.expected_of(name)
    for _, row in ipairs(models.BOUNDS) do
      local precision, bound = unpack(row)
      local trainer = zt.trainer(zt.program(moe.gpt(options), {precision = precision}), {optimizer = optim.sgd{lr = 0.5}})
      ckpt.load(folder, {model = trainer})
      local off = models.distance(trainer:infer{tokens = expected.tokens}.logits, expected["logits_" .. precision])
      lu.assertTrue(off <= bound, ("%s in %s: %g off"):format(name, precision, off))
    end
    text, status = command("export", folder, folder .. "/out", "--model", folder .. "/model.json")
    lu.assertEquals(status, 0, text)
    local out, original = safetensors.read(folder .. "/out/model.safetensors"), models.unstacked(models.tensors_of(name))
    for tensor, values in pairs(original) do
      lu.assertNotNil(out[tensor], tensor)
      lu.assertTrue(out[tensor]:equal(values), tensor)
    end
    local exported, config = models.read_json(folder .. "/out/config.json"), models.config_of(name)
    lu.assertEquals(huggingface.options(exported), huggingface.options(config))
  end
end

function TestCommands:test_a_model_that_is_not_the_checkpoints()
  local folder = temporary()
  command("import", models.FOLDER .. "gpt2_untied", folder)
  local options = models.read_json(folder .. "/model.json")
  local last = ("blocks.%d.attention."):format(options.layers - 1)
  local function refused(changes, message)
    local changed = {}
    for key, value in pairs(options) do changed[key] = value end
    for key, value in pairs(changes) do changed[key] = value end
    zt.write_file(folder .. "/other.json", zt.json.encode(changed))
    local text, status = command("export", folder, folder .. "/out", "--model", folder .. "/other.json")
    lu.assertEquals(status, 1)
    lu.assertStrContains(text, message)
  end
  refused({layers = options.layers - 1},
    ("12 not in the model: %sout.bias, %sout.weight, %sqkv.bias and 9 more"):gsub("%%s", last))
  refused({layers = options.layers + 1}, ("12 not in the checkpoint: blocks.%d."):format(options.layers))
  refused({vocab = options.vocab - 1}, "have vocab = 60, but the checkpoint's model has a vocabulary of 61 tokens")
  refused({ffn = 2 * options.ffn}, "3 of another shape: blocks.0.mlp.up.weight is [")
  refused({tied = true}, "1 not in the model: head.weight")
  refused({layer = 3}, "unknown option 'layer'")
  lu.assertFalse(zt.exists(folder .. "/out"))
end

-- The checkpoint of a run records the options of its model and its tokenizer, so that an export needs nothing else.
function TestCommands:test_export_of_a_runs_own_model()
  local folder = temporary()
  local function saved(model, name, objects)
    local trainer = zt.trainer(zt.program(model), {optimizer = optim.sgd{lr = 0.5}})
    local all = {trainer = trainer}
    for key, value in pairs(objects or {}) do all[key] = value end
    ckpt.save(folder .. "/" .. name, all, {step = 1, async = false})
    return command("export", folder .. "/" .. name, folder .. "/hf-" .. name, "--huggingface")
  end
  local options = {layers = 1, hidden = 8, heads = 2, vocab = 11, seq = 4}
  local stream = {tokenizer = {model = function() return "\0\255model\n" end}, state = function() return {} end, restore = print}
  local text, status = saved(nn.gpt(options), "gpt2", {data = stream})
  lu.assertEquals(status, 0, text)
  local config = models.read_json(folder .. "/hf-gpt2/config.json")
  lu.assertEquals({config.model_type, config.vocab_size, config.n_head}, {"gpt2", 11, 2})
  lu.assertStrContains(zt.fs.read(folder .. "/hf-gpt2/config.json"), '"bos_token_id":null,"')
  lu.assertStrContains(zt.fs.read(folder .. "/hf-gpt2/config.json"), '"eos_token_id":null,"')
  lu.assertEquals(zt.fs.read(folder .. "/hf-gpt2/tokenizer.model"), "\0\255model\n")
  lu.assertStrContains(text, "wrote " .. folder .. "/hf-gpt2/tokenizer.model")
  options.vocab = 50257
  text, status = saved(nn.gpt(options), "full")
  lu.assertEquals(status, 0, text)
  config = models.read_json(folder .. "/hf-full/config.json")
  lu.assertEquals({config.bos_token_id, config.eos_token_id}, {50256, 50256})
  options.vocab, options.family, options.moe = 11, "llama", {experts = 4, ffn = 8, router = {normalise = "selected"}}
  text, status = saved(moe.gpt(options), "mixture")
  lu.assertEquals(status, 0, text)
  lu.assertEquals(models.read_json(folder .. "/hf-mixture/config.json").num_local_experts, 4)
  -- A loss without parameters changes nothing; layers made by a function are not in the record.
  text, status = saved(nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = 11, seq = 4, loss = false}
    :append(zt.loss(function(out) return out.logits:sum() end)), "own_loss")
  lu.assertEquals(status, 0, text)
  text, status = saved(nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = 11, seq = 4, mlp = function() return nil end}, "mlp")
  lu.assertEquals(status, 1)
  lu.assertStrContains(text, "does not record its model's options")
  lu.assertStrContains(text, "Give them by --model model.json")
end

function TestCommands:test_special_tokens_and_tokenizers_of_imports()
  local folder = temporary()
  zt.mkdir_p(folder .. "/in")
  zt.copy_file(models.FOLDER .. "llama/model.safetensors", folder .. "/in/model.safetensors")
  local config = models.config_of "llama"
  config.bos_token_id, config.eos_token_id = 3, {4, 5}
  zt.write_file(folder .. "/in/config.json", zt.json.encode(config))
  zt.write_file(folder .. "/in/tokenizer.json", '{"version": "1.0"}\n')
  zt.write_file(folder .. "/in/tokenizer.model", "\1\0\200")
  local text, status = command("import", folder .. "/in", folder .. "/run")
  lu.assertEquals(status, 0, text)
  text, status = command("export", folder .. "/run", folder .. "/out", "--huggingface")
  lu.assertEquals(status, 0, text)
  local written = models.read_json(folder .. "/out/config.json")
  lu.assertEquals({written.bos_token_id, written.eos_token_id}, {3, {4, 5}})
  lu.assertEquals(zt.fs.read(folder .. "/out/tokenizer.json"), '{"version": "1.0"}\n')
  lu.assertEquals(zt.fs.read(folder .. "/out/tokenizer.model"), "\1\0\200")
end

-- A tensor that only the model's options explain: the message names the option.
function TestCommands:test_a_tensor_that_no_model_of_hugging_face_has()
  local folder = temporary()
  local options = {family = "llama", layers = 1, hidden = 8, heads = 2, vocab = 11, seq = 4,
                   moe = {experts = 4, ffn = 8, router = {normalise = "selected", bias = true}}}
  local trainer = zt.trainer(zt.program(moe.gpt(options)), {optimizer = optim.sgd{lr = 0.5}})
  ckpt.save(folder, {trainer = trainer}, {step = 1, async = false})
  zt.write_file(folder .. "/model.json", zt.json.encode(options))
  local text, status = command("export", folder, folder .. "/out", "--model", folder .. "/model.json")
  lu.assertEquals(status, 1)
  lu.assertStrContains(text, "moe.router.bias = true is in no mixture of Hugging Face's")
end

-- Returns a folder with a copy of a model whose config.json has the `changes`.
local function copy_of(name, changes)
  local folder = temporary()
  zt.mkdir_p(folder)
  zt.copy_file(models.FOLDER .. name .. "/model.safetensors", folder .. "/model.safetensors")
  local config = models.config_of(name)
  for key, value in pairs(changes) do config[key] = value end
  zt.write_file(folder .. "/config.json", zt.json.encode(config))
  return folder
end

-- Asserts that the folder has no checkpoint, neither partial nor complete.
local function assert_nothing_is_left(folder)
  local pipe = io.popen(("ls -A '%s' 2>/dev/null"):format(folder))
  lu.assertEquals(pipe:read "*a", "")
  pipe:close()
end

local function refused_import(from, ...)
  local to = from .. "/run"
  local text, status = command("import", from, to)
  lu.assertEquals(status, 1, text)
  for _, part in ipairs {...} do lu.assertStrContains(text, part) end
  assert_nothing_is_left(to)
end

function TestCommands:test_a_config_that_is_wrong()
  local folder = copy_of("gpt2", {n_layer = 1e9})
  refused_import(folder, folder .. "/config.json has 'n_layer' = 1000000000", "a whole number from 1 to 10000")
  folder = copy_of("gpt2", {n_layer = 3})
  refused_import(folder, folder .. "/config.json has 'n_layer' = 3, but the tensors are those of 2 layers")
  folder = copy_of("gpt2", {layer_norm_epsilon = "1e-6"})
  refused_import(folder, folder .. "/config.json has 'layer_norm_epsilon' = '1e-6' (a string)", "a number above 0 is needed")
  folder = copy_of("gpt2", {vocab_size = 62})
  refused_import(folder, folder .. "/config.json has 'vocab_size' = 62, but the tensors are those of a vocabulary of 61 tokens")
  folder = copy_of("gpt2", {n_embd = 32})
  refused_import(folder, folder .. "/config.json describes", "wte.weight is [61, 16] instead of [61, 32]")
  local config = zt.fs.read(models.FOLDER .. "mistral/config.json")
  folder = copy_of("mistral", {})
  zt.write_file(folder .. "/config.json", (config:gsub('"sliding_window": 4,', "")))
  refused_import(folder, folder .. "/config.json has no 'sliding_window'", 'add "sliding_window": null for all')
  zt.write_file(folder .. "/config.json", (config:gsub('"sliding_window": 4', '"sliding_window": null')))
  local text, status = command("import", folder, folder .. "/run")
  lu.assertEquals(status, 0, text)
  lu.assertNil(models.read_json(folder .. "/run/model.json").window)
end

function TestCommands:test_a_config_that_is_no_regular_file()
  local folder = copy_of("gpt2", {})
  os.remove(folder .. "/config.json")
  lu.assertEquals(os.execute(("mkfifo '%s/config.json'"):format(folder)), 0)
  refused_import(folder, folder .. "/config.json': it is a FIFO", "not a regular file")
end

-- The error occurs after the first tensors are written: two tensors get the same name.
function TestCommands:test_an_import_that_fails_on_the_way_leaves_nothing()
  local folder = copy_of("gpt2", {})
  zt.write_file(folder .. "/map.json", '{"^.*$": "same"}')
  local text, status = command("import", folder, folder .. "/run", "--map", folder .. "/map.json")
  lu.assertEquals(status, 1, text)
  assert_nothing_is_left(folder .. "/run")
  -- The file has the tied head twice with different values, which the import finds while it reads them.
  local tensors = models.tensors_of "gpt2"
  tensors["lm_head.weight"] = tensors["transformer.wte.weight"] * 2
  os.remove(folder .. "/model.safetensors")
  local native = require "zt.ckpt"
  local announced = {}
  for name, tensor in pairs(tensors) do
    announced[#announced + 1] = {name = name, shape = tensor:size(), dtype = "float32"}
  end
  native.write_safetensors(folder .. "/model.safetensors", announced, 1e9, function(name) return tensors[name] end)
  refused_import(folder, "'lm_head.weight' and 'transformer.wte.weight' differ")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCommands", TestCommands}})
