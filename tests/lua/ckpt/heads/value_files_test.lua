-- Tests models with the heads of RLHF in files of Hugging Face's: log-probabilities as language models, values as classifiers
-- with one label. tests/oracle/check/check_values.py compares their values with those of transformers.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, infer = require "zt.ckpt", require "zt.infer"
local cases = require "ckpt.heads.head_cases"
local huggingface = require "zt.ckpt.huggingface"
local models = require "support.huggingface_models"
local temporary = require "support.temporary"

local LOGPROBS = {head = "logprobs", temperature = 0.7, entropy = true}

-- Returns the folder that export writes for a trainer.
local function exported(trainer)
  local out = temporary()
  cases.done("export", cases.saved(trainer), out, "--huggingface")
  return out
end

local TestLogprobs = {}

for _, name in ipairs(cases.NAMES) do
  TestLogprobs["test_is_a_language_model_" .. name] = function()
    local out = exported((cases.trainer(models.FOLDER .. name, LOGPROBS)))
    cases.check_equal(cases.tensors(out), models.tensors_of(name))
    local config = models.read_json(out .. "/config.json")
    lu.assertEquals(config.architectures, models.config_of(name).architectures)
    lu.assertEquals(huggingface.options(config), huggingface.options(models.config_of(name)))
  end
end

-- An engine of a language model takes the parameters of the model that is trained.
function TestLogprobs:test_engine()
  local trainer = cases.trainer(models.FOLDER .. "llama", LOGPROBS)
  cases.fill(trainer, "^head%.weight$")
  local engine = infer.engine{model = models.FOLDER .. "llama", dtype = "fp32"}
  engine:update(trainer)
  local request = {prompt = {1, 2, 3}, max_tokens = 4, temperature = 0}
  local other = infer.engine{model = exported(trainer), dtype = "fp32"}
  lu.assertEquals(engine:generate(request)[1].tokens, other:generate(request)[1].tokens)
  lu.assertErrorMsgContains("has 'head.value.weight', and the engine's has not", engine.update, engine,
    (cases.trainer(models.FOLDER .. "llama", {head = "value"})))
end

local TestValues = {}

-- Returns what transformers would write for a golden model with a value head: its tensors, and its config.json.
local function as_classifier(name, trainer)
  local tensors, config = models.tensors_of(name), models.config_of(name)
  tensors["lm_head.weight"], tensors["score.weight"] = nil, trainer:parameter "head.value.weight"
  config.architectures = {(config.architectures[1]:gsub("LMHeadModel", "ForCausalLM"):gsub("ForCausalLM",
    "ForSequenceClassification"))}
  config.id2label, config.label2id = {["0"] = "LABEL_0"}, {LABEL_0 = 0}
  return tensors, config
end

for _, name in ipairs(cases.NAMES) do
  TestValues["test_round_trip_of_" .. name] = function()
    local trainer, base = cases.trainer(models.FOLDER .. name, {head = "value"})
    local out, tensors, config = exported(trainer), as_classifier(name, trainer)
    cases.check_equal(cases.tensors(out), tensors)
    lu.assertEquals(cases.tensors(out)["score.weight"]:size(), {1, base.options.hidden})
    local written = models.read_json(out .. "/config.json")
    for _, key in ipairs{"architectures", "id2label", "label2id", "model_type"} do
      lu.assertEquals(written[key], config[key], key)
    end
    lu.assertEquals(huggingface.options(written), base.options)
    local run = temporary()
    lu.assertStrContains(cases.done("import", cases.folder(config, tensors), run), "model.json")
    lu.assertEquals(models.read_json(run .. "/model.json").head, "value")
    for _, folder in ipairs{out, run} do
      local again = cases.trainer(folder, {})
      for _, parameter in ipairs(trainer:parameters()) do
        lu.assertTrue(zt.equal(again:master(parameter), trainer:master(parameter)), parameter)
      end
    end
    local twice = temporary()
    cases.done("export", run, twice, "--huggingface")
    cases.check_equal(cases.tensors(twice), tensors)
  end
end

-- transformers takes the score at the last token that is not the padding's.
function TestValues:test_the_id_of_the_padding()
  local trainer = cases.trainer(models.FOLDER .. "llama", {head = "value"})
  local tensors, config = as_classifier("llama", trainer)
  local NOTE = "pad_token_id is null"
  local function written(changes)
    for key, value in pairs(changes) do config[key] = value end
    local run, out = temporary(), temporary()
    cases.done("import", cases.folder(config, tensors), run)
    local output = cases.done("export", run, out, "--huggingface")
    return models.read_json(out .. "/config.json").pad_token_id, output
  end
  for _, changes in ipairs{{pad_token_id = 2, eos_token_id = 2}, {pad_token_id = 4, eos_token_id = {3, 4}},
                           {pad_token_id = 1, bos_token_id = 1, eos_token_id = 2}} do
    local pad, output = written(changes)
    lu.assertNil(pad)
    lu.assertStrContains(output, NOTE)
  end
  local pad, output = written{pad_token_id = 0, bos_token_id = 1, eos_token_id = 2}
  lu.assertEquals(pad, 0)
  lu.assertNotStrContains(output, NOTE)
end

function TestValues:test_other_classifiers_are_refused()
  local trainer = cases.trainer(models.FOLDER .. "llama", {head = "value"})
  local tensors, config = as_classifier("llama", trainer)
  local function refused(changes, message)
    local changed = {}
    for key, value in pairs(config) do changed[key] = value end
    for key, value in pairs(changes) do changed[key] = value or nil end
    lu.assertErrorMsgContains(message, huggingface.options, changed)
  end
  refused({id2label = {["0"] = "no", ["1"] = "yes"}}, "has 2 labels in 'id2label': nn.gpt's value head gives one number per")
  refused({num_labels = 3}, "has 'num_labels' = 3")
  refused({id2label = false}, "has neither 'num_labels' nor 'id2label', which means two labels")
  refused({id2label = "LABEL_0"}, "has 'id2label' = 'LABEL_0' (a string), where an object of numbers and labels is needed")
  refused({architectures = "LlamaForCausalLM"}, "where a list of names of classes is needed")
  config.id2label, config.num_labels = nil, 1
  lu.assertEquals(huggingface.options(config).head, "value")
  tensors["score.weight"] = zt.zeros{2, trainer.model.options.hidden}
  cases.refused("1 of another shape: score.weight is [2, ", "import", cases.folder(config, tensors), temporary())
  tensors["score.weight"] = nil
  cases.refused("1 missing: score.weight", "import", cases.folder(config, tensors), temporary())
  tensors["lm_head.weight"], tensors["score.weight"] = zt.zeros{1}, trainer:parameter "head.value.weight"
  cases.refused("1 not part of such a model: lm_head.weight", "import", cases.folder(config, tensors), temporary())
end

function TestValues:test_engines_refuse_them()
  local message = "has a value head (nn.gpt{head = \"value\"}), and an engine draws tokens by the logits"
  local trainer = cases.trainer(models.FOLDER .. "llama", {head = "value"})
  local tensors, config = as_classifier("llama", trainer)
  for _, folder in ipairs{cases.folder(config, tensors), cases.saved(trainer)} do
    lu.assertErrorMsgContains(message, infer.engine, {model = folder})
  end
  lu.assertErrorMsgContains(message, infer.engine, {trainer = trainer, dtype = "bf16"})
  lu.assertErrorMsgContains("has no output 'logits'", infer.engine, {trainer = trainer})
end

local TestTrl = {}

local WEIGHT, BIAS = "v_head.summary.weight", "v_head.summary.bias"

-- Returns the files of a value model as TRL saves it, with these further tensors, and its weight.
local function of_trl(name, more)
  local tensors, config = models.tensors_of(name), models.config_of(name)
  zt.manual_seed(7)
  tensors[WEIGHT], tensors[BIAS] = zt.randn{1, config.hidden_size or config.n_embd}, zt.zeros{1}
  for key, values in pairs(more or {}) do tensors[key] = values or nil end
  return cases.folder(config, tensors), tensors[WEIGHT]
end

for _, name in ipairs(cases.NAMES) do
  TestTrl["test_" .. name] = function()
    local folder, weight = of_trl(name)
    local values, language = temporary(), temporary()
    lu.assertNotStrContains(cases.done("import", folder, values, "--head", "value"), "left out")
    local expected = huggingface.options(models.config_of(name))
    expected.head = "value"
    local trainer, base = cases.trainer(values, {})
    lu.assertEquals(base.options, expected)
    lu.assertTrue(zt.equal(trainer:master "head.value.weight", weight))
    lu.assertStrContains(cases.done("import", folder, language),
      "the value head 'v_head.summary.weight' is left out: the model is the language model")
    cases.done("export", language, language .. "/out", "--huggingface")
    cases.check_equal(cases.tensors(language .. "/out"), models.tensors_of(name))
  end
end

-- A bias that was trained. A classifier has none, so such a model is not written as one.
function TestTrl:test_bias()
  local folder, weight = of_trl("llama", {[BIAS] = zt.full({1}, 0.25)})
  local values, plain = temporary(), temporary()
  cases.done("import", folder, values, "--head", "value")
  cases.done("import", (of_trl "llama"), plain, "--head", "value")
  local trainer, base = cases.trainer(values, {})
  local without, other = cases.trainer(plain, {})
  lu.assertTrue(base.options.value_bias)
  lu.assertNil(other.options.value_bias)
  lu.assertTrue(zt.equal(trainer:master "head.value.weight", weight))
  lu.assertEquals(trainer:master("head.value.bias"):tolist(), {0.25})
  local batch = {tokens = zt.tensor({{1, 5, 2}}, {dtype = "int64"})}
  lu.assertTrue((trainer:infer(batch).values - without:infer(batch).values - 0.25):abs():max():item() < 1e-6)
  cases.refused("nn.gpt's option value_bias = true: classifiers of Hugging Face's (ForSequenceClassification) have no bias",
    "export", values, temporary(), "--huggingface")
  local language = cases.done("import", folder, temporary())
  lu.assertStrContains(language, "is left out: the model is the language model")
end

-- In a script, too, the files are those of the language model.
function TestTrl:test_without_a_command()
  local base = ckpt.pretrained((of_trl "llama"))
  lu.assertEquals(base.options, huggingface.options(models.config_of "llama"))
end

function TestTrl:test_refused()
  local function refused(message, folder, ...)
    local run = temporary()
    cases.refused(message, "import", folder, run, ...)
    lu.assertEquals(#ckpt.list(run), 0)
  end
  refused("1 of another shape: v_head.summary.weight is [2, ", (of_trl("llama", {[WEIGHT] = zt.zeros{2, 16}})), "--head", "value")
  refused("1 not part of such a model: v_head.other", (of_trl("llama", {["v_head.other"] = zt.zeros{1}})))
  refused("has no value head: its config.json is not that of a ForSequenceClassification, and it has no tensor "
    .. "'v_head.summary.weight'", models.FOLDER .. "llama", "--head", "value")
  local folder = of_trl("llama", {[BIAS] = false})
  cases.done("import", folder, temporary(), "--head", "value")
  local map = folder .. "/map.json"
  zt.write_file(map, "{}")
  refused("--head is for a model with config.json, which --map ignores", folder, "--head", "value", "--map", map)
  os.remove(folder .. "/config.json")
  refused("so nothing is known of a head", folder, "--head", "value")
end

-- A classifier has its value head without the option.
function TestTrl:test_the_option_for_a_classifier()
  local trainer = cases.trainer(models.FOLDER .. "qwen2", {head = "value"})
  local tensors, config = as_classifier("qwen2", trainer)
  local run = temporary()
  cases.done("import", cases.folder(config, tensors), run, "--head", "value")
  lu.assertTrue(zt.equal(cases.trainer(run, {}):master "head.value.weight", tensors["score.weight"]))
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{
  {"TestLogprobs", TestLogprobs}, {"TestValues", TestValues}, {"TestTrl", TestTrl},
})
