--- Writes the adapters of a trainer's or a checkpoint's model as PEFT's files, with the modules that are trained as a whole.

local Modules = require "zt.ckpt.adapters.modules"
local adapter_folder = require "zt.ckpt.adapters.adapter_folder"
local base_hash = require "zt.ckpt.adapters.base_hash"
local lora = require "zt.ckpt.adapters.lora"
local model_head = require "zt.ckpt.config.model_head"
local peft_config = require "zt.ckpt.adapters.peft_config"
local saved = require "zt.ckpt.adapters.saved"

-- Returns the set of our parameters that are in parts.
local function parameters_of(parts)
  local set = {}
  for _, part in ipairs(parts) do set[part.parameter] = true end
  return set
end

--- Writes the adapters of a model (source.lua). options: {base_model =, task_type =, hash =, overwrite =}, as those of
-- ckpt.save_adapter. Returns the number of tensors. Of a trainer, collective.
return function(source, folder, options)
  local modules = Modules.of(source.options, source.place)
  local adapters, is_by_root = lora.list(source.options, source.tensors), lora.is_by_root(source.options)
  local list = saved.modules(modules, adapters, is_by_root)
  local whole, modules_to_save = saved.whole(modules, adapters, source.trained)
  local tensors, provide = saved.tensors(source, modules, list, whole)
  local left_out = parameters_of(whole)
  local function base()
    return {hash = base_hash.of(source, left_out), dtype = base_hash.dtype(source, left_out)}
  end
  local config = peft_config.text(modules, list, {
    is_by_root = is_by_root, dropout = source.options.lora.dropout or 0, init = source.options.lora.init,
    modules_to_save = modules_to_save, base_model = options.base_model,
    task_type = model_head.task_type(source.options, options.task_type),
  })
  adapter_folder.write(folder, source.mesh, tensors, provide, config, options.hash and base or nil, options.overwrite)
  return #tensors
end
