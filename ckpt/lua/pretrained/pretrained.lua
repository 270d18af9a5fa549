--- ckpt.pretrained(folder): the model of a folder, to train from.
--
--   local base = ckpt.pretrained "models/llama"
--   base.options.lora = {rank = 8}
--   local model = moe.gpt(base.options)
--   ... trainer of the model ...
--   base:load(trainer)

local check = require "zt.check"
local class = require "zt.class"
local core = require "zt.core"
local fail = require "zt.fail"
local folder = require "zt.ckpt.pretrained.folder"
local lora = require "zt.ckpt.adapters.lora"
local methods = require "zt.methods"
local text = require "zt.text"

local Pretrained = class "Pretrained"

local HEAD, VALUE, EMBEDDING = "head.weight", "head.value.weight", "embedding.weight"
local LOAD = {{"head", "string", "the folder's, or a new one, which stays as it is", default = "same", one_of = {"same", "new"}}}

-- Whether a parameter is one of a head, but not of its norm.
local function is_of_head(name) return name:find "^head%." ~= nil and not name:find "^head%.norm%." end

local function has(list, name)
  for _, each in ipairs(list) do
    if each == name then return true end
  end
  return false
end

-- Returns what to do about parameters that the folder lacks, and that the trainer lacks.
local function advice_for(missing, extra)
  if has(missing, VALUE) then
    return "The folder has a model of language: for a reward model or a critic that begins as it, with a new head, give load the "
      .. "option head = \"new\""
  end
  if has(extra, VALUE) then
    return "The folder has a reward model or a critic: give one of language, or make the trainer's model with head = \"value\""
  end
  return "Make the model by moe.gpt from the field options"
end

-- An error unless the folder has all parameters of a trainer but adapters, and the trainer all of the folder's. Returns whether a
-- head of the trainer begins as a copy of the folder's embedding. has_new_head: nothing is said of heads.
local function check_names(self, trainer, has_new_head)
  local there, wanted, missing, extra, has_copy = {}, {}, {}, {}, false
  for _, name in ipairs(self.opened.names) do there[name] = true end
  for _, tensor in ipairs(trainer:tensors()) do
    local name = tensor.name
    wanted[name] = true
    if has_new_head and is_of_head(name) then there[name] = true end
    if tensor.is_parameter and not there[name] and not lora.adapter_of(name) then
      if name == HEAD and there[EMBEDDING] then has_copy = true else missing[#missing + 1] = name end
    end
  end
  for name in pairs(there) do
    if not wanted[name] and not (has_new_head and is_of_head(name)) then extra[#extra + 1] = name end
  end
  table.sort(extra)
  for _, group in ipairs{{"the trainer's model has parameters that '%s' lacks", missing},
                         {"the trainer's model lacks parameters that '%s' has", extra}} do
    if #group[2] > 0 then
      fail("pretrained:load: " .. group[1] .. ", %d: %s. %s", self.path, #group[2], text.some(group[2]),
        advice_for(missing, extra))
    end
  end
  return has_copy
end

-- Returns whether a model has packed matrices.
local function is_packed(model)
  for _, parameter in ipairs(model:parameters()) do
    if parameter.format ~= "plain" then return true end
  end
  return false
end

--- Sets the parameters of a trainer to those of the folder. Adapters that the folder lacks stay as they are. With head = "new"
-- the trainer's head stays as it is, but for its norm: a model of values or rewards begins as one of language. Collective.
function Pretrained:load(trainer, value)
  check.argument("pretrained:load", "the first argument", "Trainer", trainer)
  local o = check.options("pretrained:load", LOAD, value or {})
  if core.world.dry then return end
  if o.head == "new" then
    check_names(self, trainer, true)
    return self.opened.load(trainer, true, function(name) return not is_of_head(name) end)
  end
  local has_copy = check_names(self, trainer)
  self.opened.load(trainer, has_copy or is_packed(trainer.model))
end

methods(Pretrained, "pretrained", {"tokenizer", "chat", "weights"})

return function(path)
  check.argument("ckpt.pretrained", "the folder of a model", "string", path)
  local opened = folder.open(path)
  return setmetatable({
    path = path, opened = opened, options = opened.options, dtype = opened.dtype, stop_tokens = opened.stop_tokens,
    tokenizer = opened.tokenizer, chat = opened.chat, weights = opened.weights,
  }, Pretrained)
end
