--- The mesh of an engine: its axes, and whether a mesh of the script fits the configuration.

local core = require "zt.core"
local ds = require "zt.deepspeed.config"
local fail = require "zt.fail"

local meshes = {}

-- The keys that give the sizes of axes, by axis.
local KEYS = {pp = "pipeline.stages", tp = "tensor_parallel.autotp_size", cp = "sequence_parallel_size"}

-- The options of nn.gpt that cut it over an axis.
local OPTIONS = {tp = "tensor = cut.tensor", cp = "context = cut.context"}

-- Returns an axis of the mesh, or nil if it has none of that name.
local function axis_of(mesh, name)
  local has_axis, axis = pcall(function() return mesh[name] end)
  return has_axis and axis or nil
end

--- Returns the number of ranks along an axis of the mesh, 1 if it has none of that name.
function meshes.ranks_along(mesh, name)
  local axis = axis_of(mesh, name)
  return axis and axis.size or 1
end

local ranks_along = meshes.ranks_along

-- Returns the axis of the ranks that have other samples.
local function data_axis(mesh, has_experts, is_data_first)
  if not has_experts then return mesh.dp end
  return mesh:join(is_data_first and {"ep", "dp"} or {"dp", "ep"})
end

--- Checks the options `axis` and `replicate`, and completes `axis` if the script gives a mesh.
function meshes.check_axes(options)
  for _, name in ipairs {"axis", "replicate"} do
    if options[name] and not options.mesh then fail("zt.initialize.%s is an axis of a mesh: give its mesh too", name) end
  end
  if options.mesh and not options.axis then options.axis = data_axis(options.mesh, ranks_along(options.mesh, "ep") > 1) end
end

-- Returns the number of ranks in each pipeline; 1 without one. The script's value replaces the configuration's.
local function pipeline_stages(options, configured)
  if not options.pipeline then return 1 end
  local stages = options.pipeline.stages or configured or (options.mesh and options.mesh.pp.size)
  if not stages then fail("zt.initialize.pipeline: give stages, the number of ranks of a pipeline") end
  local is_misfit = core.world.size % stages ~= 0
  if options.mesh then is_misfit = stages ~= options.mesh.pp.size end
  if is_misfit then
    fail("%s.stages = %d does not fit %s", options.pipeline.stages and "zt.initialize.pipeline" or "pipeline", stages,
         options.mesh and ("the axis pp of the mesh, which has %d ranks"):format(options.mesh.pp.size)
         or ("%d ranks: give a divisor"):format(core.world.size))
  end
  return stages
end

-- Returns the number of ranks along an axis that cuts matrices or tokens.
local function cut_ranks(options, name, configured)
  if not options.mesh then return configured or 1 end
  local size = ranks_along(options.mesh, name)
  if configured and configured ~= size and not axis_of(options.mesh, name) then
    fail("%s = %d, and the mesh that the script gives has no axis of the name %s: name it so", KEYS[name], configured, name)
  end
  if configured and configured ~= size then
    fail("%s = %d, but the axis %s of the mesh has %d ranks: give one of them the other's size", KEYS[name], configured, name,
         size)
  end
  return size
end

--- Returns the numbers of ranks that have the same samples: {pp =, tp =, cp =}, of the script's mesh or of the configuration.
-- options.config is the table that ds.load returned; options.pipeline is checked. Fails if they do not divide the ranks.
function meshes.sizes(options)
  local configured = ds.sizes(options.config)
  local sizes = {pp = pipeline_stages(options, configured.pp)}
  local ranks = core.world.size / sizes.pp
  for _, name in ipairs {"tp", "cp"} do
    sizes[name] = cut_ranks(options, name, configured[name])
    if not options.mesh and ranks % sizes[name] ~= 0 then
      fail("%s = %d does not divide %d ranks%s: give a divisor", KEYS[name], sizes[name], ranks,
           ranks < core.world.size and (" of %d, which the axes before it leave"):format(core.world.size) or "")
    end
    ranks = ranks / sizes[name]
  end
  return sizes
end

--- Returns the number of ranks that have other samples.
function meshes.data_ranks(options, sizes)
  if not options.mesh then return core.world.size / sizes.pp / sizes.tp / sizes.cp end
  return options.axis.size * (options.replicate and options.replicate.size or 1)
end

-- Fails if the script's own mesh has another number of ranks for the experts than the configuration, or if the configuration has
-- options of experts that no function of the script takes.
local function check_experts(options, experts, sizes)
  if options.mesh and ranks_along(options.mesh, "ep") ~= experts.size then
    fail("expert_parallel.autoep_size = %d, but the axis ep of the mesh has %d ranks: give one of them the other's size",
         experts.size, ranks_along(options.mesh, "ep"))
  end
  if experts.tensor_size ~= 1 and experts.tensor_size ~= sizes.tp then
    fail("expert_parallel.expert_tensor_parallel_size = %d must be 1, for whole experts, or the number of ranks that share "
      .. "matrices (tensor_parallel.autotp_size), %d", experts.tensor_size, sizes.tp)
  end
  if type(options.model) == "function" then return end
  if not options.mesh and experts.size > 1 then
    fail("expert_parallel.autoep_size = %d: the model's experts need the mesh: give model = function(mesh, experts, cut) that "
      .. "returns the model, with axis = mesh.ep in moe.layers; or give your own mesh, too", experts.size)
  end
  if experts.top_k or next(experts.router) then
    fail("expert_parallel has options of the router, which the model's layers must take: give model = function(mesh, experts, "
      .. "cut)")
  end
  if experts.tensor_size > 1 then
    fail("expert_parallel.expert_tensor_parallel_size = %d: the model's experts must be cut: give model = function(mesh, "
      .. "experts, cut), with tensor = experts.tensor in moe.layers; or leave the key out", experts.tensor_size)
  end
end

--- Fails if the configuration asks for what only a function of the script can do, or for other experts than the script's mesh
-- has.
function meshes.check_model(options, config, sizes)
  if config.experts then check_experts(options, config.experts, sizes) end
  if type(options.model) == "function" then return end
  local tensor = config.tensor or {}
  for _, each in ipairs {
    {"overlap", "tensor_parallel.tp_overlap_comm"},
    {"sequence_parallel", "sequence parallelism (partition_activations, pipe_partitioned or grad_partitioned)"},
  } do
    local option, asked = unpack(each)
    if tensor[option] ~= nil then
      fail("the configuration asks for %s, which the model's layers must take: give model = function(mesh, experts, cut), with "
        .. "%s = cut.%s in nn.gpt; or leave the key out", asked, option, option)
    end
  end
  if options.mesh then return end
  for _, name in ipairs {"tp", "cp"} do
    if sizes[name] > 1 then
      fail("%s = %d: the layers say how they are cut: give model = function(mesh, experts, cut) that returns the model, with %s "
        .. "in nn.gpt; or give your own mesh, too", KEYS[name], sizes[name], OPTIONS[name])
    end
  end
end

--- Returns the mesh, its data-parallel axis, and its axis of copies or nil. Fails if the script's own mesh has another number of
-- copies than the configuration.
function meshes.make(options, config, sizes)
  local copies, experts = config.zero.replicate or 1, config.experts
  if not options.mesh then
    local axes, order = {dp = -1}, {"dp"}
    local function add(name, size, place)
      axes[name] = size
      table.insert(order, place, name)
    end
    if experts then add("ep", experts.size, experts.data_first and 1 or 2) end
    if type(options.model) == "function" then -- neighbouring ranks share matrices, then tokens
      add("cp", sizes.cp, #order + 1)
      add("tp", sizes.tp, #order + 1)
    end
    if copies > 1 then add("replica", copies, 1) end -- neighbouring ranks share one copy, and one stage
    if options.pipeline then add("pp", sizes.pp, 1) end
    axes.order = #order > 1 and order or nil
    local mesh = require("zt.comm").mesh(axes)
    return mesh, data_axis(mesh, experts ~= nil, experts and experts.data_first), copies > 1 and mesh.replica or nil
  end
  local given = options.replicate and options.replicate.size or 1
  if given ~= copies then
    fail("zt.initialize.replicate has %d ranks, but zero_optimization.mics_shard_size means %d copies: give an axis of that "
      .. "size, or let the engine make the mesh", given, copies)
  end
  return options.mesh, options.axis, options.replicate
end

--- Returns the arguments of the script's function that makes the model: the mesh, the options of experts, and those that cut
-- matrices and tokens, with the names of nn.gpt.
function meshes.model_arguments(mesh, config)
  local experts, tensor, context = config.experts, config.tensor or {}, config.context
  local tp, cp = axis_of(mesh, "tp"), axis_of(mesh, "cp")
  local cut = {tensor = tp, sequence_parallel = tensor.sequence_parallel, overlap = tensor.overlap,
               context = cp and {axis = cp, method = context and context.method} or nil}
  if not experts then return mesh, {router = {}}, cut end
  return mesh, {top_k = experts.top_k, router = experts.router, tensor = experts.tensor_size > 1 and tp or nil}, cut
end

--- Returns whether ranks share matrices or tokens of the model.
function meshes.is_cut(model, mesh)
  for _, name in ipairs(model.inner_axes) do
    if ranks_along(mesh, name) > 1 then return true end
  end
  return false
end

--- Fails if the ranks cannot be divided into groups that share the matrices of the generator. Its experts are divided as those of
-- the training engine.
function meshes.check_generator(config, mesh)
  local tensor, experts = config.generator.tensor, ranks_along(mesh, "ep")
  if core.world.size % (tensor * experts) == 0 then return end
  fail("hybrid_engine.inference_tp_size = %d%s does not divide %d ranks: give a divisor", tensor,
       experts > 1 and (" times the %d ranks of the axis ep"):format(experts) or "", core.world.size)
end

--- Fails if ranks would compute the same, because no layer of the model is cut over their axis; if the tokens between its
-- matrices are not cut, although the configuration says so; and if the script's own axis, `axis` or nil, is one whose ranks read
-- the same samples.
function meshes.check_cuts(model, sizes, config, axis)
  local is_inner = {}
  for _, name in ipairs(model.inner_axes) do is_inner[name] = true end
  for name in (axis and axis.name or ""):gmatch "[^+]+" do
    if is_inner[name] then
      fail("zt.initialize.axis is that of data parallelism, and along %s the model's layers share the work on the same samples: "
        .. "give the axis whose ranks read other samples", name)
    end
  end
  if config.tensor and config.tensor.sequence_parallel and not model.cuts_stream then
    fail("the configuration asks for sequence parallelism (partition_activations, pipe_partitioned or grad_partitioned), and no "
      .. "layer of the model has it: give nn.gpt or its layers sequence_parallel = cut.sequence_parallel")
  end
  for _, name in ipairs {"tp", "cp"} do
    if sizes[name] > 1 and not is_inner[name] then
      fail("%s = %d, but no layer of the model is cut over the axis %s: give nn.gpt or its layers %s", KEYS[name], sizes[name],
           name, OPTIONS[name])
    end
  end
end

return meshes
