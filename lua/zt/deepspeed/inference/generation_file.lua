--- What the folder of a model says about `generate`: its generation_config.json, or as in transformers its config.json.

local core = require "zt.core"
local huggingface_folder = require "zt.ckpt.loading.huggingface_folder"
local json_file = require "zt.ckpt.cmd.json_file"
local keys = require "zt.deepspeed.inference.generation_keys"

local generation_file = {}

local NAME = "generation_config.json"
local PACKED = "packed.json" -- of a folder with packed matrices, which has no config.json

-- Returns the values of the folder and the file's path. Without a file, nil is the path, and the model's own ends are the values.
local function values_of(folder)
  local path = huggingface_folder.of(folder) .. "/" .. NAME
  if core.exists(path) then return (json_file(path)), path end
  local config = huggingface_folder.config(folder)
  if not config or core.exists(folder .. "/" .. PACKED) then
    return {eos_token_id = require("zt.ckpt.pretrained.folder").open(folder).stop_tokens}, nil
  end
  local values = {}
  for key, value in pairs((json_file(config))) do
    if keys.is_of_file(key) then values[key] = value end
  end
  return values, config
end

-- Returns the fate of a key of a file and the reason for it.
local function fate_of(key)
  if keys.REFUSED[key] then return "refused", keys.REFUSED[key][1] end
  if keys.IDLE[key] then return "no effect", keys.IDLE[key][1] end
  if not keys.is_of_file(key) then return "no effect", keys.UNKNOWN end
  return "taken", "replaced by the argument of the same name"
end

--- Returns {values = arguments of generate by name, path = of the file or nil, notes = {{key =, fate =, reason =}, ...}} of a
-- model's folder; without values for nil. The fate of a note is "taken", "no effect", or "refused": calls refuse values that
-- would change the tokens. `stop_tokens` are those of zt.init_inference; nil: none were given.
function generation_file.read(folder, stop_tokens)
  local out = {values = {}, notes = {}}
  if folder then out.values, out.path = values_of(folder) end
  if stop_tokens then out.values.eos_token_id = stop_tokens end
  local names = {}
  for key in pairs(out.values) do names[#names + 1] = tostring(key) end
  table.sort(names)
  for _, key in ipairs(out.path and names or {}) do
    local fate, reason = fate_of(key)
    out.notes[#out.notes + 1] = {key = key, fate = fate, reason = reason}
    if fate == "no effect" and not keys.IDLE[key] then out.values[key] = nil end
  end
  return out
end

return generation_file
