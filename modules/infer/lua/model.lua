--- Opens the model of a folder: of a run, of a checkpoint, or as Hugging Face writes it.

local ckpt = require "zt.ckpt"
local core = require "zt.core"
local data = require "zt.data"
local fail = require "zt.fail"
local huggingface_folder = require "zt.ckpt.loading.huggingface_folder"
local incomplete = require "zt.ckpt.loading.incomplete"
local json_file = require "zt.ckpt.cmd.json_file"
local precisions = require "zt.infer.precisions"
local tokenizer_files = require "zt.ckpt.tokenizer_files"

local model = {}

local BYTES = 256 -- tokens of a model of bytes, whose tokenizer needs no file
local PIECES = "tokenizer.model"

-- Returns the tokenizer that the files {name = content} are of; nil if they hold none that is known here.
local function tokenizer_of(files, vocab, path)
  if files and files[PIECES] then return data.tokenizer.parse(files[PIECES], path .. "/" .. PIECES) end
  if not files and vocab == BYTES then return data.tokenizer.bytes() end
  return nil
end

-- Returns the tokens that end a text, by a config.json: eos_token_id is a number or a list.
local function ends_of(config)
  local id = config.eos_token_id
  if type(id) == "table" then return id end
  return type(id) == "number" and id == id and {id} or {}
end

local function of_huggingface(path)
  local folder, files = huggingface_folder.of(path), huggingface_folder.open(path)
  local generation = folder .. "/generation_config.json"
  local ends = core.exists(generation) and ends_of((json_file(generation))) or {}
  return {
    options = files.options, dtype = precisions[files.dtype] or "fp32",
    stop_tokens = #ends > 0 and ends or ends_of(files.token_ids),
    tokenizer = tokenizer_of(tokenizer_files.contents(folder), files.options.vocab, folder),
    load = function(trainer)
      files.check_copies()
      for place, name in ipairs(files.names) do
        core.scope(function() trainer:set_parameter(name, files.read(place)) end)
      end
    end,
  }
end

local function of_checkpoint(path)
  local folder = incomplete.find(path)
  if not folder then
    fail("there is no model in '%s': give the folder of a run, of a checkpoint, or of a model as Hugging Face writes it", path)
  end
  local content = ckpt.open(folder):describe()
  local script = content.values.script or {}
  if not script.model then
    fail("'%s' does not record its model's options: nn.gpt or moe.gpt did not make the model from plain options. Make it in a "
      .. "script, load the checkpoint by ckpt.load, and give infer.engine the trainer", folder)
  end
  local dtype
  for _, tensor in ipairs(content.tensors) do
    if not dtype and tensor.name:find "^model/" then dtype = precisions[tensor.dtype] end
  end
  return {
    options = script.model, dtype = dtype or "fp32", stop_tokens = ends_of(script.token_ids or {}),
    tokenizer = tokenizer_of(tokenizer_files.contents_of(script.tokenizer), script.model.vocab, folder),
    load = function(trainer) ckpt.load(folder, {model = trainer}, {only = {"^model/"}}) end,
  }
end

--- Returns {options = of moe.gpt, dtype = of its parameters, stop_tokens = that end a text, tokenizer = or nil}, with the
-- function `load(trainer)`, which is collective.
function model.open(path)
  if not core.exists(path) then fail("there is no folder '%s': give the folder of a model", path) end
  return huggingface_folder.config(path) and of_huggingface(path) or of_checkpoint(path)
end

return model
