--- Makes the trainer of an engine from an opened model (zt.ckpt.pretrained.folder): one without an optimizer, over the axes of a
-- mesh.

local check = require "zt.check"
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

-- Returns the format of matrices: that of the folder or of the option `weights`; nil: plain. Blocks of nested scales cannot be
-- cut over ranks, so matrices of bitsandbytes are then read without nested scales: the values are equal.
local function format_of(opened, o)
  if opened.is_by_bitsandbytes and o.tensor then opened.weights.nested = false end
  local weights = o.weights
  if not opened.weights then
    if not weights then return nil end
    local is_panels = weights.format == "panels" and not weights.dtype
    if is_panels and (o.dtype or opened.dtype) == "fp16" then
      fail "infer.engine.weights: panels hold numbers in bf16 or fp32, and the dtype is fp16: give another dtype, or int8"
    end
    return with(weights, is_panels and {dtype = o.dtype or opened.dtype} or {})
  end
  for key in pairs(weights or {}) do
    if key ~= "activations" then
      fail("infer.engine.weights.%s: the folder's matrices are packed already, as %s: leave it out", key, opened.weights.format)
    end
  end
  return with(opened.weights, weights or {})
end

local ADVICE = ", in which the folder's matrices are packed: divide layers by `pipeline` instead, or pack the plain model by "
  .. "ztoolkit quantise --format int4 --group 32"

local function model_of(opened, o)
  local options, weights = cut(opened.options, o), format_of(opened, o)
  if not weights then return moe.gpt(options) end
  local is_right, model = pcall(require("zt.infer.packed_folder").model_of, options, weights, opened.is_by_bitsandbytes)
  if is_right then return model end
  local message = tostring(model):gsub("^%S+:%d+: ", "")
  if opened.weights then -- their format is fixed
    message = message:gsub(": give a smaller group, or name .*$", ADVICE)
    message = message:gsub(": take int4 with a group of 32, or name .*$", ADVICE)
  end
  fail("infer.engine.weights: %s", message)
end

-- Returns the axis over which parameters are sharded. On one rank without a mesh, makes one.
local function axis_of(o)
  local axis = o.data or o.experts
  if axis then return axis, o.mesh end
  if zt.world.size > 1 then
    fail "infer.engine: parameters are sharded over ranks that have other requests: give mesh, and as `data` one of its axes"
  end
  local mesh = o.mesh or require("zt.comm").mesh{dp = 1}
  return mesh:world(), mesh
end

-- Returns the options of zero.shard that the option `shard` gives for a model.
local function shard_of(o, model)
  if type(o.shard) ~= "function" then return o.shard or {} end
  local given = o.shard(model)
  if type(given) ~= "table" then
    fail("infer.engine.shard: the function must return a table of options of zero.shard, got %s", check.type_name(given))
  end
  return given
end

-- Returns the passes of a program whose parameters are in parts on the ranks, and in other memories between their uses.
local function passes_of(model, o)
  if not o.shard and not o.offload then
    local replicas = o.data or o.experts
    return replicas and {zero.shard{axis = replicas, stage = 0}} or {}
  end
  local axis = axis_of(o)
  local passes = {zero.shard(with({axis = axis, stage = 3}, with(shard_of(o, model), o.offload and {node_shared = false} or {})))}
  if o.offload then passes[2] = require("zt.offload").move(o.offload) end
  return passes
end

--- opened: as model.open returns it. o: the options of infer.engine. Collective over the mesh.
return function(opened, o)
  local model, mesh = model_of(opened, o), mesh_of(o)
  if (o.shard or o.offload) and not mesh then
    local _, made = axis_of(o)
    o, mesh = with(o, {mesh = made, data = made:world()}), made
  end
  local program = zt.program(model, {
    precision = o.dtype or opened.dtype, eval_micro_batches = o.pipeline and o.pipeline.size or 1, mesh = mesh,
  })
  if o.pipeline then program = program:apply(pipe.split{axis = o.pipeline}) end
  for _, pass in ipairs(passes_of(model, o)) do program = program:apply(pass) end
  local trainer = zt.trainer(program, {separate = true})
  if not zt.world.dry then opened.load(trainer, (opened.weights or o.weights) ~= nil) end
  return trainer
end
