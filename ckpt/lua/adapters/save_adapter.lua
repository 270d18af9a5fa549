--- ckpt.save_adapter(trainer, folder, {base_model, overwrite, task_type, hash}): writes the adapters of a trainer's model as
-- PEFT's files, with the modules that are trained as a whole. Collective; rank 0 writes, with one tensor in memory at a time.

local check = require "zt.check"
local core = require "zt.core"
local source_of = require "zt.ckpt.adapters.source"
local write_adapter = require "zt.ckpt.adapters.write_adapter"

local SCHEMA = {
  {"base_model", "string", "name or path of the base, which PEFT loads: base_model_name_or_path"},
  {"overwrite", "boolean", "replaces an adapter that is there already", default = false},
  {"task_type", "string", "which class of PEFT's holds the model; default: CAUSAL_LM, or SEQ_CLS of a value model"},
  {"hash", "boolean", "also writes the hash of the base, for which all its parameters are read", default = true},
}

return function(trainer, folder, value)
  local options = check.options("ckpt.save_adapter", SCHEMA, value or {})
  check.argument("ckpt.save_adapter", "the first argument", "Trainer", trainer)
  check.argument("ckpt.save_adapter", "the folder of the adapter", "string", folder)
  local source = source_of.of_trainer(trainer, "ckpt.save_adapter")
  if not core.world.dry then write_adapter(source, folder, options) end
end
