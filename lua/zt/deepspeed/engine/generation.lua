--- Generation between training steps: the block `hybrid_engine` of the JSON.
--
--   local generator = engine:generator{tokenizer = tokenizer}   -- an engine of zt.infer with the current weights
--   local answers = generator:generate(requests)                -- any number of calls: a phase of generation
--   engine:train_batch(batch)                                   -- ends the phase
--   local others = engine:generate(requests)                    -- a whole phase in one call
--
-- The generator reads the trainer's parameters in place if a rank computes alone with them. Otherwise it has parameters of its
-- own on a mesh of its own, which get the values of the trainer's at the beginning of a phase.

local agreed = require "zt.deepspeed.inference.agreement"
local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local generation_file = require "zt.deepspeed.inference.generation_file"
local meshes = require "zt.deepspeed.engine.meshes"
local same_model = require "zt.ckpt.pretrained.same_model"
local transformers = require "zt.deepspeed.inference.generation"

local OPTIONS = {
  {"tokenizer", "any", "as of infer.engine"},
  {"chat_template", "string", "as of infer.engine"},
  {"weights", "table", "as of infer.engine: the generator then has parameters of its own"},
  {"token_budget", "integer", "as of infer.engine", at_least = 1},
  {"max_sequences", "integer", "as of infer.engine", at_least = 1},
  {"cache", "table", "as of infer.engine"},
  {"numerics", "string", "as of infer.engine"},
  {"speculative", "table", "as of infer.engine"},
  {"stop_tokens", "list", "as of infer.engine"},
}

local generation = {}

--- Returns the state of a new engine's generation. Its fields: `made`, the engine of zt.infer, or nil; `options`, those of the
-- last call that had some; `mesh`, that of parameters of its own, or nil; `is_open`, whether there is a phase; `told`, the texts
-- that were logged once.
function generation.new() return {options = {}, is_open = false, told = {}} end

-- Returns whether each rank can compute alone with the trainer's parameters, or with parts of them that the JSON wants to be
-- gathered in each step.
local function is_read_in_place(engine, options)
  local asked, config = engine.config.generator, engine.config
  if asked.tensor > 1 or options.weights or engine.stages > 1 or meshes.is_cut(engine.model, engine.mesh) then return false end
  if config.zero.stage < 3 or not asked.gathered then return true end
  return engine.axis.size == 1 and not (config.offload and config.offload.parameters)
end

-- Returns the options `mesh`, `tensor`, `experts` and `data` of a generator with parameters of its own. Collective.
local function layout_of(engine)
  local state, experts = engine.generation, meshes.ranks_along(engine.mesh, "ep")
  local axes = {dp = -1, ep = experts, tp = engine.config.generator.tensor, order = {"dp", "ep", "tp"}}
  state.mesh = state.mesh or engine.mesh:refactor(axes)
  local mesh = state.mesh
  local data = mesh.dp.size > 1 and mesh.dp or nil
  if data and experts > 1 then data = mesh:join{"dp", "ep"} end
  return {mesh = mesh, tensor = mesh.tp.size > 1 and mesh.tp or nil, experts = experts > 1 and mesh.ep or nil, data = data}
end

-- Returns the engine of zt.infer. Collective.
local function make(engine)
  local options = {trainer = engine.trainer, max_context = engine.config.generator.max_context}
  for name, value in pairs(engine.generation.options) do options[name] = value end
  if not is_read_in_place(engine, options) then
    for name, part in pairs(layout_of(engine)) do options[name] = part end
  end
  return require("zt.infer").engine(options)
end

-- Frees the generator: its keys and values, and its parameters if it has its own.
local function free(state)
  if state.made then state.made:release() end
  state.made = nil
end

-- Checks the call and its options, which may be nil. Returns the options, and a text of what all ranks must have alike: otherwise
-- one of them would make a generator, and another one would update its own.
local function checked(engine, call, value)
  if not engine.config.generator then
    fail("engine:%s needs \"hybrid_engine\": {\"enabled\": true} in the configuration, which says in which layout; "
      .. "zt.init_inference{model = engine} makes an engine without it", call)
  end
  engine:expect_boundary(call)
  local options = value ~= nil and check.options("engine:" .. call, OPTIONS, value) or nil
  local told = options and "{" .. same_model.text_of(options) .. "}" or "none"
  return options, ("%s where %s generator is there"):format(told, engine.generation.made and "a" or "no")
end

-- Makes the generator. If this fails, the options are those that were there before, `kept`.
local function remake(engine, kept)
  local state = engine.generation
  local is_made, result = pcall(make, engine)
  if not is_made then
    state.options = kept
    error(result, 0)
  end
  state.made = result
end

-- Begins a phase, or continues the one that is open, for the method `call`.
local function begun(engine, call, value)
  local state = engine.generation
  local options, kept = agreed("options of engine:" .. call, function() return checked(engine, call, value) end), state.options
  if options then
    free(state)
    state.options = options
  end
  if not state.made then
    remake(engine, kept)
  elseif not core.world.dry then
    state.made:update(engine.trainer)
  end
  state.is_open = true
  return state.made
end

--- Returns the engine of zt.infer that generates with the current weights, in the layout of `hybrid_engine`. Begins a phase of
-- generation, which the next training step, engine:train() or engine:end_generation() ends; call it in each phase. The options
-- are those of infer.engine without the layout, and make the generator anew. Without options, those of the last call count.
-- Collective. What is wrong on one rank is an error on all.
function generation.generator(engine, options) return begun(engine, "generator", options) end

--- Ends a phase of generation. With `release_inference_cache`, frees the memory of the generator, which is made anew for the next
-- phase. Does nothing without a phase.
function generation.end_generation(engine)
  local state = engine.generation
  if not state.is_open then return end
  state.is_open = false
  if engine.config.generator.release then free(state) end
end

--- Generates as the engine of zt.init_inference does, with the current weights: takes the arguments of transformers' generate, or
-- requests of zt.infer. Without a phase that is open, the call is one. Collective.
function generation.generate(engine, inputs, more)
  local state = engine.generation
  local was_open = state.is_open
  local made = begun(engine, "generate")
  local is_done, result = pcall(function()
    local defaults = generation_file.read(nil, state.options.stop_tokens)
    return transformers.generate({engine = made, config = {generation = defaults}, told = state.told}, inputs, more)
  end)
  if not was_open then engine:end_generation() end
  if not is_done then error(result, 0) end
  return result
end

return generation
