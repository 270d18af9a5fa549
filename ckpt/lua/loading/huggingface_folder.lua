--- Reads a model in a folder as Hugging Face writes it: the options of moe.gpt and its parameters, one at a time.

local core = require "zt.core"
local fail = require "zt.fail"
local huggingface = require "zt.ckpt.huggingface"
local json_file = require "zt.ckpt.cmd.json_file"
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

-- An error for a model whose matrices are quantised, as by GPTQ or bitsandbytes.
local function check_plain(content, config)
  local quantised = content.quantization_config
  if quantised == nil then return end
  local method = type(quantised) == "table" and quantised.quant_method or "an unknown method"
  fail("%s: the model is quantised by %s, which is not read here: take the model with plain weights, and pack it by ztoolkit "
    .. "quantise", config, tostring(method))
end

--- Opens the files at `path` and checks everything but the values. Returns {options = those of moe.gpt, token_ids =, names = of
-- the parameters, dtype = of the first tensor}, with the functions `check_copies()`, which fails if tensors that are one differ,
-- and `read(place)`, which returns the parameter names[place].
function huggingface_folder.open(path)
  local config, files, shapes = huggingface_folder.config(path), native.safetensors(path), {}
  local content, source = json_file(config)
  check_plain(content, config)
  check_window(content, source, config)
  local options, form = huggingface.options(content, config)
  local list = files:tensors()
  for _, tensor in ipairs(list) do shapes[tensor.name] = tensor.shape end
  local map, copies = names.fit(form, options, shapes, config)
  check_options(options, config)
  local opened = {options = options, token_ids = huggingface.token_ids(content), names = {}, dtype = list[1].dtype}
  for place, entry in ipairs(map) do opened.names[place] = entry.name end
  local function tensor_of(name) return files:read(name) end
  function opened.check_copies()
    for copy, original in pairs(copies) do
      if not core.op "equal"(files:read(copy), files:read(original)) then
        fail("'%s' and '%s' differ, and %s says that they are one tensor (tie_word_embeddings)", copy, original, config)
      end
    end
  end
  function opened.read(place) return names.join(map[place], tensor_of) end
  return opened
end

return huggingface_folder
