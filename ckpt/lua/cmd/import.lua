-- ztoolkit ckpt import: makes a checkpoint from safetensors.

local chat_folder = require "zt.data.chat_folder"
local cli = require "zt.cli"
local core = require "zt.core"
local fail = require "zt.fail"
local huggingface_folder = require "zt.ckpt.loading.huggingface_folder"
local import_adapter = require "zt.ckpt.cmd.import_adapter"
local json_file = require "zt.ckpt.cmd.json_file"
local native = require "zt.ckpt"
local patterns = require "zt.ckpt.loading.patterns"
local text = require "zt.text"
local tokenizer_files = require "zt.ckpt.tokenizer_files"

-- An error unless the names can be those of a checkpoint's tensors. path: the files, for messages. old, new: lists of names, in
-- the files and here.
local function check_names(path, old, new)
  local original = {}
  for index, name in ipairs(new) do
    if original[name] then
      fail("'%s' has the tensors '%s' and '%s', and both would become '%s': change --map so that their names differ", path,
        original[name], old[index], name)
    end
    original[name] = old[index]
  end
  for index, name in ipairs(new) do
    for slash in name:gmatch "()/" do
      local above = name:sub(1, slash - 1)
      if original[above] then
        fail("'%s' has the tensors '%s' and '%s', but in a checkpoint '/' makes a group, and '%s' cannot be a group and a "
          .. [[tensor: rename one with --map map.json, a JSON file such as {"^%s$": "%s"}]], path, original[above],
          old[index], above, old[index], (name:gsub("/", ".")))
      end
    end
  end
end

-- Prepares the import of a model of Hugging Face's as parameters of moe.gpt, and checks everything but the values. Returns a
-- function that adds the parameters to an import and returns their number; what export needs of the model: the options of
-- moe.gpt, the ids of special tokens, the tokenizer's files; and a line about a head that is left out, or nil.
local function prepare_model(path, takes_value)
  local model, place = huggingface_folder.open(path, false, takes_value), huggingface_folder.of(path)
  return function(import)
    model.check_values()
    for number, name in ipairs(model.names) do import:add("model/" .. name, model.read(number)) end
    return #model.names
  end, {model = model.options, token_ids = model.token_ids, tokenizer = tokenizer_files.of_folder(place),
        stop_tokens = chat_folder.generation_ends(place, model.options.vocab)}, model.note
end

-- Prepares the import of any other model: its tensors, renamed by `map`. Returns a function as prepare_model does.
local function prepare_tensors(model, map, path)
  local list, old = model:tensors(), {}
  for index, tensor in ipairs(list) do old[index] = tensor.name end
  local new = patterns.renamed("--map", old, map, ("'%s'"):format(path))
  check_names(path, old, new)
  return function(import)
    for index, name in ipairs(old) do import:add("model/" .. new[index], model:read(name)) end
    return #list
  end
end

-- Writes the checkpoint, and returns its folder and the number of its tensors. Leaves no folder if it fails. record: what export
-- needs of the model, or nil.
local function write(o, add, record)
  local import = native.import(o.to, o.step)
  local function fill()
    local count = add(import)
    local script = {imported = o.from}
    for key, value in pairs(record or {}) do script[key] = value end
    return import:finish{script = script}, count
  end
  local is_done, folder, count = pcall(fill)
  if is_done then return folder, count end
  import:abandon()
  error(folder, 0)
end

-- Returns the expressions and replacements of the file of --map.
local function map_of(path)
  local map = json_file(path)
  for _, replacement in pairs(map) do
    if type(replacement) ~= "string" then
      fail("'%s' has to hold {regular expression: replacement}, got the replacement %s", path, core.json.encode(replacement))
    end
  end
  return map
end

local function check_target(folder)
  if #native.list(folder) > 0 then
    fail("there are checkpoints in '%s', and that run would resume from the import: give a new folder", folder)
  end
end

-- An error for options that do not go together.
local function check_options(o)
  if o.adapter and not o.base then
    fail "--adapter needs --base: the model that the adapter was trained with, as a folder of Hugging Face's or a checkpoint"
  end
  if o.base and not o.adapter then fail "--base belongs to an adapter: give --adapter, too, or leave it out" end
  if o.map and o.head ~= "same" then fail "--head is for a model with config.json, which --map ignores: leave one of them out" end
  if o.adapter and o.map then fail "--map is for tensors without config.json, and --adapter knows their names: leave it out" end
  if core.exists(o.from .. "/packed.json") then
    fail("'%s' holds packed matrices, of which a checkpoint has none: import the model that they were made from", o.from)
  end
  if not o.adapter and core.exists(o.from .. "/adapter_config.json") then
    fail("'%s' holds a LoRA adapter, which is no model by itself: give --adapter --base BASE", o.from)
  end
end

-- Returns a function that adds the tensors to an import and returns their number; what export needs of the model, or nil; and
-- what to say of the tensors, or nil.
local function prepare(o)
  if o.adapter then return import_adapter(o) end
  if not o.map and huggingface_folder.config(o.from) then return prepare_model(o.from, o.head == "value") end
  local note = not o.map and "no config.json is beside them: tensors keep their names" or nil
  if o.head ~= "same" then
    fail("there is no config.json beside '%s', so nothing is known of a head: leave --head out to import the tensors as they are",
      o.from)
  end
  return prepare_tensors(native.safetensors(o.from), o.map and map_of(o.map) or {}, o.from), nil, note
end

return function()
  local o = cli{
    name = "ckpt import", usage = "ztoolkit ckpt import",
    about = "Makes a checkpoint from safetensors. If a config.json of Hugging Face's GPT-2, Llama, Mistral, Qwen2, Qwen3, "
      .. "Mixtral or Qwen3-MoE is in their folder, they become the parameters of moe.gpt (nn.gpt with experts), and its options "
      .. "are written to model.json. Other tensors keep their names.",
    options = {
      {"format", "safetensors", "the format to read; only this one", one_of = {"safetensors"}},
      {"map", nil, "a JSON file {regular expression: replacement} for tensors' names; config.json is ignored", type = "string"},
      {"adapter", false, "reads a LoRA adapter as PEFT saves it, and makes a checkpoint of its base with adapters"},
      {"base", nil, "with --adapter: its base, a folder of Hugging Face's, a checkpoint, or a run for its latest one",
       type = "string"},
      {"head", "same", "the model's head: that of config.json, or value: TRL's v_head in place of a language model's head; of an "
       .. "adapter, the score that was trained with it", one_of = {"same", "value"}},
      {"step", 0, "the step that the checkpoint is named after", at_least = 0},
    },
    positional = {
      {"from", "a file NAME.safetensors, an index NAME.safetensors.index.json, or a folder with one of them"},
      {"to", "the folder of a run, in which to make the checkpoint"},
    },
  }
  check_target(o.to)
  check_options(o)
  local add, record, note = prepare(o)
  local folder, count = write(o, add, record)
  print(("%s: %s tensors"):format(folder, text.count(count)))
  if note then print(note) end
  if record then
    core.write_file(o.to .. "/model.json", core.json.encode(record.model) .. "\n")
    print(("%s/model.json: the options of %s for it"):format(o.to, record.model.moe and "moe.gpt" or "nn.gpt"))
  end
end
