--- Builds the parts of an engine (mesh, program, passes, trainer) from DeepSpeed's configuration and the script's options.

local check = require "zt.check"
local core = require "zt.core"
local ds = require "zt.deepspeed.config"
local fail = require "zt.fail"
local log = require "zt.log"
local meshes = require "zt.deepspeed.engine.meshes"
local units = require "zt.deepspeed.engine.units"

local SCHEMA = {
  {"model", "any", "a model, such as nn.gpt{...}, or function(mesh, experts, cut) that returns one", required = true},
  {"config", "any", "DeepSpeed's JSON: a file's name, its text, or a table", required = true},
  {"optimizer", "Optimizer", "an optimizer, such as optim.adamw{...}; replaces the JSON's"},
  {"schedule", "any", "a schedule, such as optim.warmup_cosine{...}, or function(updates) -> rate; replaces the JSON's"},
  {"data", "any", "a stream of zt.data, which train_batch() reads"},
  {"mesh", "Mesh", "from comm.mesh; when absent, the engine makes it: ranks without another axis are data parallel"},
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
  fail("zt.initialize.model must be a Model, such as nn.gpt{...}, or function(mesh, experts, cut) that returns one, %s %s", what,
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

-- Checks the option `pipeline`, which a configuration with stages makes if there is none.
local function check_pipeline(options)
  if not options.pipeline and (ds.sizes(options.config).pp or 1) == 1 then return end
  options.pipeline = check.options("zt.initialize.pipeline", PIPELINE, options.pipeline or {})
end

local function read_config(options, sizes)
  local context = {world = meshes.data_ranks(options, sizes), strict = options.strict, ranks = {tp = sizes.tp, cp = sizes.cp}}
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

local function shard_options(model, config, axis, copies)
  local out, zero = {}, config.zero
  for name, value in pairs(zero) do
    if not CONVERTED[name] then out[name] = value end
  end
  out.axis, out.replicate = axis, copies
  if config.offload and config.offload.parameters == "nvme" then out.node_shared = false end -- each rank's shard is moved
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

-- Makes folders, on every rank because machines have disks of their own. An error of a rank is raised on all. Collective.
local function make_folders(folders, ranks)
  local outcome = {}
  for _, folder in ipairs(folders) do
    local is_done, why = pcall(core.mkdir_p, folder)
    if not is_done then
      local advice = "give a folder on the disk as nvme_path of zero_optimization.offload_optimizer or offload_param"
      outcome.error = outcome.error or ("%s: %s"):format(tostring(why), advice)
    end
  end
  for _, each in ipairs(ranks:gather_values(outcome)) do
    if each.error then error(each.error, 0) end
  end
end

local function offload_pass(offload, mesh)
  if offload.folder and not core.world.dry then make_folders(offload.folder, mesh:world()) end
  return require("zt.offload").move(offload)
end

local function make_program(options, model, config, mesh, axis, copies)
  local pipeline = options.pipeline
  local program = core.program(model, {micro_batches = config.batch.accumulation, precision = precision(config)})
  if pipeline then
    program = program:apply(require("zt.pipe").split{
      axis = mesh.pp, schedule = pipeline.schedule, partition = partition_of(options, config), chunks = pipeline.chunks,
    })
  end
  program = program:apply(require("zt.zero").shard(shard_options(model, config, axis, copies)))
  if config.offload then program = program:apply(offload_pass(config.offload, mesh)) end
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
    fail("zt.initialize: there is no optimizer: give \"optimizer\" in the configuration, or optimizer = optim.adamw{...}. To "
      .. "generate text with sharded parameters (ZeRO-Inference), give zt.init_inference the block `zero`")
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
  meshes.check_axes(options)
  options.config = ds.load(options.config)
  check_pipeline(options)
  local sizes = meshes.sizes(options)
  local config = read_config(options, sizes)
  meshes.check_model(options, config, sizes)
  local parts = {data = options.data, config = config, stages = sizes.pp}
  if config.reports.log_level then log.set_level(config.reports.log_level) end
  parts.optimizer = make_optimizer(options, config)
  parts.schedule = choose("schedule", options.schedule, config.schedule)
  local copies
  parts.mesh, parts.axis, copies = meshes.make(options, config, sizes)
  if config.generator then meshes.check_generator(config, parts.mesh) end
  parts.model = options.model
  if type(options.model) == "function" then parts.model = options.model(meshes.model_arguments(parts.mesh, config)) end
  check_model(parts.model, "and the function returned")
  meshes.check_cuts(parts.model, sizes, config, options.mesh and parts.axis)
  local is_function = type(parts.schedule) == "function"
  parts.rate = is_function and parts.schedule or not options.schedule and config.schedule and config.schedule.rate or nil
  parts.trainer = core.trainer(make_program(options, parts.model, config, parts.mesh, parts.axis, copies), {
    optimizer = parts.optimizer, schedule = not parts.rate and parts.schedule or nil, clip = config.clip,
    on_nonfinite = config.precision.on_nonfinite, fp16 = loss_scale(config.precision.loss_scale),
  })
  return parts
end

return build
