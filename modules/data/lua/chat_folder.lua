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

--- Returns the tokens that end an answer by what a checkpoint records: its stop_tokens, else the end of its token_ids. vocab: as
-- above.
function chat_folder.recorded_ends(record, vocab)
  local ends = chat_folder.ends_of({eos_token_id = record.stop_tokens}, vocab)
  return #ends > 0 and ends or chat_folder.ends_of(record.token_ids or {}, vocab)
end

--- Returns the tokens that end an answer by generation_config.json, and that file's content; nil and nil without the file.
function chat_folder.generation_ends(folder, vocab)
  local path = folder .. "/generation_config.json"
  if not core.exists(path) then return nil, nil end
  return chat_folder.ends_of((json_file(path)), vocab), fs.read(path)
end

-- Returns the files of the tokenizer in a folder, and token_ids and stop_tokens as a checkpoint records them: of a folder as
-- Hugging Face writes it, or of the newest checkpoint of a run.
local function parts_of(path)
  local files = tokenizer_files.contents(path)
  if files then
    local config = path .. "/config.json"
    local ids = core.exists(config) and require("zt.ckpt.huggingface").token_ids((json_file(config))) or nil
    return files, {token_ids = ids, stop_tokens = chat_folder.generation_ends(path, math.huge)}
  end
  local place = require("zt.ckpt.loading.incomplete").find(path)
  local script = place and require("zt.ckpt").open(place):describe().values.script or {}
  return tokenizer_files.contents_of(script.tokenizer) or {}, script
end

--- Opens a folder of Hugging Face, which may be without a model, or that of a run. Returns {files = {name = content},
-- tokenizer =, chat = as chat_of, or nil, token_ids = of special tokens, or nil, stop_tokens = the list of tokens that end an
-- answer, which may be empty, end_token = the token that ends a text, or nil}.
function chat_folder.open(path)
  if not core.exists(path) then fail("there is no folder '%s': give the folder of a model, or of its tokenizer", path) end
  local files, record = parts_of(path)
  local tokenizer = chat_folder.tokenizer_of(files, path)
  if not tokenizer then
    fail("'%s' has no tokenizer (tokenizer.json or tokenizer.model): give the folder of a model as Hugging Face writes it, or "
      .. "of a run whose checkpoints keep one", path)
  end
  local name = variables_of(files, path).eos_token
  local end_token = name and tokenizer:id_of(name)
  if name and not end_token then
    fail("'%s' names the end token '%s' (eos_token), which its tokenizer does not have: correct the file", path, name)
  end
  local stop_tokens = chat_folder.recorded_ends(record, tokenizer.vocab)
  if #stop_tokens == 0 then stop_tokens = {end_token} end
  return {files = files, tokenizer = tokenizer, chat = chat_folder.chat_of(files, path), token_ids = record.token_ids,
          stop_tokens = stop_tokens, end_token = end_token or stop_tokens[1]}
end

return chat_folder
