--- zt.init_inference: an inference engine with DeepSpeed's names, for scripts and configurations written for DeepSpeed.
--
--   local engine = zt.init_inference{model = "path/to/llama", config = {dtype = "bf16", tensor_parallel = {tp_size = 2}}}
--   local tokens = engine:generate{input_ids = ids, max_new_tokens = 20}          -- as transformers' generate
--   local answers = engine:generate{{prompt = "Science", max_tokens = 8}}         -- as the engine of zt.infer
--
-- The engine is Lua on top of infer.engine, which is its field `engine`. Scripts may also use engine.trainer, .module (the
-- model), .tokenizer, .mesh, .max_context and .config (the result of zt.deepspeed.inference.config).

local build = require "zt.deepspeed.inference.build"
local check = require "zt.check"
local class = require "zt.class"
local core = require "zt.core"
local fail = require "zt.fail"
local generation = require "zt.deepspeed.inference.generation"
local methods = require "zt.methods"
local samples = require "zt.deepspeed.inference.generation_samples"

local Engine = class.new "DeepSpeedInference"

function Engine:init(options)
  self.engine, self.config, self.mesh = build.engine(options)
  self.trainer, self.tokenizer, self.max_context = self.engine.trainer, self.engine.tokenizer, self.engine.max_context
  self.module = self.trainer.model
  self.has_profile, self.times, self.told = false, {}, {}
end

-- Calls fn(...). With profile_model_time, notes the milliseconds that it takes.
local function timed(self, fn, ...)
  if not self.engine then fail "this engine was destroyed: make another one with zt.init_inference" end
  local begin = core.now()
  local result = fn(...)
  if self.has_profile then table.insert(self.times, 1000 * (core.now() - begin)) end
  return result
end

-- Calls fn(). Returns what is wrong on one of the ranks that make the same call ("": nothing), and the result of fn. `mesh`: all
-- its ranks make this call; nil: the ranks that share matrices.
local function together(self, mesh, fn)
  local is_right, result = pcall(fn)
  local mine = is_right and "" or (tostring(result):gsub("^%S+:%d+: ", ""))
  if core.world.dry then return mine, result end
  return mesh and require("zt.infer").agreed(mesh, mine) or self.engine.core:agreed(mine), result
end

--- Generates tokens. With a tensor [samples, tokens], a list of lists of tokens, or a table with `input_ids`, takes the arguments
-- of transformers' generate and returns an int64 tensor of samples and answers. What no argument says is as the
-- generation_config.json of the model's folder says, and otherwise as in transformers: engine.config.generation has these
-- values. Otherwise takes requests of zt.infer and returns answers. All ranks that share matrices make the same call; other ranks
-- have samples of their own.
function Engine:generate(inputs, options) return timed(self, generation.generate, self, inputs, options) end

local FORWARD = {
  {"input_ids", "any", "an int64 tensor [samples, tokens]", required = true},
  {"attention_mask", "any", "a tensor or lists of ones: samples of other lengths need calls of their own"},
}

-- Returns the options of `forward`, checked.
local function checked_batch(batch)
  if check.is("tensor", batch) then batch = {input_ids = batch} end
  local o = check.options("engine:forward", FORWARD, batch)
  if not check.is("tensor", o.input_ids) or o.input_ids:dim() ~= 2 then
    fail("engine:forward.input_ids must be an int64 tensor [samples, tokens], got %s", check.type_name(o.input_ids))
  end
  if o.attention_mask ~= nil and samples.has_padding("engine:forward", o.attention_mask, o.input_ids) then
    fail "engine:forward.attention_mask has zeros: samples of other lengths need calls of their own, or engine:generate"
  end
  return o
end

-- Returns the mesh whose ranks all take part in a forward pass, because they share parameters or experts; nil if there is none.
local function coupled_mesh(self)
  local is_coupled = self.config.zero or (self.config.experts or 1) > 1
  return is_coupled and self.mesh or nil
end

--- Returns {logits = [samples, tokens, vocab]} of an int64 tensor [samples, tokens], or of {input_ids = tensor}. `engine(batch)`
-- is the same. Collective over the ranks that share matrices or parameters, with the same tensor where they share matrices.
function Engine:forward(batch)
  return timed(self, function()
    local wrong, o = together(self, coupled_mesh(self), function() return checked_batch(batch) end)
    if wrong ~= "" then fail("%s", wrong) end
    return {logits = self.trainer:infer{tokens = o.input_ids}.logits}
  end)
end

Engine.__call = Engine.forward

--- Frees the memory for keys and values, and the parameters if the engine made them. The engine cannot be used any more.
function Engine:destroy()
  if self.engine then self.engine:release() end
  self.engine, self.trainer, self.module = nil, nil, nil
end

--- From now on, the milliseconds of each call of forward and generate are kept for model_times.
function Engine:profile_model_time() self.has_profile = true end

--- Returns the milliseconds of the calls since profile_model_time or the last model_times, and forgets them.
function Engine:model_times()
  if not self.has_profile then fail "engine:model_times: nothing was measured: call engine:profile_model_time() before" end
  local times = self.times
  self.times = {}
  return times
end

--- Returns the engine: it always evaluates.
function Engine:eval() return self end

-- Methods of DeepSpeed's engines that this engine refuses ---------------------------------------------------------------------

for name, use in pairs {
  train = "it has no optimizer; train with zt.initialize or zt.trainer, and give the trainer as `model`",
  compile = "kernels are compiled and fused by hand: leave the call out",
  put = "requests are scheduled by the engine: call engine.engine:submit{prompt = tokens} and engine.engine:step()",
  query = "the engine divides the cache by itself: call engine.engine:submit, and engine.engine:stats() for its blocks",
  can_schedule = "a request that waits is scheduled as soon as there is room: call engine.engine:submit",
  flush = "the blocks of an answer are free when it ends: to end it before, call engine.engine:abort(number)",
  serialize = "the parameters are those of the folder; save a trainer by zt.ckpt.save",
} do
  Engine[name] = function() fail("engine:%s: %s", name, use) end
end

methods(Engine, "engine", {"engine", "trainer", "module", "tokenizer", "mesh"})

--- Makes an engine. Collective. `model` is a trainer, an engine of zt.initialize, or a folder as of infer.engine; `config` a
-- file's name, JSON text or a table of DeepSpeed's keys, or of FastGen's. Keys may also be options, beside the configuration: a
-- key with two values is an error. Further options: mesh, and tokenizer, chat_template, weights, token_budget, max_sequences,
-- cache, numerics, speculative and stop_tokens of infer.engine.
local function init_inference(options) return Engine(options) end

return init_inference
