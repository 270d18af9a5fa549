--- The tokenizer, the chat template and the stop tokens in a folder of Hugging Face, with or without a model.

local core = require "zt.core"
local data = require "zt.data"
local fail = require "zt.fail"
local fs = require "zt.fs"
local json_file = require "zt.ckpt.cmd.json_file"
local tokenizer_files = require "zt.ckpt.tokenizer_files"

local chat_folder = {}

local CONFIG = "tokenizer_config.json"
local TOKENIZERS = {"tokenizer.json", "tokenizer.model"} -- the files of one, the best first

--- Returns the tokenizer that the files {name = content} are of; nil if they hold none that is known here.
function chat_folder.tokenizer_of(files, path)
  for _, name in ipairs(TOKENIZERS) do
    if files[name] then return data.tokenizer.parse(files[name], path .. "/" .. name) end
  end
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

local function json_of(files, name, path)
  local is_json, content = pcall(core.json.decode, files[name] or "{}")
  if not is_json or type(content) ~= "table" then fail("'%s/%s' is not JSON: %s", path, name, tostring(content)) end
  return content
end

-- Returns the special tokens that templates read, such as {bos_token = "<s>"}. Older folders have them in a file of their own.
local function variables_of(files, path)
  local variables = {}
  for _, name in ipairs{"special_tokens_map.json", CONFIG} do
    for key, value in pairs(json_of(files, name, path)) do
      local text = type(value) == "table" and value.content or value
      if type(key) == "string" and key:find "_token$" and type(text) == "string" then variables[key] = text end
    end
  end
  return variables
end

--- Returns {source = of the template, name =, variables = those that it reads, such as bos_token} of a tokenizer's files; nil
-- without a template.
function chat_folder.chat_of(files, path)
  local source, name = template_of(files, json_of(files, CONFIG, path))
  if not source then return nil end
  return {source = source, name = path .. "/" .. name, variables = variables_of(files, path)}
end

--- Returns the tokens that end a text, by a config.json: eos_token_id is a number or a list. Leaves out those that the model does
-- not have: a configuration may have the default of another vocabulary.
function chat_folder.ends_of(config, vocab)
  local id, ends = config.eos_token_id, {}
  for _, token in ipairs(type(id) == "table" and id or {id}) do
    if type(token) == "number" and token >= 0 and token < vocab then ends[#ends + 1] = token end
  end
  return ends
end

--- Returns the tokens that end an answer by generation_config.json, and that file's content; nil and nil without the file.
function chat_folder.generation_ends(folder, vocab)
  local path = folder .. "/generation_config.json"
  if not core.exists(path) then return nil, nil end
  return chat_folder.ends_of((json_file(path)), vocab), fs.read(path)
end

-- Returns the tokens that end an answer: those of generation_config.json, else of config.json, else the end token.
local function stop_tokens_of(folder, vocab, end_token)
  local ends = chat_folder.generation_ends(folder, vocab)
  local config = folder .. "/config.json"
  if (not ends or #ends == 0) and core.exists(config) then
    ends = chat_folder.ends_of(require("zt.ckpt.huggingface").token_ids((json_file(config))), vocab)
  end
  return ends and #ends > 0 and ends or {end_token}
end

--- Opens a folder of Hugging Face, which may be without a model. Returns {tokenizer =, chat = as chat_of, or nil, stop_tokens =
-- the list of tokens that end an answer, which may be empty, end_token = the token that ends a text, or nil}.
function chat_folder.open(path)
  if not core.exists(path) then fail("there is no folder '%s': give the folder of a model, or of its tokenizer", path) end
  local files = tokenizer_files.contents(path) or {}
  local tokenizer = chat_folder.tokenizer_of(files, path)
  if not tokenizer then
    fail("'%s' has no tokenizer (tokenizer.json or tokenizer.model): give the folder of a model as Hugging Face writes it", path)
  end
  local name = variables_of(files, path).eos_token
  local end_token = name and tokenizer:id_of(name)
  if name and not end_token then
    fail("'%s' names the end token '%s' (eos_token), which its tokenizer does not have: correct the file", path, name)
  end
  local stop_tokens = stop_tokens_of(path, tokenizer.vocab, end_token)
  return {tokenizer = tokenizer, chat = chat_folder.chat_of(files, path), stop_tokens = stop_tokens,
          end_token = end_token or stop_tokens[1]}
end

return chat_folder
