-- The way of a person with a model of Hugging Face's: import, load, train on, export.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt = require "zt.ckpt"
local nn = require "zt.nn"
local optim = require "zt.optim"
local huggingface = require "zt.ckpt.huggingface"
local command = require "support.command"
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
      local trainer = zt.trainer(zt.program(nn.gpt(options), {precision = precision}), {optimizer = optim.sgd{lr = 0.5}})
      ckpt.load(folder, {model = trainer})
      local off = models.distance(trainer:infer{tokens = expected.tokens}.logits, expected["logits_" .. precision])
      lu.assertTrue(off <= bound, ("%s in %s: %g off"):format(name, precision, off))
    end
    text, status = command("export", folder, folder .. "/out", "--model", folder .. "/model.json")
    lu.assertEquals(status, 0, text)
    local out, original = safetensors.read(folder .. "/out/model.safetensors"), models.tensors_of(name)
    for tensor, values in pairs(original) do lu.assertTrue(out[tensor]:equal(values), tensor) end
    local exported, config = models.read_json(folder .. "/out/config.json"), models.config_of(name)
    lu.assertEquals(huggingface.options(exported), huggingface.options(config))
  end
end

function TestCommands:test_a_model_that_is_not_the_checkpoints()
  local folder = temporary()
  command("import", models.FOLDER .. "gpt2_untied", folder)
  local options = models.read_json(folder .. "/model.json")
  local function refused(changes, message)
    local changed = {}
    for key, value in pairs(options) do changed[key] = value end
    for key, value in pairs(changes) do changed[key] = value end
    zt.write_file(folder .. "/other.json", zt.json.encode(changed))
    local text, status = command("export", folder, folder .. "/out", "--model", folder .. "/other.json")
    lu.assertEquals(status, 1)
    lu.assertStrContains(text, message)
  end
  refused({layers = options.layers - 1}, "is not in the model")
  refused({layers = options.layers + 1}, "is not in the checkpoint")
  refused({vocab = options.vocab - 1}, "embedding.weight is [")
  refused({tied = true}, "head.weight is not in the model")
  refused({layer = 3}, "unknown option 'layer'")
  lu.assertFalse(zt.exists(folder .. "/out"))
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCommands", TestCommands}})
