-- Tests adapters of value models in PEFT's files: the value head is the module `score`, which is saved as a whole.
-- tests/oracle/check/check_values.py compares their values with those of PEFT.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt = require "zt.ckpt"
local cases = require "ckpt.heads.head_cases"
local models = require "support.huggingface_models"
local safetensors = require "support.safetensors"
local temporary = require "support.temporary"

local LORA = {
  gpt2 = {rank = 2, targets = {"qkv", "down"}}, llama = {rank = 2, targets = {"q", "gate"}, layers = {1}},
  llama_tied = {rank = 3, targets = {"v"}}, qwen3 = {rank = 2, targets = {"k", "up_proj"}, scale = "alpha/sqrt(r)"},
  mixtral = {rank = 2, targets = {"out"}},
}

-- Returns a trainer of a value model with adapters that are not zero.
local function trainer_of(name, lora, more)
  local options = {head = "value", lora = lora or LORA[name]}
  for key, value in pairs(more or {}) do options[key] = value end
  local trainer = cases.trainer(models.FOLDER .. name, options)
  cases.fill(trainer, "lora%.[%w_]+%.b$")
  return trainer
end

local function check_equal(one, other)
  for _, name in ipairs(one:parameters()) do lu.assertTrue(zt.equal(one:master(name), other:master(name)), name) end
end

local function config_of(folder) return models.read_json(folder .. "/adapter_config.json") end

local TestAdapters = {}

for name in pairs(LORA) do
  TestAdapters["test_round_trip_of_" .. name] = function()
    local trainer, folder = trainer_of(name), temporary()
    ckpt.save_adapter(trainer, folder)
    lu.assertEquals({config_of(folder).task_type, config_of(folder).modules_to_save}, {"SEQ_CLS", {"score"}})
    local tensors = safetensors.read(folder .. "/adapter_model.safetensors")
    lu.assertTrue(zt.equal(tensors["base_model.model.score.weight"], trainer:master "head.value.weight"))
    local options = {}
    for key, value in pairs(trainer.model.options) do options[key] = value end
    options.lora = nil
    local other = cases.trainer(models.FOLDER .. name, {head = "value", lora = ckpt.lora_options(folder, options)})
    lu.assertEquals(ckpt.load_adapter(other, folder), {"head.value.weight"})
    check_equal(trainer, other)
  end

  -- The base is a language model, and the value head is the adapter's.
  TestAdapters["test_commands_of_" .. name] = function()
    local trainer, by_call, by_command, run = trainer_of(name), temporary(), temporary(), temporary()
    ckpt.save_adapter(trainer, by_call)
    cases.done("export", cases.saved(trainer), by_command, "--adapter")
    for _, file in ipairs(zt.fs.list(by_call)) do
      lu.assertEquals(zt.fs.read(by_command .. "/" .. file), zt.fs.read(by_call .. "/" .. file), file)
    end
    cases.done("import", by_call, run, "--adapter", "--base", models.FOLDER .. name, "--head", "value")
    check_equal(trainer, (cases.trainer(run, {})))
    cases.done("export", run, run .. "/out", "--merge", "--huggingface")
    ckpt.merge_lora(trainer)
    local merged = cases.trainer(run .. "/out", {})
    for _, parameter in ipairs(merged:parameters()) do
      lu.assertTrue(zt.equal(merged:parameter(parameter), trainer:parameter(parameter)), parameter)
    end
  end
end

-- The base may have the value head, too.
function TestAdapters:test_a_base_with_a_value_head()
  local base, folder, run = temporary(), temporary(), temporary()
  cases.done("export", cases.saved((cases.trainer(models.FOLDER .. "llama", {head = "value"}))), base, "--huggingface")
  local trainer = cases.trainer(base, {lora = LORA.llama})
  cases.fill(trainer, "lora%.[%w_]+%.b$")
  cases.fill(trainer, "^head%.value%.weight$")
  ckpt.save_adapter(trainer, folder)
  cases.done("import", folder, run, "--adapter", "--base", base)
  check_equal(trainer, (cases.trainer(run, {})))
end

function TestAdapters:test_of_log_probabilities()
  local trainer = trainer_of("llama", nil, {head = "logprobs", temperature = 2})
  local folder, run = temporary(), temporary()
  ckpt.save_adapter(trainer, folder)
  lu.assertEquals(config_of(folder).task_type, "CAUSAL_LM")
  lu.assertNil(config_of(folder).modules_to_save)
  cases.done("import", folder, run, "--adapter", "--base", models.FOLDER .. "llama")
  check_equal(trainer, (cases.trainer(run, {})))
end

function TestAdapters:test_task_types()
  local value, language, folder = trainer_of "llama", trainer_of("llama", nil, {head = "lm"}), temporary()
  lu.assertErrorMsgContains("'CAUSAL_LM' is that of PEFT's class for language models, and the model has a value head",
    ckpt.save_adapter, value, folder, {task_type = "CAUSAL_LM"})
  lu.assertErrorMsgContains("'SEQ_CLS' is that of PEFT's class for classifiers, and the model has the head of a language model",
    ckpt.save_adapter, language, folder, {task_type = "SEQ_CLS"})
  lu.assertFalse(zt.exists(folder))
  ckpt.save_adapter(value, folder, {task_type = "FEATURE_EXTRACTION"})
  lu.assertEquals(config_of(folder).task_type, "FEATURE_EXTRACTION")
end

function TestAdapters:test_refused()
  local value, language = temporary(), temporary()
  ckpt.save_adapter(trainer_of "llama", value)
  ckpt.save_adapter(trainer_of("llama", nil, {head = "lm"}), language)
  local base, out = models.FOLDER .. "llama", temporary()
  cases.refused("changes modules that the model lacks (1): score.weight", "import", value, out, "--adapter", "--base", base)
  cases.refused("has no value head (score.weight, which PEFT saves with task_type SEQ_CLS)", "import", language, out, "--adapter",
    "--base", base, "--head", "value")
  lu.assertErrorMsgContains("changes modules that the model lacks (1): score.weight", ckpt.load_adapter,
    trainer_of("llama", nil, {head = "lm"}), value)
  local of_head = trainer_of("llama", {rank = 2, targets = {"q", "head"}}, {head = "lm"})
  ckpt.save_adapter(of_head, out)
  lu.assertErrorMsgContains("changes modules that the model lacks (1): lm_head", ckpt.lora_options, out,
    trainer_of("llama").model.options)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestAdapters", TestAdapters}})
