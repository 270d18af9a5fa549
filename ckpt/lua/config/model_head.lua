--- The heads of models in Hugging Face's files: that of a language model (*ForCausalLM), and the score of a classifier with one
-- label (*ForSequenceClassification), which is nn.gpt's value head. A value model of TRL's is a language model with the tensors
-- of `v_head` beside its head.

local fail = require "zt.fail"

local model_head = {}

local LM, SCORE = "lm_head.weight", "score.weight"
local OF_TRL, BIAS_OF_TRL = "v_head.summary.weight", "v_head.summary.bias"

local CLASSIFIER = "ForSequenceClassification"
local LANGUAGE_MODELS = {"LMHeadModel$", "ForCausalLM$"}

--- The names of the value head's weight and of a language model's, which a tied one has not.
model_head.VALUE, model_head.OF_LM = "head.value.weight", "head.weight"
local BIAS = "head.value.bias"

-- An error unless a classifier has one label.
local function check_labels(reader)
  local number = reader:get("num_labels", "number", "a number")
  local labels, count = reader:get("id2label", "table", "an object of numbers and labels"), 0
  for _ in pairs(labels or {}) do count = count + 1 end
  local has
  if not number and not labels then
    has = "neither 'num_labels' nor 'id2label', which means two labels"
  elseif labels and count ~= 1 then
    has = ("%d labels in 'id2label'"):format(count)
  elseif number and number ~= 1 then
    has = ("'num_labels' = %s"):format(tostring(number))
  end
  if not has then return end
  fail("%s is that of a classifier (%s) and has %s: nn.gpt's value head gives one number per token, so only a classifier with "
    .. "one label is read", reader.path, CLASSIFIER, has)
end

--- Returns the option `head` of the model that a config.json describes: "value" for a classifier with one label, else nil.
function model_head.read(reader)
  local architectures = reader:get("architectures", "table", "a list of names of classes", {})
  for _, name in ipairs(architectures) do
    if tostring(name):find(CLASSIFIER .. "$") then
      check_labels(reader)
      return "value"
    end
  end
  return nil
end

--- Makes the config.json of a language model that of a model with these options.
function model_head.write(config, options)
  if options.head ~= "value" then return end
  if options.value_bias then
    fail("nn.gpt's option value_bias = true: classifiers of Hugging Face's (%s) have no bias, so the exported model would give "
      .. "other values: export it without --huggingface", CLASSIFIER)
  end
  for _, pattern in ipairs(LANGUAGE_MODELS) do
    config.architectures[1] = config.architectures[1]:gsub(pattern, CLASSIFIER)
  end
  config.id2label, config.label2id = {["0"] = "LABEL_0"}, {LABEL_0 = 0}
end

-- Returns whether a token is an id, or in a list of ids.
local function is_among(token, ids)
  for _, id in ipairs(type(ids) == "table" and ids or {ids}) do
    if id == token then return true end
  end
  return false
end

--- Returns the id of the padding to write for a model with these ids of special tokens, and whether it is left out. transformers
-- takes the score at the last token that is not `pad_token_id`. So if texts also begin or end with this token, a text that ends
-- with it would get the score of another token. Without it, transformers takes the last token, and one sequence at a time.
function model_head.pad_token(config, ids)
  local pad = ids.pad_token_id
  local is_classifier = config.architectures[1]:find(CLASSIFIER .. "$") ~= nil
  if not pad or not is_classifier then return pad, false end
  if is_among(pad, ids.eos_token_id) or is_among(pad, ids.bos_token_id) then return nil, true end
  return pad, false
end

--- Returns the parameter of a model's head, the file's tensor for it and its rows; nil for a tied head. shapes: those of the
-- files' tensors, or nil for the names that transformers writes.
function model_head.weight(options, shapes)
  if options.head == "value" then
    local is_of_trl = shapes and shapes[OF_TRL] and not shapes[SCORE]
    return model_head.VALUE, is_of_trl and OF_TRL or SCORE, 1
  end
  if options.tied then return nil end
  return model_head.OF_LM, LM, options.vocab
end

--- Returns the parameter of a value head's bias and the file's tensor for it; nil without one.
function model_head.bias(options)
  if options.value_bias then return BIAS, BIAS_OF_TRL end
  return nil
end

--- Returns the name of the language model's head if files may have it as a copy of the embedding, else nil.
function model_head.copy_of_embedding(options, shapes)
  return options.head ~= "value" and options.tied and shapes[LM] and LM or nil
end

--- Returns whether a tensor belongs to another head than the model's, which a value model of TRL's has beside it.
function model_head.is_of_other(options, shapes, name)
  if not shapes[OF_TRL] then return false end
  if options.head ~= "value" then return name == OF_TRL or name == BIAS_OF_TRL end
  return not shapes[SCORE] and (name == LM or name == BIAS_OF_TRL and not options.value_bias)
end

--- Gives options of a language model the value head that the files have beside its head. A bias that is 0, as TRL begins with
-- v_head_init_strategy = "normal", is left out: so the model can be written as a classifier. An error if there is no such head.
-- read(name) returns a tensor of the files.
function model_head.take_value(options, shapes, path, read)
  if options.head == "value" then return end
  if not shapes[OF_TRL] then
    fail("'%s' has no value head: its config.json is not that of a %s, and it has no tensor '%s', as TRL's value models have. To "
      .. "begin with a new value head, load the language model by pretrained:load(trainer, {head = \"new\"})", path, CLASSIFIER,
      OF_TRL)
  end
  options.head = "value"
  local has_bias = shapes[BIAS_OF_TRL] and read(BIAS_OF_TRL):count_nonzero():item() > 0
  options.value_bias = has_bias or nil
end

--- Returns a line about the value head of TRL's that a language model's files have besides; nil if they have none.
function model_head.note(options, shapes)
  if options.head == "value" or not shapes[OF_TRL] then return nil end
  return ("the value head '%s' is left out: the model is the language model (ztoolkit ckpt import --head value takes this head "
    .. "in place of its own)"):format(OF_TRL)
end

--- Returns task_type of adapter_config.json for a model with these options: by it PEFT chooses the class that holds the model.
-- An error for that of a class with another head. given: the caller's choice, or nil.
function model_head.task_type(options, given)
  local is_value = options.head == "value"
  if given == (is_value and "CAUSAL_LM" or "SEQ_CLS") then
    fail("task_type = '%s' is that of PEFT's class for %s, and the model has %s, which is not there: leave task_type out", given,
      is_value and "language models" or "classifiers", is_value and "a value head" or "the head of a language model")
  end
  return given or (is_value and "SEQ_CLS" or "CAUSAL_LM")
end

return model_head
