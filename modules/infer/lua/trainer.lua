--- Makes the trainer of an engine from an opened model (model.lua): one without an optimizer, over the axes of a mesh.

local fail = require "zt.fail"
local moe = require "zt.moe"
local pipe = require "zt.pipe"
local zero = require "zt.zero"
local zt = require "zt"

local function with(base, more)
  local all = {}
  for _, from in ipairs{base, more} do
    for key, value in pairs(from) do all[key] = value end
  end
  return all
end

-- Returns the options of moe.gpt for a model that is cut over the axes.
local function cut(given, o)
  local options = with(given, {tensor = o.tensor, dropout = 0})
  if not o.experts then return options end
  if not options.moe then fail("infer.engine: experts = '%s', but the model has none", o.experts.name) end
  options.moe = with(options.moe, {axis = o.experts})
  return options
end

local function mesh_of(o)
  if not o.mesh and (o.tensor or o.pipeline or o.experts or o.data) then
    fail "infer.engine: give the option mesh, whose axes are tensor, pipeline, experts or data"
  end
  return o.mesh
end

--- opened: as model.open returns it. o: the options of infer.engine. Collective over the mesh.
return function(opened, o)
  local program = zt.program(moe.gpt(cut(opened.options, o)), {
    precision = o.dtype or opened.dtype, eval_micro_batches = o.pipeline and o.pipeline.size or 1, mesh = mesh_of(o),
  })
  if o.pipeline then program = program:apply(pipe.split{axis = o.pipeline}) end
  local replicas = o.data or o.experts
  if replicas then program = program:apply(zero.shard{axis = replicas, stage = 0}) end
  local trainer = zt.trainer(program, {separate = true})
  if not zt.world.dry then opened.load(trainer) end
  return trainer
end
