--- Makes the infer.engine of zt.init_inference from its options and its configuration.

local agreed = require "zt.deepspeed.inference.agreement"
local check = require "zt.check"
local config = require "zt.deepspeed.inference.config"
local core = require "zt.core"
local elsewhere = require "zt.deepspeed.inference.elsewhere"
local fail = require "zt.fail"
local generation_file = require "zt.deepspeed.inference.generation_file"
local keys = require "zt.deepspeed.inference.keys"
local log = require "zt.log"
local ragged_keys = require "zt.deepspeed.inference.ragged_keys"
local sharded = require "zt.deepspeed.inference.sharded"
local weights = require "zt.deepspeed.inference.weights"

local SCHEMA = {
  {"model", "any", "a trainer, an engine of zt.initialize, or the folder of a run, of a checkpoint or of a Hugging Face model"},
  {"config", "any", "DeepSpeed's configuration: a file's name, JSON text or a table"},
  {"mesh", "Mesh", "from comm.mesh, with axes tp, ep and dp; by default made from tensor_parallel and moe"},
  {"tokenizer", "any", "as of infer.engine"},
  {"chat_template", "string", "as of infer.engine"},
  {"weights", "table", "as of infer.engine, in place of dtype 'int8' and quant"},
  {"token_budget", "integer", "as of infer.engine", at_least = 1},
  {"max_sequences", "integer", "as of infer.engine", at_least = 1},
  {"cache", "table", "as of infer.engine"},
  {"numerics", "string", "as of infer.engine"},
  {"speculative", "table", "as of infer.engine"},
  {"stop_tokens", "list", "as of infer.engine"},
}
local PASSED = {"tokenizer", "chat_template", "cache", "numerics", "speculative", "stop_tokens"}

local build = {}

-- Returns the options of zt.init_inference, and those that are keys of DeepSpeed.
local function split(value)
  if type(value) ~= "table" then fail("zt.init_inference takes a table of options, got %s", check.type_name(value)) end
  local own, others, is_own, names = {}, {}, {}, {"inference_v2"}
  for _, option in ipairs(SCHEMA) do
    is_own[option[1]] = true
    names[#names + 1] = option[1]
  end
  for _, schema in ipairs {keys, ragged_keys} do
    for _, entry in ipairs(schema.blocks[""].entries) do names[#names + 1] = entry.key end
  end
  local is_known = {}
  for _, name in ipairs(names) do is_known[name] = true end
  for _, key in ipairs(check.sorted_keys(value)) do
    if not is_known[key] then
      local where = elsewhere.text(key, {keys, ragged_keys})
      fail("zt.init_inference: unknown option '%s'%s", key, where and ": " .. where or core.suggest(key, names))
    end
    local part = is_own[key] and own or others
    part[key] = value[key]
  end
  return check.options("zt.init_inference", SCHEMA, own), others
end

-- Returns the trainer or the folder, {trainer =} or {model =}.
local function source_of(model, folder)
  if type(model) == "table" and check.is("Trainer", rawget(model, "trainer")) then model = model.trainer end
  if folder and model ~= nil and model ~= folder then
    fail("zt.init_inference has two models, 'model' and checkpoint = '%s': give one of them", folder)
  end
  if model == nil then model = folder end
  if type(model) == "string" then return {model = model} end
  if check.is("Trainer", model) then return {trainer = model} end
  fail("zt.init_inference.model must be a trainer, an engine of zt.initialize, or the folder of a run, of a checkpoint or of a "
    .. "Hugging Face model, got %s", check.type_name(model))
end

-- Returns an axis of the mesh, or nil if it has none of that name.
local function axis_of(mesh, name)
  local has_axis, axis = pcall(function() return mesh[name] end)
  return has_axis and axis or nil
end

-- Fails unless the axis of the script's mesh has the size that the configuration gives.
local function check_axis(mesh, name, key, size)
  local axis = axis_of(mesh, name)
  local ranks = axis and axis.size or 1
  if size and size ~= ranks then
    fail("%s = %d, and the axis %s of the mesh has %d ranks: give one of them the other's size", key, size, name, ranks)
  end
end

-- Fails unless the ranks can be divided over the axes of a new mesh.
local function check_ranks(tensor, experts)
  local wanted, ranks = tensor * experts, core.world.size
  if ranks % wanted ~= 0 then
    fail("tensor_parallel.tp_size = %d and moe.ep_size = %d need a multiple of %d ranks, and this run has %d: start it by mpirun "
      .. "-n %d, or by ztoolkit run --threads %d", tensor, experts, wanted, ranks, wanted, wanted)
  end
end

-- Checks the layout. Returns the axes of a mesh to make, as comm.mesh takes them, or nil; the text of what all ranks must have
-- alike.
local function plan_of_mesh(own, read)
  local tensor, experts = read.tensor or 1, read.experts or 1
  if own.mesh then
    check_axis(own.mesh, "tp", "tensor_parallel.tp_size", read.tensor)
    check_axis(own.mesh, "ep", "moe.ep_size", read.experts)
    return nil, "{mesh = a Mesh}"
  end
  local told = ("{tp_size = %d, ep_size = %d, zero.stage = %s}"):format(tensor, experts, read.zero and "3" or "below 3")
  if tensor * experts == 1 and not read.zero then return nil, told end
  check_ranks(tensor, experts)
  return {dp = -1, ep = experts, tp = tensor, order = {"dp", "ep", "tp"}}, told
end

-- Returns the options `mesh`, `tensor`, `experts` and `data` of infer.engine; an empty table for this rank alone.
local function layout_of(mesh, read)
  if not mesh then return {} end
  local tp, ep, dp = axis_of(mesh, "tp"), axis_of(mesh, "ep"), axis_of(mesh, "dp")
  local has_experts = ep and ep.size > 1
  local data = dp and (dp.size > 1 or read.zero) and dp or nil
  if data and has_experts then data = mesh:join{"dp", "ep"} end
  if read.zero and not data then
    fail "zero.stage = 3 divides the parameters over the axis dp of the mesh, and it has none of that name: name it so"
  end
  return {mesh = mesh, tensor = tp and tp.size > 1 and tp or nil, experts = has_experts and ep or nil, data = data}
end

-- Returns the option `name`, which the script or the configuration may give.
local function one_of(own, read, name)
  if own[name] ~= nil and read[name] ~= nil then
    fail("zt.init_inference.%s is given, and the configuration gives it, too: leave one of them out", name)
  end
  if own[name] ~= nil then return own[name] end
  return read[name]
end

-- Fails if the model has other numbers of experts than the configuration says.
local function check_experts(model, counts)
  local has_options, options = pcall(function() return model.options end)
  local moe = has_options and type(options) == "table" and options.moe or nil
  for _, count in ipairs(counts) do
    if not moe or count ~= moe.experts then
      fail("moe.moe_experts says %d experts, and the layers of the model have %s: leave the key out", count,
           moe and ("%d"):format(moe.experts) or "none")
    end
  end
end

-- Fails unless each of the parts of names, which say what is packed, is in the name of a matrix that can be packed. The engine
-- itself would say that nothing is left to pack.
local function check_matched(options, parts)
  local of_trainer = options.trainer and options.trainer.model
  local given = of_trainer and of_trainer.options
  if not of_trainer then given = require("zt.ckpt.pretrained.folder").open(options.model).options end
  if not given then return end -- infer.engine refuses to make it again with packed matrices
  local panels = {format = "panels", dtype = "fp32"} -- the one format for matrices of all shapes
  weights.check_parts(require("zt.infer.packed_folder").model_of(given, panels), parts)
end

local function check_made(engine, read)
  local model = engine.trainer.model
  if read.matched then weights.check_parts(model, read.matched) end
  if read.expert_counts then check_experts(model, read.expert_counts) end
  if read.least_context and engine.max_context < read.least_context then
    fail("min_out_tokens = %d, and the engine takes at most %d tokens of a prompt and its answer: raise max_out_tokens, or lower "
      .. "it", read.least_context, engine.max_context)
  end
end

-- Checks the options of zt.init_inference. Returns {own = the options, read = of config.read, options = of infer.engine without
-- the layout, axes = of a mesh to make or nil}, and the text of the layout.
local function plan_of(value)
  local own, others = split(value)
  local read = config.read(own.config, others)
  local options = source_of(own.model, read.folder)
  for _, name in ipairs(PASSED) do options[name] = own[name] end
  for _, name in ipairs {"weights", "token_budget", "max_sequences"} do options[name] = one_of(own, read, name) end
  options.dtype, options.max_context = read.dtype, read.max_context
  if read.matched then check_matched(options, read.matched) end
  if read.zero then sharded.check(options) end
  local axes, told = plan_of_mesh(own, read)
  return {own = own, read = read, options = options, axes = axes}, told
end

--- Checks the options of zt.init_inference. Returns the engine of zt.infer, and the configuration as config.read returns it, with
-- `generation`, what the model's folder says about `generate` (generation_file.lua). Collective. What is wrong on one rank is an
-- error on all.
function build.engine(value)
  local plan = agreed("layouts", function() return plan_of(value) end)
  local own, read, options = plan.own, plan.read, plan.options
  for _, text in ipairs(read.advice) do log.info("zt.init_inference: %s", text) end
  for name, part in pairs(layout_of(plan.axes and require("zt.comm").mesh(plan.axes) or own.mesh, read)) do
    options[name] = part
  end
  local engine
  local is_right, result = pcall(agreed, "models", function()
    engine = read.zero and sharded.engine(options, read.zero) or require("zt.infer").engine(options)
    check_made(engine, read)
    return generation_file.read(options.model, own.stop_tokens)
  end)
  if not is_right then
    if engine then engine:release() end
    error(result, 0)
  end
  read.generation = result
  return engine, read, options.mesh
end

return build
