--- Folders of models whose matrices are packed: packed.json describes the model and the formats, model.safetensors (or several
-- files with an index) has the tensors under the names of moe.gpt: packed ones as bytes, by modules/gemm/PACKED.md.

local core = require "zt.core"
local fail = require "zt.fail"
local json_file = require "zt.ckpt.cmd.json_file"
local native = require "zt.ckpt"
local tokenizer_files = require "zt.ckpt.tokenizer_files"

--- The file that describes a packed model, and the version that is written and read.
local packed = {DESCRIPTION = "packed.json", VERSION = 2}

--- Returns whether a folder holds a packed model.
function packed.is_one(path) return core.exists(path .. "/" .. packed.DESCRIPTION) end

--- Returns what the folder holds, as folder.open does, with `weights`. Its matrices are packed; `load` takes them as they are.
function packed.open(path)
  local content = json_file(path .. "/" .. packed.DESCRIPTION)
  if content.version ~= packed.VERSION or type(content.model) ~= "table" or type(content.weights) ~= "table" then
    fail("'%s/%s' is not version %d of packed models: make the folder again by ztoolkit quantise", path, packed.DESCRIPTION,
      packed.VERSION)
  end
  local files, names = native.safetensors(path), {}
  for place, tensor in ipairs(files:tensors()) do names[place] = tensor.name end
  local weights = content.weights
  if type(weights.keep) == "table" and #weights.keep == 0 then weights.keep = nil end
  return {
    options = content.model, dtype = content.dtype, weights = weights, stop_tokens = content.stop_tokens or {},
    files = tokenizer_files.contents(path), names = names, read = function(_, name) return files:read(name) end,
  }
end

return packed
