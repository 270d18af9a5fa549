--- Models saved by Hugging Face's transformers, with the logits that it computes (tests/oracle/make_huggingface.py).

local lu = require "luaunit"
local zt = require "zt"
local safetensors = require "support.safetensors"

local models = {FOLDER = "tests/golden/huggingface/", NAMES = {"gpt2", "gpt2_untied", "llama", "llama_tied"}}

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

--- Returns the largest difference, relative to the largest wanted number.
function models.distance(got, wanted)
  lu.assertEquals(got:size(), wanted:size())
  return ((got - wanted):abs():max() / wanted:abs():max()):item()
end

return models
