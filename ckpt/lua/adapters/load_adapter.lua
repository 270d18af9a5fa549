--- ckpt.load_adapter(trainer, folder): sets the adapters of a trainer's model, and the tensors of modules that were trained as a
-- whole, from PEFT's files. Returns the names of the latter's parameters. Collective; rank 0 reads. Everything is checked before
-- anything changes.

local Reading = require "zt.ckpt.adapters.read_adapter"
local adapter_folder = require "zt.ckpt.adapters.adapter_folder"
local base_hash = require "zt.ckpt.adapters.base_hash"
local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local log = require "zt.log"
local on_rank_zero = require "zt.on_rank_zero"
local source_of = require "zt.ckpt.adapters.source"

-- Runs `action` on rank 0 and returns its plain result on all ranks of a trainer's mesh; a trainer without one is alone.
local function once(trainer, action)
  if trainer.mesh then return on_rank_zero(trainer.mesh:world(), action) end
  return action()
end

local function set_of(list)
  local set = {}
  for _, name in ipairs(list) do set[name] = true end
  return set
end

-- An error if the adapter's folder tells the hash of another base. plan: as rank 0 made it.
local function check_base(trainer, source, plan, folder)
  if not plan.base then return end
  local left_out = set_of(plan.whole)
  local dtype = base_hash.dtype(source, left_out)
  if dtype ~= plan.base.dtype then
    if core.world.rank == 0 or not trainer.mesh then
      log.info("%s: the base is not compared with that of the training: its parameters are %s here, and were %s", folder, dtype,
        plan.base.dtype)
    end
    return
  end
  local hash = base_hash.of(source, left_out)
  once(trainer, function()
    if hash == plan.base.hash then return end
    fail("'%s' is an adapter of another base: the hash of its parameters is %s there and %s here (ztoolkit_adapter.json). Load "
      .. "the base that it was trained with; without this file, the bases are not compared", folder, plan.base.hash, hash)
  end)
end

-- Sets a parameter to what `values` returns where the folder is read.
local function set(trainer, name, reading, values)
  core.scope(function()
    local given = reading and values() or core.zeros(trainer:describe_parameter(name).shape)
    trainer:set_parameter(name, given, trainer.mesh and 0 or nil)
  end)
end

return function(trainer, folder)
  check.argument("ckpt.load_adapter", "the first argument", "Trainer", trainer)
  check.argument("ckpt.load_adapter", "the folder of the adapter", "string", folder)
  local source, reading = source_of.of_trainer(trainer, "ckpt.load_adapter"), nil
  if core.world.dry then return {} end
  local plan = once(trainer, function()
    reading = Reading.open(folder, source)
    return {names = reading.names, whole = check.sorted_keys(reading.whole), trained = check.sorted_keys(reading.trained),
            base = adapter_folder.base_of(folder)}
  end)
  check_base(trainer, source, plan, folder)
  for _, name in ipairs(plan.names) do
    set(trainer, name, reading, function() return reading.values[name]() end)
  end
  for _, name in ipairs(plan.whole) do
    local values = trainer:master(name)
    set(trainer, name, reading, function() return reading:set_rows(name, values) end)
  end
  return plan.trained
end
