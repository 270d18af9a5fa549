--- Opens the model of a folder: of a run, of a checkpoint, with packed matrices, or as Hugging Face writes it.

local chat_folder = require "zt.data.chat_folder"
local ckpt = require "zt.ckpt"
local core = require "zt.core"
local data = require "zt.data"
local fail = require "zt.fail"
local huggingface_folder = require "zt.ckpt.loading.huggingface_folder"
local incomplete = require "zt.ckpt.loading.incomplete"
local log = require "zt.log"
local packed = require "zt.ckpt.pretrained.packed"
local parameters = require "zt.ckpt.pretrained.parameters"
local precisions = require "zt.ckpt.pretrained.precisions"
local source_of = require "zt.ckpt.adapters.source"
local tokenizer_files = require "zt.ckpt.tokenizer_files"

local folder = {}

local BYTES = 256 -- tokens of a model of bytes, whose tokenizer needs no file

-- Returns the tokenizer that the files {name = content} are of; nil if they hold none that is known here.
local function tokenizer_of(files, vocab, path)
  if files then return chat_folder.tokenizer_of(files, path) end
  return vocab == BYTES and data.tokenizer.bytes() or nil
end

-- Returns the files of a Hugging Face folder. A plan needs its config.json only.
local function files_of(path)
  if core.world.dry and not pcall(ckpt.safetensors, path) then return huggingface_folder.described(path) end
  return huggingface_folder.open(path, true)
end

-- Returns the tensors of a Hugging Face folder, and what belongs to them.
local function of_huggingface(path)
  local place, files = huggingface_folder.of(path), files_of(path)
  if files.note and core.world.rank == 0 then log.info("%s: %s", path, files.note) end
  local ends, generation = chat_folder.generation_ends(place, files.options.vocab)
  return {
    options = files.options, dtype = precisions[files.dtype] or "fp32",
    stop_tokens = chat_folder.recorded_ends({stop_tokens = ends, token_ids = files.token_ids}, files.options.vocab),
    files = tokenizer_files.contents(place),
    names = files.names, read = files.read, check = files.check_values,
    generation_config = generation,
    weights = files.weights, is_by_bitsandbytes = files.weights ~= nil,
    record = {token_ids = files.token_ids, tokenizer = tokenizer_files.of_folder(place), stop_tokens = ends},
  }
end

-- Loads the parts of a checkpoint's parameters that each rank has. Adapters that the checkpoint lacks stay as they are.
local function load_checkpoint(place, trainer, has_adapters)
  local names = has_adapters and "^model/" or "^model/(?!(.*[.])?lora[.][^.]+[.][ab]$)"
  ckpt.load(place, {model = trainer}, {only = {names}})
end

-- Returns the folder of the checkpoint that a path means.
local function checkpoint_of(path)
  local place = incomplete.find(path)
  if place then return place end
  if core.exists(path .. "/adapter_config.json") then
    fail("'%s' holds a LoRA adapter: give the folder of its model as the model, and this one as the adapter, or make a run of "
      .. "both by ztoolkit ckpt import --adapter %s RUN --base MODEL", path, path)
  end
  fail("there is no model in '%s': give the folder of a run that has saved a checkpoint, of a checkpoint, or of a model as "
    .. "Hugging Face writes it", path)
end

-- Returns the parameters of a checkpoint, and what its script says of them. A trainer of plain parameters loads its own parts.
local function of_checkpoint(path)
  local place = checkpoint_of(path)
  local checkpoint = ckpt.open(place)
  local content = checkpoint:describe()
  local script = content.values.script or {}
  if not script.model then
    fail("'%s' does not record its model's options: nn.gpt or moe.gpt did not make the model from plain options. Make it in a "
      .. "script, load the checkpoint by ckpt.load, and give infer.engine the trainer", place)
  end
  local formats = source_of.packed_of(content)
  if formats then
    fail("the base of the model in '%s' is packed, as %s, and the checkpoint does not have it: write the adapters by ztoolkit "
      .. "ckpt export --adapter, and give the plain base as the model and that folder as the adapter", place,
      source_of.text_of(formats))
  end
  local dtype, names, has_adapters = nil, {}, script.model.lora ~= nil
  for _, tensor in ipairs(content.tensors) do
    local name = tensor.name:match "^model/(.*)"
    dtype = dtype or name and precisions[tensor.dtype]
    names[#names + 1] = name
  end
  return {
    options = script.model, dtype = dtype or "fp32",
    stop_tokens = chat_folder.recorded_ends(script, script.model.vocab),
    files = tokenizer_files.contents_of(script.tokenizer), names = names,
    record = {token_ids = script.token_ids, tokenizer = script.tokenizer, stop_tokens = script.stop_tokens},
    read = function(_, name) return checkpoint:read("model/" .. name) end,
    load_parts = function(trainer) load_checkpoint(place, trainer, has_adapters) end,
  }
end

local function opened_of(path)
  if packed.is_one(path) then return packed.open(path) end
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
--   record                   {token_ids =, tokenizer =, stop_tokens =} as a checkpoint records them; nil of packed matrices
--   load(trainer, is_other, is_wanted)  sets them, collectively. is_other: whether the trainer has some in another form than the
--                            folder, packed or with a head of its own; is_wanted(name): whether to set this one, by default all
function folder.open(path, adapter)
  if path:find "%.gguf$" then
    fail("'%s' is a file of llama.cpp (GGUF), which is not read here: give the model's folder as Hugging Face writes it", path)
  end
  if not core.exists(path) then fail("there is no folder '%s': give the folder of a model", path) end
  local opened = opened_of(path)
  if adapter then require("zt.ckpt.loading.adapter").add(opened, adapter, path) end
  opened.tokenizer = tokenizer_of(opened.files, opened.options.vocab, path)
  opened.chat = opened.files and chat_folder.chat_of(opened.files, path) or nil
  function opened.load(trainer, is_other, is_wanted)
    if opened.load_parts and not is_other then return opened.load_parts(trainer) end
    if opened.check then opened.check() end
    parameters.set(trainer, opened.names, opened.read, is_wanted)
  end
  return opened
end

return folder
