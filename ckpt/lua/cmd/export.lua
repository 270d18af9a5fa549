-- ztoolkit ckpt export: writes the parameters of a checkpoint as safetensors.

local cli = require "zt.cli"
local core = require "zt.core"
local export_adapter = require "zt.ckpt.cmd.export_adapter"
local fail = require "zt.fail"
local folder_of = require "zt.ckpt.cmd.folder"
local huggingface = require "zt.ckpt.huggingface"
local json_file = require "zt.ckpt.cmd.json_file"
local lora = require "zt.ckpt.adapters.lora"
local merged = require "zt.ckpt.adapters.merged"
local moe = require "zt.moe"
local names = require "zt.ckpt.names"
local native = require "zt.ckpt"
local source_of = require "zt.ckpt.adapters.source"
local text = require "zt.text"
local tokenizer_files = require "zt.ckpt.tokenizer_files"

local PREFIX = "model/"

-- Returns {name = {dtype, shape}} of the tensors of the model's state, with names without PREFIX.
local function parameters_of(checkpoint)
  local found = {}
  for _, tensor in ipairs(checkpoint:describe().tensors) do
    if tensor.name:sub(1, #PREFIX) == PREFIX then found[tensor.name:sub(#PREFIX + 1)] = tensor end
  end
  return found
end

-- Returns the tensors to write under their own names: a list of {name, shape, dtype, parameter}.
local function plain_list(parameters)
  local list = {}
  for name, tensor in pairs(parameters) do
    list[#list + 1] = {name = name, shape = tensor.shape, dtype = tensor.dtype, parameter = name}
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

-- An error unless the checkpoint's parameters are exactly those of the model. vocab: the model's number of tokens.
local function check_model(parameters, model, vocab, path)
  local embedding, shapes = parameters["embedding.weight"], {}
  if embedding and embedding.shape[1] ~= vocab then
    fail("the options of the model in '%s' have vocab = %d, but the checkpoint's model has a vocabulary of %d tokens: give the "
      .. "options of that model", path, vocab, embedding.shape[1])
  end
  for name, tensor in pairs(parameters) do shapes[name] = tensor.shape end
  local lines = names.complaints(model:parameters(), shapes, {"not in the checkpoint", "not in the model"},
    function() return false end)
  if #lines > 0 then
    fail("the options of the model in '%s' are not those of the checkpoint's model:\n%s", path, table.concat(lines, "\n"))
  end
end

-- Returns the options of the model, and where they are from: the file that the user gave, or the checkpoint's record.
local function options_of(o, script)
  if o.model then return json_file(o.model), o.model end
  if script.model then return script.model, o.checkpoint end
  fail("'%s' does not record its model's options: it was saved by an older version, or nn.gpt or moe.gpt did not make the model "
    .. "from plain options. Give them by --model model.json", o.checkpoint)
end

-- Returns the tensors to write as Hugging Face names and divides them, and the model's config.json. A tensor may be a part of a
-- parameter's rows. parameters: of the checkpoint, without adapters. script: its record.
local function huggingface_list(parameters, o, script)
  local given, path = options_of(o, script)
  local options = {}
  for key, value in pairs(given) do options[key] = value end
  options.lora = nil -- adapters were added
  local model = moe.gpt(options) -- first: it knows misspelt options
  local config, form = huggingface.config(options) -- next: it says of an option why no such model has its tensors
  check_model(parameters, model, options.vocab, path)
  local list = names.by_tensor(names.map(form, huggingface.complete(options)))
  for _, part in ipairs(list) do part.dtype = parameters[part.parameter].dtype end
  if huggingface.add_token_ids(config, script.token_ids) then
    print("pad_token_id is null: texts also begin or end with that token, and transformers takes the value at the last token "
      .. "that is none of padding")
  end
  return list, config
end

local function list_of(parameters, o, script)
  if o.huggingface or o.model then return huggingface_list(parameters, o, script) end
  return plain_list(parameters)
end

-- Returns config.json. transformers refuses "1" for some numbers that it declares as floats: they must be "1.0".
local function encode(config)
  local json = core.json.encode(config)
  for _, key in ipairs{"router_aux_loss_coef", "factor", "low_freq_factor", "high_freq_factor"} do
    json = json:gsub(('("%s":%%s*%%d+)([,}%%s])'):format(key), "%1.0%2")
  end
  return json
end

-- Writes what belongs to the model besides its tensors: with names of Hugging Face's its config.json, and the tokenizer's files,
-- if the checkpoint has them. Returns the paths.
local function write_companions(o, config, script)
  local is_file = o.to:find "%.safetensors$" ~= nil
  if is_file and not config then return {} end
  local folder = is_file and (o.to:match "^(.*)/" or ".") or o.to
  local paths = tokenizer_files.write(script.tokenizer or {}, folder)
  if config then
    core.write_file(folder .. "/config.json", encode(config) .. "\n")
    table.insert(paths, 1, folder .. "/config.json")
    if script.stop_tokens and #script.stop_tokens > 0 then
      paths[#paths + 1] = folder .. "/generation_config.json"
      core.write_file(paths[#paths], core.json.encode{eos_token_id = script.stop_tokens} .. "\n")
    end
  end
  return paths
end

-- Returns a function that reads rows of a parameter, with its adapters added. adapters: by parameter.
local function reader_of(checkpoint, adapters)
  local function read(name) return checkpoint:read(PREFIX .. name) end
  return function(parameter, first, rows)
    local values = first and checkpoint:read_rows(PREFIX .. parameter, first, rows) or read(parameter)
    if not adapters[parameter] then return values end
    return merged(values, first or 0, adapters[parameter], read)
  end
end

local function provider(read_rows, list)
  local by_name = {}
  for _, part in ipairs(list) do by_name[part.name] = part end
  return function(name)
    local part = by_name[name]
    if not part.rows then return read_rows(part.parameter):to(part.dtype) end
    return names.part_of(part, read_rows(part.parameter, part.first, part.rows)):to(part.dtype)
  end
end

-- Returns the adapters of the checkpoint by their matrices, and leaves their tensors out of `parameters`. An error unless --merge
-- says what becomes of them. The tensors of adapters keep their names if no options tell of them.
local function taken_adapters(parameters, o, script, packed)
  if packed then
    fail("the base of '%s' is packed, as %s, and a checkpoint does not have packed matrices: write the adapters by --adapter, "
      .. "and add them to the plain base (infer.engine{model = BASE, adapter = FOLDER})", o.checkpoint, source_of.text_of(packed))
  end
  local options = o.model and json_file(o.model) or script.model
  if not options or not options.lora then
    if not o.merge then return {} end
    fail("'%s' has no adapters by the options of its model, so there is nothing to merge: leave --merge out", o.checkpoint)
  end
  if not o.merge then
    fail("the model of '%s' has adapters (lora), which plain weights have not: give --merge to add them to the weights, or "
      .. "--adapter to write them as PEFT's files", o.checkpoint)
  end
  local tensors = {}
  for name, tensor in pairs(parameters) do tensors[#tensors + 1] = {name = name, shape = tensor.shape} end
  local by_matrix = {}
  for _, adapter in ipairs(lora.list(options, tensors)) do
    if adapter.target == "head" and adapter.parameter == "embedding.weight" then
      fail("the head of '%s' is tied to the embedding, and its adapter is the head's alone, so the sum would change the "
        .. "embedding, too: write the adapter by --adapter", o.checkpoint)
    end
    by_matrix[adapter.parameter] = by_matrix[adapter.parameter] or {}
    table.insert(by_matrix[adapter.parameter], adapter)
    parameters[adapter.name .. ".a"], parameters[adapter.name .. ".b"] = nil, nil
  end
  return by_matrix
end

-- Writes plain weights.
local function write_weights(o, checkpoint, script)
  local parameters = parameters_of(checkpoint)
  local adapters = taken_adapters(parameters, o, script, source_of.packed_of(checkpoint:describe()))
  local list, config = list_of(parameters, o, script)
  if #list == 0 then fail("the checkpoint has no parameters: nothing is named '%s...'", PREFIX) end
  local dtype = o.dtype ~= "saved" and o.dtype:gsub("fp?", "float") -- "float64", "bfloat16"
  for _, part in ipairs(list) do
    if dtype and part.dtype:find "^b?float" then part.dtype = dtype end
  end
  local announced, provide = {}, provider(reader_of(checkpoint, adapters), list)
  for index, part in ipairs(list) do announced[index] = {name = part.name, shape = part.shape, dtype = part.dtype} end
  local written = native.write_safetensors(o.to, announced, o.shard_bytes, provide, nil, o.overwrite)
  for _, path in ipairs(write_companions(o, config, script)) do written[#written + 1] = path end
  for _, path in ipairs(written) do print("wrote " .. path) end
  print(("%s tensors"):format(text.count(#list)))
end

return function()
  local o = cli{
    name = "ckpt export", usage = "ztoolkit ckpt export",
    about = "Writes the model of a checkpoint as safetensors, with one tensor in memory at a time.",
    options = {
      {"format", "safetensors", "the format to write; only this one", one_of = {"safetensors"}},
      {"dtype", "saved", "the dtype of floating-point tensors", one_of = {"saved", "fp64", "fp32", "bf16", "fp16"}},
      {"shard_bytes", 5e9, "the most bytes of tensors per file of a folder; a larger tensor gets its own file", at_least = 1},
      {"overwrite", false, "replaces a model that is there already"},
      {"huggingface", false, "writes names, config.json and the tokenizer's files as Hugging Face does"},
      {"model", nil, "the same, with the options of nn.gpt or moe.gpt in this JSON file instead of those in the checkpoint",
       type = "string"},
      {"merge", false, "adds the model's adapters (lora) to its weights"},
      {"adapter", false, "writes the model's adapters as PEFT's files, in place of weights"},
      {"base_model", nil, "with --adapter: name or path of the base, which PEFT loads", type = "string"},
    },
    positional = {
      {"checkpoint", "a checkpoint's folder, or a run's folder for its latest one"},
      {"to", "a file NAME.safetensors, or a folder, which gets model.safetensors or several files and their index"},
    },
  }
  local checkpoint = native.open(folder_of(o.checkpoint))
  local script = checkpoint:describe().values.script or {}
  if o.adapter then return export_adapter(o, checkpoint, script) end
  if o.base_model then fail "--base-model is a field of adapter_config.json, which only --adapter writes: leave it out" end
  write_weights(o, checkpoint, script)
end
