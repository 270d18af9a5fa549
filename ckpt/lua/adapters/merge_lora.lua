--- ckpt.merge_lora(trainer): adds the products of the adapters to the matrices, W + scale B A, and sets B to 0, so that the
-- trainer computes the same function. The sums are computed in fp32, or fp64, from the values of the optimizer's precision, and
-- rounded once. Collective; holds one matrix at a time. The optimizer's state stays.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local lora = require "zt.ckpt.adapters.lora"
local merged = require "zt.ckpt.adapters.merged"
local source_of = require "zt.ckpt.adapters.source"

-- Returns the adapters by their matrices, and the sorted names of these. An error for a matrix that cannot change.
local function by_matrix(source)
  local all = {}
  for _, adapter in ipairs(lora.list(source.options, source.tensors)) do
    local name, format = adapter.parameter, source.formats[adapter.parameter]
    if format then
      fail("ckpt.merge_lora: '%s' is packed as %s, so the sum with its adapter would be rounded to that format: load the "
        .. "adapters into a trainer with the plain base (ckpt.save_adapter, ckpt.load_adapter), and merge them there", name,
        format)
    end
    if adapter.target == "head" and name == "embedding.weight" then
      fail("ckpt.merge_lora: the head is tied to the embedding '%s', and its adapter is the head's alone, so the sum would "
        .. "change the embedding, too: keep the adapter (ckpt.save_adapter)", name)
    end
    all[name] = all[name] or {}
    table.insert(all[name], adapter)
  end
  return all, check.sorted_keys(all)
end

return function(trainer)
  check.argument("ckpt.merge_lora", "the first argument", "Trainer", trainer)
  local source = source_of.of_trainer(trainer, "ckpt.merge_lora")
  local adapters, matrices = by_matrix(source)
  if core.world.dry then return end
  local from = trainer.mesh and 0 or nil -- the rank whose sums all take
  for _, name in ipairs(matrices) do
    core.scope(function() trainer:set_parameter(name, merged(trainer:master(name), 0, adapters[name], source.read), from) end)
    for _, adapter in ipairs(adapters[name]) do
      local b = adapter.name .. ".b"
      core.scope(function() trainer:set_parameter(b, core.zeros(trainer:describe_parameter(b).shape), from) end)
    end
  end
end
