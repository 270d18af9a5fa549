--- Models saved by Hugging Face's transformers, with the logits that it computes (tests/oracle/make_huggingface.py).

local lu = require "luaunit"
local zt = require "zt"
local huggingface = require "zt.ckpt.huggingface"
local names = require "zt.ckpt.names"
local safetensors = require "support.safetensors"

local models = {
  FOLDER = "tests/golden/huggingface/",
  NAMES = {"gpt2", "gpt2_untied", "llama", "llama_tied", "mixtral", "qwen3_moe", "qwen3_moe_stacked", "llama3", "mistral",
           "qwen2", "qwen3", "mixtral_window"},
}

-- The largest allowed error of logits per precision, relative to the largest logit.
models.BOUNDS = {{"fp32", 1e-5}, {"fp64", 1e-12}}

function models.read_json(path) return zt.json.decode(zt.fs.read(path)) end

function models.config_of(name) return models.read_json(models.FOLDER .. name .. "/config.json") end

--- Returns {tokens, logits_fp32, logits_fp64}.
function models.expected_of(name) return safetensors.read(models.FOLDER .. name .. "/expected.safetensors") end

--- Returns all tensors of a model, from its one file or from the files of its index.
function models.tensors_of(name)
  local folder = models.FOLDER .. name .. "/"
  if zt.exists(folder .. "model.safetensors") then return safetensors.read(folder .. "model.safetensors") end
  local all = {}
  for _, file in pairs(models.read_json(folder .. "model.safetensors.index.json").weight_map) do
    for tensor, values in pairs(safetensors.read(folder .. file)) do all[tensor] = values end
  end
  return all
end

--- Returns the tensors with one name per expert, as transformers saves them by default, instead of one tensor per layer.
function models.unstacked(tensors)
  local all = {}
  for name, values in pairs(tensors) do
    local experts, kind = name:match "^(.*%.experts%.)(%a+_%a*_?proj)$"
    if not experts then all[name] = values end
    for expert = 0, experts and values:size(0) - 1 or -1 do
      local matrix, rows = values:select(0, expert), values:size(1) / 2
      local prefix = experts .. expert .. "."
      if kind == "down_proj" then
        all[prefix .. "down_proj.weight"] = matrix
      else
        all[prefix .. "gate_proj.weight"] = matrix:narrow(0, 0, rows)
        all[prefix .. "up_proj.weight"] = matrix:narrow(0, rows, rows)
      end
    end
  end
  return all
end

--- Returns the largest difference, relative to the largest wanted number.
function models.distance(got, wanted)
  lu.assertEquals(got:size(), wanted:size())
  return ((got - wanted):abs():max() / wanted:abs():max()):item()
end

--- Returns the shapes that a map of zt.ckpt.names expects, by the names of the file's tensors.
function models.shapes_of_map(map)
  local shapes = {}
  for _, tensor in ipairs(names.by_tensor(map)) do shapes[tensor.name] = tensor.shape end
  return shapes
end

--- Asserts that the config.json of a model is refused with a message, after these changes.
function models.check_refused(name, changes, message)
  local config = models.config_of(name)
  for key, value in pairs(changes) do config[key] = value end
  lu.assertErrorMsgContains(message, huggingface.options, config)
end

return models
