--- Adds a LoRA adapter, as PEFT saves it, to the parameters of a model when they are read: W + scale * B A, in fp32. A module's
-- matrix may be some rows of a parameter of moe.gpt (adapters/modules.lua).

local Config = require "zt.ckpt.loading.adapter_config"
local Modules = require "zt.ckpt.adapters.modules"
local Tensors = require "zt.ckpt.loading.adapter_tensors"
local base_hash = require "zt.ckpt.adapters.base_hash"
local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local log = require "zt.log"
local source_of = require "zt.ckpt.adapters.source"

local adapter = {}

-- Returns what changes for each parameter: {parameter = {{part =, whole = tensor or nil, pair = or nil, scale = or nil}, ...}},
-- whole tensors first. Checks all shapes.
local function changes_of(tensors, config, modules)
  local changes, parts = {}, modules.parts
  local function add(part, change)
    change.part = part
    changes[part.parameter] = changes[part.parameter] or {}
    table.insert(changes[part.parameter], change)
  end
  for _, name in ipairs(check.sorted_keys(tensors.whole)) do
    Modules.check_shape(tensors, tensors.whole[name], parts[name].shape, "as in the model")
    add(parts[name], {whole = tensors.whole[name]})
  end
  for _, module in ipairs(check.sorted_keys(tensors.halves)) do
    modules:check_pair(tensors, module, config:rank_of(module))
    add(modules.linear[module], {pair = tensors.halves[module], scale = config:scale_of(module)})
  end
  return changes
end

-- Returns the values of a parameter after its changes, in fp32 or fp64.
local function changed(tensors, list, values)
  local dtype = values:dtype() == "float64" and "float64" or "float32"
  local sums = values:to(dtype) -- may be `values` itself, which the caller does not use again
  local columns = list[1].part.columns
  local matrix = columns and sums:reshape{-1, columns} or sums
  for _, change in ipairs(list) do
    core.scope(function()
      local part = change.part
      local rows = matrix:narrow(0, part.first, part.rows)
      if change.whole then
        local whole = tensors:read(change.whole)
        rows:copy_((part.transposed and whole:t() or whole):reshape{part.rows, columns})
      else
        local a, b = tensors:read(change.pair.A):to(dtype), tensors:read(change.pair.B):to(dtype)
        rows:addmm_(b, a, {alpha = change.scale})
      end
    end)
  end
  return sums
end

-- Reads and checks an adapter. Returns a function(name, values) that returns the changed values of a parameter, and the set of
-- the parameters that it has as a whole.
local function open(folder, options, base)
  if not core.exists(folder) then fail("there is no folder '%s': give the folder of a LoRA adapter", folder) end
  local config, tensors = Config.read(folder), Tensors.open(folder)
  if options.lora and core.world.rank == 0 then
    log.warn("the model in '%s' has adapters of its own, and that in '%s' is added to them: if it is the same one, it counts "
      .. "twice, so leave `adapter` out, or give as the model the base of that adapter", base, folder)
  end
  local modules = Modules.of(options, ("the model in '%s'"):format(base))
  local of_head = tensors.halves.lm_head
  if modules.embedding and of_head then Modules.refuse_untied(tensors, of_head.A) end
  modules:check_tied(tensors)
  modules:check_names(tensors)
  tensors:check_saved(config, modules.parts)
  local changes = changes_of(tensors, config, modules)
  if not tensors:check_values() and next(tensors.whole) == nil and core.world.rank == 0 then
    log.warn("%s: each product B A is zero, so the adapter changes nothing: was it saved before the training?", tensors.path)
  end
  local whole = {}
  for name, list in pairs(changes) do whole[name] = list[1].whole and true or nil end
  return function(name, values) return changes[name] and changed(tensors, changes[name], values) or values end, whole
end

-- An error if the adapter's folder tells the hash of another base than this one. What it replaces as a whole is not compared.
local function check_base(opened, whole, folder, place)
  local source = source_of.of_opened(opened, opened.options, place)
  base_hash.check(folder, source, whole, place, function(message)
    if core.world.rank == 0 then log.info("%s: %s", folder, message) end
  end)
end

--- Makes an opened model (pretrained/folder.lua) read parameters with the adapter of a folder added. base: the model's folder,
-- for messages.
function adapter.add(opened, folder, base)
  if opened.weights then
    fail("the matrices in '%s' are packed already, as %s, and the sums with the adapter's would be rounded a second time: give "
      .. "the model with plain weights, and pack the sums by the option weights", base, opened.weights.format)
  end
  local change, whole = open(folder, opened.options, base)
  local read = opened.read
  opened.load_parts = nil
  if not read then return end -- of a plan
  check_base(opened, whole, folder, base)
  function opened.read(place, name) return change(opened.names[place], read(place, name)) end
end

return adapter
