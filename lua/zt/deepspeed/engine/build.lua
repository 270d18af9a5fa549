--- Builds the parts of an engine (mesh, program, passes, trainer) from DeepSpeed's configuration and the script's options.

local check = require "zt.check"
local core = require "zt.core"
local ds = require "zt.deepspeed.config"
local fail = require "zt.fail"
local log = require "zt.log"
local units = require "zt.deepspeed.engine.units"

local SCHEMA = {
  {"model", "any", "a model, such as nn.gpt{...}, or function(mesh, experts) that returns one", required = true},
  {"config", "any", "DeepSpeed's JSON: a file's name, its text, or a table", required = true},
  {"optimizer", "Optimizer", "an optimizer, such as optim.adamw{...}; replaces the JSON's"},
  {"schedule", "any", "a schedule, such as optim.warmup_cosine{...}, or function(updates) -> rate; replaces the JSON's"},
  {"data", "any", "a stream of zt.data, which train_batch() reads"},
  {"mesh", "Mesh", "from comm.mesh; when absent, all ranks are data parallel"},
  {"axis", "Axis", "the mesh's data-parallel axis; dp when absent, joined with ep if that has several ranks"},
  {"replicate", "Axis", "the mesh's axis of copies of the shards, for mics_shard_size"},
  {"pipeline", "table", "a pipeline: {stages =, schedule =, partition =, chunks =}; the options of pipe.split"},
  {"strict", "boolean", "refuse what the configuration asks for and the engine only notes, such as wandb", default = false},
  {"auto", "table", "the values for \"auto\": {batch =, optimizer =, schedule =, clip =, precision =, model =}", default = {}},
}

local PIPELINE = {
  {"stages", "integer", "ranks of the pipeline; with a mesh of the script its axis pp", at_least = 1},
  {"schedule", "any", "as of pipe.split", default = "one_f_one_b"},
  {"partition", "any", "as of pipe.split; by default the configuration's, or \"parameters\""},
  {"chunks", "integer", "as of pipe.split", at_least = 1},
}

-- DeepSpeed's default of stage3_param_persistence_threshold. Used if only stage3_model_persistence_threshold is given.
local PERSIST_BELOW = 1e5

local build = {}

local function check_model(model, what)
  if check.is("Model", model) then return end
  fail("zt.initialize.model must be a Model, such as nn.gpt{...}, or function(mesh, experts) that returns one, %s %s", what,
       check.type_name(model))
end

-- Fails unless the data are a stream: any object with the method `batch`.
local function check_data(data)
  local has_method, method = pcall(function() return data.batch end)
  if data == nil or has_method and type(method) == "function" then return end
  fail("zt.initialize.data must be a stream with the method batch(step), such as data.tokens{...}, got %s",
       check.type_name(data))
end

local function check_schedule(schedule)
  if schedule == nil or type(schedule) == "function" or check.is("Schedule", schedule) then return end
  fail("zt.initialize.schedule must be a Schedule, such as optim.warmup_cosine{...}, or function(updates) that returns the rate, "
    .. "got %s", check.type_name(schedule))
end

-- Returns the ranks that share experts in the script's own mesh: 1 if it has no axis ep.
local function expert_ranks(mesh)
  local has_axis, axis = pcall(function() return mesh.ep end)
  return has_axis and axis and axis.size or 1
end

-- Returns the axis of the ranks that have other samples.
local function data_axis(mesh, has_experts, is_data_first)
  if not has_experts then return mesh.dp end
  return mesh:join(is_data_first and {"ep", "dp"} or {"dp", "ep"})
end

local function check_axes(options)
  for _, name in ipairs {"axis", "replicate"} do
    if options[name] and not options.mesh then fail("zt.initialize.%s is an axis of a mesh: give its mesh too", name) end
  end
  if options.mesh and not options.axis then options.axis = data_axis(options.mesh, expert_ranks(options.mesh) > 1) end
end

-- Checks the option `pipeline`, and returns the number of ranks in each pipeline; 1 without one. The script's values replace the
-- configuration's.
local function pipeline_stages(options)
  local configured = ds.stages(options.config)
  if not options.pipeline and (configured or 1) == 1 then return 1 end
  options.pipeline = check.options("zt.initialize.pipeline", PIPELINE, options.pipeline or {})
  local stages = options.pipeline.stages or configured or (options.mesh and options.mesh.pp.size)
  if not stages then fail("zt.initialize.pipeline: give stages, the number of ranks of a pipeline") end
  local ranks = options.mesh and options.mesh.pp.size * options.axis.size or core.world.size
  if options.mesh and stages ~= options.mesh.pp.size or ranks % stages ~= 0 then
    fail("%s.stages = %d does not fit %s", options.pipeline.stages and "zt.initialize.pipeline" or "pipeline", stages,
         options.mesh and ("the axis pp of the mesh, which has %d ranks"):format(options.mesh.pp.size)
         or ("%d ranks: give a divisor"):format(ranks))
  end
  options.pipeline.stages = stages
  return stages
end

local function data_ranks(options, stages)
  if not options.mesh then return core.world.size / stages end
  return options.axis.size * (options.replicate and options.replicate.size or 1)
end

local function read_config(options, stages)
  local context = {world = data_ranks(options, stages), strict = options.strict}
  for key, value in pairs(options.auto) do context[key] = value end
  local own = options.optimizer
  if own then
    context.own_optimizer = {name = own.kind, options = {lr = own.lr}}
    context.optimizer = context.optimizer or context.own_optimizer.options
  end
  local config = ds.read(options.config, context)
  for _, note in ipairs(config.notes) do
    if note.reason:find "^no effect" then log.info("%s: %s", note.key, note.reason) end
  end
  for _, notice in ipairs(core.world.rank == 0 and config.notices or {}) do log.warn("%s: %s", notice.key, notice.text) end
  return config
end

-- Fails if the script's own mesh has another number of ranks for the experts than the configuration, or if the configuration has
-- options of experts that no function of the script takes.
local function check_experts(options, experts)
  if not experts then return end
  if options.mesh and expert_ranks(options.mesh) ~= experts.size then
    fail("expert_parallel.autoep_size = %d, but the axis ep of the mesh has %d ranks: give one of them the other's size",
         experts.size, expert_ranks(options.mesh))
  end
  if type(options.model) == "function" then return end
  if not options.mesh and experts.size > 1 then
    fail("expert_parallel.autoep_size = %d: the model's experts need the mesh: give model = function(mesh, experts) that returns "
      .. "the model, with axis = mesh.ep in moe.layers; or give your own mesh, too", experts.size)
  end
  if experts.top_k or next(experts.router) then
    fail "expert_parallel has options of the router, which the model's layers must take: give model = function(mesh, experts)"
  end
end

-- Returns the mesh, its data-parallel axis, and its axis of copies or nil. Fails if the script's own mesh has another number of
-- copies than the configuration.
local function make_mesh(options, copies, stages, experts)
  if not options.mesh then
    local axes, order = {dp = -1}, {"dp"} -- neighbouring ranks share one copy, and one stage
    if experts then
      axes.ep = experts.size
      table.insert(order, experts.data_first and 1 or 2, "ep")
    end
    if copies > 1 then
      axes.replica = copies
      table.insert(order, 1, "replica")
    end
    if options.pipeline then
      axes.pp = stages
      table.insert(order, 1, "pp")
    end
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

-- Returns the precision of the program: a name, or a table if the configuration gives the types of gradients.
local function precision(config)
  local name, grads, reduce = config.precision.name, config.zero.grad_dtype, config.zero.reduce_dtype
  if not grads and not reduce then return name end
  return {params = name, grads = grads, reduce = reduce}
end

-- Fields of config.zero that zero.shard does not take as they are: shard_options converts them, or `precision` uses them.
local CONVERTED = {
  persist_below = true, persist_total = true, prefetch_elements = true, grad_dtype = true, reduce_dtype = true,
}

local function shard_options(model, zero, axis, copies)
  local out = {}
  for name, value in pairs(zero) do
    if not CONVERTED[name] then out[name] = value end
  end
  out.axis, out.replicate = axis, copies
  local sizes = units.sizes(model)
  if zero.persist_below or zero.persist_total then
    out.persist_below = units.persist_below(sizes, zero.persist_below or PERSIST_BELOW, zero.persist_total)
  end
  if zero.prefetch_elements then
    out.prefetch = units.prefetch(sizes, zero.prefetch_elements, out.persist_below or 0)
  end
  if zero.stage == 0 then out.gather_bucket_bytes = nil end -- DeepSpeed gathers nothing either, and takes the key
  return out
end

-- Returns the options of the loss scale: with a constant one, DeepSpeed takes those of a dynamic one and does not use them.
local function loss_scale(given)
  if given and given.loss_scale > 0 then return {loss_scale = given.loss_scale} end
  return given
end

-- Returns the partition of the pipeline: the script's, or the configuration's with the name that pipe.split gives it.
local function partition_of(options, config)
  local configured = config.pipeline and config.pipeline.partition
  return options.pipeline.partition or configured ~= "best" and configured or "parameters"
end

local function make_program(options, model, config, mesh, axis, copies)
  local pipeline = options.pipeline
  local program = core.program(model, {micro_batches = config.batch.accumulation, precision = precision(config)})
  if pipeline then
    program = program:apply(require("zt.pipe").split{
      axis = mesh.pp, schedule = pipeline.schedule, partition = partition_of(options, config), chunks = pipeline.chunks,
    })
  end
  program = program:apply(require("zt.zero").shard(shard_options(model, config.zero, axis, copies)))
  if not config.recompute then return program end
  return program:apply(core.recompute{every = 1}) -- each layer keeps one tensor, its input: longer segments would save little
end

-- Returns the script's own object if there is one, otherwise the configuration's, as DeepSpeed does.
local function choose(kind, own, configured)
  if own and configured then
    log.info("zt.initialize: the script's own %s is used, not the configuration's %s", kind, configured.name)
  end
  return own or configured
end

local function make_optimizer(options, config)
  local chosen = choose("optimizer", options.optimizer, config.optimizer)
  if not chosen then
    fail("zt.initialize: there is no optimizer: give \"optimizer\" in the configuration, or optimizer = optim.adamw{...}")
  end
  return options.optimizer or require("zt.optim")[chosen.name](chosen.options)
end

--- Checks the options of zt.initialize and returns the fields of an engine: model, data, config, mesh, axis, optimizer, schedule,
-- trainer, stages (the ranks of a pipeline, 1 without one), and rate. `rate` is a function of the number of updates if the
-- schedule is one of DeepSpeed's or a function, otherwise nil.
function build.parts(value)
  local options = check.options("zt.initialize", SCHEMA, value)
  if type(options.model) ~= "function" then check_model(options.model, "got") end
  check_data(options.data)
  check_schedule(options.schedule)
  check_axes(options)
  options.config = ds.load(options.config)
  local stages = pipeline_stages(options)
  local config = read_config(options, stages)
  check_experts(options, config.experts)
  local parts = {data = options.data, config = config, stages = stages}
  if config.reports.log_level then log.set_level(config.reports.log_level) end
  parts.optimizer = make_optimizer(options, config)
  parts.schedule = choose("schedule", options.schedule, config.schedule)
  local copies
  parts.mesh, parts.axis, copies = make_mesh(options, config.zero.replicate or 1, stages, config.experts)
  local experts = config.experts
  parts.model = options.model
  if type(options.model) == "function" then
    parts.model = options.model(parts.mesh, experts and {top_k = experts.top_k, router = experts.router} or {router = {}})
  end
  check_model(parts.model, "and the function returned")
  local is_function = type(parts.schedule) == "function"
  parts.rate = is_function and parts.schedule or not options.schedule and config.schedule and config.schedule.rate or nil
  parts.trainer = core.trainer(make_program(options, parts.model, config, parts.mesh, parts.axis, copies), {
    optimizer = parts.optimizer, schedule = not parts.rate and parts.schedule or nil, clip = config.clip,
    on_nonfinite = config.precision.on_nonfinite, fp16 = loss_scale(config.precision.loss_scale),
  })
  return parts
end

return build
