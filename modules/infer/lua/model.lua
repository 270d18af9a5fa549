--- Opens the model of a folder: of a run, of a checkpoint, or as Hugging Face writes it.

local ckpt = require "zt.ckpt"
local core = require "zt.core"
local data = require "zt.data"
local fail = require "zt.fail"
local fs = require "zt.fs"
local huggingface_folder = require "zt.ckpt.loading.huggingface_folder"
local incomplete = require "zt.ckpt.loading.incomplete"
local json_file = require "zt.ckpt.cmd.json_file"
local packed_folder = require "zt.infer.packed_folder"
local parameters = require "zt.infer.parameters"
local precisions = require "zt.infer.precisions"
local tokenizer_files = require "zt.ckpt.tokenizer_files"

local model = {}

local CONFIG = "tokenizer_config.json"
local BYTES = 256 -- tokens of a model of bytes, whose tokenizer needs no file
local TOKENIZERS = {"tokenizer.json", "tokenizer.model"} -- the files of one, the best first

-- Returns the tokenizer that the files {name = content} are of; nil if they hold none that is known here.
local function tokenizer_of(files, vocab, path)
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

-- Returns {source = of the template, name =, variables = those that it reads, such as bos_token} of a tokenizer's files; nil
-- without a template.
local function chat_of(files, path)
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

-- Returns the tokens that end a text, by a config.json: eos_token_id is a number or a list. Leaves out those that the model does
-- not have: a configuration may have the default of another vocabulary.
local function ends_of(config, vocab)
  local id, ends = config.eos_token_id, {}
  for _, token in ipairs(type(id) == "table" and id or {id}) do
    if type(token) == "number" and token >= 0 and token < vocab then ends[#ends + 1] = token end
  end
  return ends
end

-- Returns the files of a Hugging Face folder. A plan needs its config.json only.
local function files_of(path)
  if core.world.dry and not pcall(ckpt.safetensors, path) then return huggingface_folder.described(path) end
  return huggingface_folder.open(path, true)
end

-- Returns the tensors of a Hugging Face folder, and what belongs to them.
local function of_huggingface(path)
  local folder, files = huggingface_folder.of(path), files_of(path)
  local generation = folder .. "/generation_config.json"
  local has_generation = core.exists(generation)
  local ends = has_generation and ends_of((json_file(generation)), files.options.vocab) or {}
  return {
    options = files.options, dtype = precisions[files.dtype] or "fp32",
    stop_tokens = #ends > 0 and ends or ends_of(files.token_ids, files.options.vocab), files = tokenizer_files.contents(folder),
    names = files.names, read = files.read, check = files.check_copies,
    generation_config = has_generation and fs.read(generation) or nil,
    weights = files.weights, is_by_bitsandbytes = files.weights ~= nil,
  }
end

-- Returns the parameters of a checkpoint, and what its script says of them. A trainer of plain parameters loads its own parts.
local function of_checkpoint(path)
  local folder = incomplete.find(path)
  if not folder then
    if core.exists(path .. "/adapter_config.json") then
      fail("'%s' holds a LoRA adapter: give the folder of its model as the model, and this one as the adapter", path)
    end
    fail("there is no model in '%s': give the folder of a run that has saved a checkpoint, of a checkpoint, or of a model as "
      .. "Hugging Face writes it", path)
  end
  local checkpoint = ckpt.open(folder)
  local content = checkpoint:describe()
  local script = content.values.script or {}
  if not script.model then
    fail("'%s' does not record its model's options: nn.gpt or moe.gpt did not make the model from plain options. Make it in a "
      .. "script, load the checkpoint by ckpt.load, and give infer.engine the trainer", folder)
  end
  local dtype, names = nil, {}
  for _, tensor in ipairs(content.tensors) do
    local name = tensor.name:match "^model/(.*)"
    dtype = dtype or name and precisions[tensor.dtype]
    names[#names + 1] = name
  end
  return {
    options = script.model, dtype = dtype or "fp32", stop_tokens = ends_of(script.token_ids or {}, script.model.vocab),
    files = tokenizer_files.contents_of(script.tokenizer), names = names,
    read = function(_, name) return checkpoint:read("model/" .. name) end,
    load_parts = function(trainer) ckpt.load(folder, {model = trainer}, {only = {"^model/"}}) end,
  }
end

local function opened_of(path)
  if packed_folder.is_one(path) then return packed_folder.open(path) end
  return huggingface_folder.config(path) and of_huggingface(path) or of_checkpoint(path)
end

--- Opens a folder. adapter: nil, or the folder of a LoRA adapter, which is added to the parameters. Returns a table with
--   options                  of moe.gpt; `dtype`: of the parameters
--   stop_tokens              that end a text
--   tokenizer, chat          nil without; `chat` = {source =, name =, variables = that the template reads}
--   files                    {name = content} of the tokenizer; `generation_config`: the content of that file
--   weights                  the options of model:pack if matrices are packed
--   is_by_bitsandbytes       whether it has packed them: the head of a tied model is no matrix of its own then, and
--                            weights.nested may be set to false
--   names, read(place, name) of the parameters; `read` returns one
--   load(trainer, is_packed) sets them, collectively: whether some parameters of the trainer are packed
function model.open(path, adapter)
  if path:find "%.gguf$" then
    fail("'%s' is a file of llama.cpp (GGUF), which is not read here: give the model's folder as Hugging Face writes it", path)
  end
  if not core.exists(path) then fail("there is no folder '%s': give the folder of a model", path) end
  local opened = opened_of(path)
  if adapter then require("zt.ckpt.loading.adapter").add(opened, adapter, path) end
  opened.tokenizer = tokenizer_of(opened.files, opened.options.vocab, path)
  opened.chat = chat_of(opened.files, path)
  function opened.load(trainer, is_packed)
    if opened.load_parts and not is_packed then return opened.load_parts(trainer) end
    if opened.check then opened.check() end
    parameters.set(trainer, opened.names, opened.read)
  end
  return opened
end

return model
