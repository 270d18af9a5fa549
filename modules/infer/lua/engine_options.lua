--- The options of infer.engine: checks them, opens the model that they name, and tells which of them ranks must give alike.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local folder = require "zt.ckpt.pretrained.folder"
local infer = require "zt.infer"
local log = require "zt.log"
local parameters = require "zt.ckpt.pretrained.parameters"
local requests = require "zt.infer.requests"
local same_model = require "zt.ckpt.pretrained.same_model"

local engine_options = {}

local SCHEMA = {
  {"trainer", "Trainer", "holds the parameters, which are read in place unless a mesh or a dtype is given"},
  {"model", "string", "in place of a trainer: the folder of a run, of a checkpoint, or of a model as Hugging Face writes it"},
  {"adapter", "string", "the folder of a LoRA adapter as PEFT saves it, which is added to the weights of `model`"},
  {"mesh", "Mesh", "the ranks of the model; by default those of the trainer, or this rank alone"},
  {"tensor", "Axis", "the axis of the mesh over whose ranks matrices are cut"},
  {"pipeline", "Axis", "the axis over whose ranks layers are divided"},
  {"experts", "Axis", "the axis over whose ranks experts are divided, which have other requests"},
  {"data", "Axis", "the axis whose ranks have other requests"},
  {"dtype", "string", "of the parameters; default: that of the folder or trainer", one_of = {"fp32", "bf16", "fp16", "fp64"}},
  {"weights", "table", "the format of matrices: {format = int8, int4, nf4 or panels, group =, symmetric =, activations =, keep =}"
   .. "; default: plain"},
  {"tokenizer", "any", "converts between text and tokens, as data.tokenizer.load gives"},
  {"shard", "any", "options of zero.shard, or function(model) that returns them: ranks of `data` hold parts of the parameters"},
  {"offload", "table", "options of offload.move: where these parts lie between their uses, {parameters = \"nvme\", folder =}"},
  {"chat_template", "string", "the template, in Jinja's language, of conversations; default: the folder's"},
  {"max_context", "integer", "most tokens of a prompt and its answer; default: the model's seq", at_least = 1},
  {"token_budget", "integer", "most tokens that a step computes", default = 512, at_least = 1},
  {"max_sequences", "integer", "most answers that a step works on", default = 64, at_least = 1},
  {"cache", "table", "the memory for keys and values: {memory =, block =, dtype =, prefix =}", default = {}},
  {"numerics", "string", "invariant: an answer does not depend on what else is computed; or fast", default = "invariant",
   one_of = {"invariant", "fast"}},
  {"speculative", "table", "guesses tokens by what the text said before: {tokens =, match =}"},
  {"stop_tokens", "list", "tokens of the model that end an answer; default: those that the folder names"},
}

-- Returns the model of a trainer as model.open returns that of a folder.
local function model_of(trainer)
  local options = trainer.model.options
  if options == nil then
    fail("infer.engine: nn.gpt or moe.gpt did not make the trainer's model, so it cannot be made for another mesh or dtype: "
      .. "leave them out")
  end
  return {
    options = options, dtype = infer.abilities(trainer).dtype,
    load = function(to) parameters.take(trainer, to) end,
  }
end

-- An error for a model without logits, before its parameters are read.
local function check_head(opened, where)
  if opened.options.head ~= "value" then return end
  fail("infer.engine: the model %s has a value head (nn.gpt{head = \"value\"}), and an engine draws tokens by the logits of a "
    .. "language model: give that one; trainer:infer returns the values", where)
end

-- A model with rotary positions also computes positions beyond those of its training, but its answers there may be useless.
local function warn_of_context(options, of_model)
  local most = of_model and of_model.seq
  if not options.max_context or not most or most == 0 or options.max_context <= most or core.world.rank > 0 then return end
  log.warn("infer.engine: max_context = %d is more than the %d tokens of the model, whose answers beyond these may be useless",
           options.max_context, most)
end

-- An error unless the option `shard` is one of the two types that it may have.
local function check_shard(shard)
  if shard == nil or type(shard) == "table" or type(shard) == "function" then return end
  fail("infer.engine.shard must be a table of options of zero.shard, or function(model) that returns one, got %s",
       check.type_name(shard))
end

--- Returns the options, the opened model if the engine makes a trainer of its own, and the chat template of the options.
function engine_options.opened_of(value)
  local options = check.options("infer.engine", SCHEMA, value)
  if (options.trainer == nil) == (options.model == nil) then fail "infer.engine: give either trainer or model" end
  if options.adapter and not options.model then
    fail "infer.engine.adapter: an adapter is added to weights that are read from a folder: give model, not trainer"
  end
  check_shard(options.shard)
  local chat = options.chat_template and {source = options.chat_template, name = "chat_template", variables = {}} or nil
  if chat then requests.template_of(chat) end
  local has_layout = options.mesh or options.tensor or options.pipeline or options.experts or options.data or options.dtype
    or options.weights or options.shard or options.offload
  if not options.model and not has_layout then
    warn_of_context(options, options.trainer.model.options)
    return options, nil, chat
  end
  local opened = options.model and folder.open(options.model, options.adapter) or model_of(options.trainer)
  check_head(opened, options.model and ("in '%s'"):format(options.model) or "of the trainer")
  warn_of_context(options, opened.options)
  if chat and opened.chat then chat.variables = opened.chat.variables end
  return options, opened, chat or opened.chat
end

-- Options that name folders, which ranks on other machines may have elsewhere.
local OF_FOLDERS = {model = true, adapter = true, offload = true}

--- Returns the text of those options that all ranks of a mesh must give alike.
function engine_options.told(given)
  local parts = {}
  for _, row in ipairs(SCHEMA) do
    local value = given[row[1]]
    if type(value) == "table" then value = "{" .. same_model.text_of(value) .. "}" end
    local is_plain = type(value) ~= "userdata" and type(value) ~= "function"
    if value ~= nil and is_plain and not OF_FOLDERS[row[1]] then
      parts[#parts + 1] = row[1] .. " = " .. tostring(value)
    end
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

return engine_options
