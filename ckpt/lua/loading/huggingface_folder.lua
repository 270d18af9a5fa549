--- Reads a model in a folder as Hugging Face writes it: the options of moe.gpt and its parameters, one at a time.

local bitsandbytes = require "zt.ckpt.loading.bitsandbytes"
local core = require "zt.core"
local fail = require "zt.fail"
local huggingface = require "zt.ckpt.huggingface"
local json_file = require "zt.ckpt.cmd.json_file"
local model_head = require "zt.ckpt.config.model_head"
local moe = require "zt.moe"
local names = require "zt.ckpt.names"
local native = require "zt.ckpt"

local huggingface_folder = {}

--- Returns the folder of safetensors files that a user names by itself or by one of them.
function huggingface_folder.of(path)
  local is_file = path:find "%.safetensors$" or path:find "%.json$"
  return is_file and (path:match "^(.*)/" or ".") or path
end

--- Returns the path of the config.json in the files' folder, or nil.
function huggingface_folder.config(path)
  local file = huggingface_folder.of(path) .. "/config.json"
  return core.exists(file) and file or nil
end

-- An error unless moe.gpt accepts the options: model.json must be usable with it.
local function check_options(options, config)
  local is_right, message = pcall(moe.gpt, options)
  if not is_right then fail("%s describes a model that moe.gpt does not make: %s", config, message) end
end

-- An error for a Mistral that does not say whether it has a window: null is none, but a missing key is one of 4096 tokens in
-- transformers. `content` is the same in both cases.
local function check_window(content, source, config)
  if content.model_type ~= "mistral" or source:find('"sliding_window"', 1, true) then return end
  fail([[%s has no 'sliding_window', so it is not known which tokens attention sees: add "sliding_window": null for all, or a ]]
    .. "number of tokens", config)
end

-- Returns whether matrices are quantised by bitsandbytes. An error for another method, such as GPTQ.
local function is_of_bitsandbytes(content, config)
  local quantised = content.quantization_config
  if quantised == nil then return false end
  local method = type(quantised) == "table" and quantised.quant_method or "an unknown method"
  if method == "bitsandbytes" then
    bitsandbytes.check(quantised, config)
    return true
  end
  fail("%s: the model is quantised by %s, which is not read here: take the model with plain weights, and pack it by ztoolkit "
    .. "quantise", config, tostring(method))
end

-- Returns the options of moe.gpt and the form of a model.
local function options_of(content, config)
  local plain = {}
  for key, value in pairs(content) do plain[key] = value end
  plain.quantization_config = nil
  return huggingface.options(plain, config)
end

-- Returns the dtype of the first tensor that is none of a quantised matrix. list: of all tensors; shapes: those of plain ones.
local function dtype_of(list, shapes, matrices)
  for _, tensor in ipairs(list) do
    if shapes[tensor.name] and not (matrices and matrices:has(tensor.name)) then return tensor.dtype end
  end
end

--- Returns what config.json says by itself, as `open` does, without parameters: for plans of models that are not here.
function huggingface_folder.described(path)
  local config = huggingface_folder.config(path)
  local content, source = json_file(config)
  local is_quantised = is_of_bitsandbytes(content, config)
  check_window(content, source, config)
  local options, form = options_of(content, config)
  check_options(options, config)
  local map = is_quantised and names.map(form, huggingface.complete(options))
  local weights = map and bitsandbytes.described(content, map):format(map) or nil
  return {weights = weights, options = options, token_ids = huggingface.token_ids(content), names = {},
          dtype = content.dtype or content.torch_dtype or "float32"}
end

--- Opens the files at `path` and checks everything but the values. Returns {options = those of moe.gpt, token_ids =, names = of
-- the parameters, dtype = of the first tensor, note = a line about a head that is left out, or nil}, with the functions
-- `check_values()`, which fails if tensors that are one differ, and `read(place)`, which returns the parameter names[place].
-- Matrices that bitsandbytes has quantised are read as the numbers that they stand for; with keeps_packed, as bytes, if
-- `weights`, the options of model:pack for the model, are there. takes_value: the model gets the value head that the files have
-- beside that of a language model.
function huggingface_folder.open(path, keeps_packed, takes_value)
  local config, files, shapes = huggingface_folder.config(path), native.safetensors(path), {}
  local content, source = json_file(config)
  local is_quantised = is_of_bitsandbytes(content, config)
  check_window(content, source, config)
  local options, form = options_of(content, config)
  local list = files:tensors()
  for _, tensor in ipairs(list) do shapes[tensor.name] = tensor.shape end
  local matrices = is_quantised and bitsandbytes.open(files, shapes, form == "gpt2") or nil
  if takes_value then model_head.take_value(options, shapes, path, function(name) return files:read(name) end) end
  local map, copies = names.fit(form, options, shapes, config)
  check_options(options, config)
  local opened = {options = options, token_ids = huggingface.token_ids(content), names = {},
                  note = model_head.note(options, shapes),
                  dtype = dtype_of(list, shapes, matrices), weights = keeps_packed and matrices and matrices:format(map) or nil}
  for place, entry in ipairs(map) do opened.names[place] = entry.name end
  local function tensor_of(name) return matrices and matrices:has(name) and matrices:values(name) or files:read(name) end
  function opened.check_values()
    for copy, original in pairs(copies) do
      if not core.op "equal"(files:read(copy), files:read(original)) then
        fail("'%s' and '%s' differ, and %s says that they are one tensor (tie_word_embeddings)", copy, original, config)
      end
    end
  end
  function opened.read(place)
    local entry, weights = map[place], opened.weights
    if weights and entry.is_packed then return matrices:bytes(entry, weights.nested) end
    return names.join(entry, tensor_of)
  end
  return opened
end

return huggingface_folder
