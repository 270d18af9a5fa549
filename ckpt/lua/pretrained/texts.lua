--- What belongs to a model's texts: its tokenizer, its chat template and the tokens that end a text.

local core = require "zt.core"
local data = require "zt.data"
local fail = require "zt.fail"

local texts = {}

local CONFIG = "tokenizer_config.json"
local BYTES = 256 -- tokens of a model of bytes, whose tokenizer needs no file
local TOKENIZERS = {"tokenizer.json", "tokenizer.model"} -- the files of one, the best first

--- Returns the tokenizer that the files {name = content} are of; nil if they hold none that is known here.
function texts.tokenizer_of(files, vocab, path)
  for _, name in ipairs(TOKENIZERS) do
    if files and files[name] then return data.tokenizer.parse(files[name], path .. "/" .. name) end
  end
  if not files and vocab == BYTES then return data.tokenizer.bytes() end
  return nil
end

-- Returns the source of the chat template in the files, and its name; nil without one. A configuration may have several: takes
-- the one that is named "default".
local function template_of(files, config)
  if files["chat_template.jinja"] then return files["chat_template.jinja"], "chat_template.jinja" end
  local source = config.chat_template
  if type(source) == "table" then
    for _, each in ipairs(source) do
      if each.name == "default" then return each.template, CONFIG end
    end
    return nil
  end
  return type(source) == "string" and source or nil, CONFIG
end

--- Returns {source = of the template, name =, variables = those that it reads, such as bos_token} of a tokenizer's files; nil
-- without a template.
function texts.chat_of(files, path)
  if not files then return nil end
  local is_json, config = pcall(core.json.decode, files[CONFIG] or "{}")
  if not is_json or type(config) ~= "table" then fail("'%s/%s' is not JSON: %s", path, CONFIG, tostring(config)) end
  local source, name = template_of(files, config)
  if not source then return nil end
  local variables = {}
  for key, value in pairs(config) do
    local text = type(value) == "table" and value.content or value
    if key:find "_token$" and type(text) == "string" then variables[key] = text end
  end
  return {source = source, name = path .. "/" .. name, variables = variables}
end

--- Returns the tokens that end a text, by a config.json: eos_token_id is a number or a list. Leaves out those that the model does
-- not have: a configuration may have the default of another vocabulary.
function texts.ends_of(config, vocab)
  local id, ends = config.eos_token_id, {}
  for _, token in ipairs(type(id) == "table" and id or {id}) do
    if type(token) == "number" and token >= 0 and token < vocab then ends[#ends + 1] = token end
  end
  return ends
end

return texts
