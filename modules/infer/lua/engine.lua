--- infer.engine{trainer = t, ...}: answers many requests at once with a model.

local check = require "zt.check"
local core = require "zt.core"
local class = require "zt.class"
local fail = require "zt.fail"
local infer = require "zt.infer"
local log = require "zt.log"
local parameters = require "zt.infer.parameters"
local requests = require "zt.infer.requests"
local same_model = require "zt.infer.same_model"

local SCHEMA = {
  {"trainer", "Trainer", "holds the parameters, which are read in place unless a mesh or a dtype is given"},
  {"model", "string", "in place of a trainer: the folder of a run, of a checkpoint, or of a model as Hugging Face writes it"},
  {"adapter", "string", "the folder of a LoRA adapter as PEFT saves it, which is added to the weights of `model`"},
  {"mesh", "Mesh", "the ranks of the model; by default those of the trainer, or this rank alone"},
  {"tensor", "Axis", "the axis of the mesh over whose ranks matrices are cut"},
  {"pipeline", "Axis", "the axis over whose ranks layers are divided"},
  {"experts", "Axis", "the axis over whose ranks experts are divided, which have other requests"},
  {"data", "Axis", "the axis whose ranks have other requests"},
  {"dtype", "string", "of the parameters; default: that of the folder or trainer", one_of = {"fp32", "bf16", "fp16", "fp64"}},
  {"weights", "table", "the format of matrices: {format = int8, int4, nf4 or panels, group =, symmetric =, activations =, keep =}"
   .. "; default: plain"},
  {"tokenizer", "any", "converts between text and tokens, as data.tokenizer.load gives"},
  {"shard", "any", "options of zero.shard, or function(model) that returns them: ranks of `data` hold parts of the parameters"},
  {"offload", "table", "options of offload.move: where these parts lie between their uses, {parameters = \"nvme\", folder =}"},
  {"chat_template", "string", "the template, in Jinja's language, of conversations; default: the folder's"},
  {"max_context", "integer", "most tokens of a prompt and its answer; default: the model's seq", at_least = 1},
  {"token_budget", "integer", "most tokens that a step computes", default = 512, at_least = 1},
  {"max_sequences", "integer", "most answers that a step works on", default = 64, at_least = 1},
  {"cache", "table", "the memory for keys and values: {memory =, block =, dtype =, prefix =}", default = {}},
  {"numerics", "string", "invariant: an answer does not depend on what else is computed; or fast", default = "invariant",
   one_of = {"invariant", "fast"}},
  {"speculative", "table", "guesses tokens by what the text said before: {tokens =, match =}"},
  {"stop_tokens", "list", "tokens of the model that end an answer; default: those that the folder names"},
}
local GENERATE = {
  {"on_text", "function", "function(piece), called with {request =, copy =, text =} for each piece of text"},
}

local Engine = class "InferenceEngine"

-- Returns the model of a trainer as model.open returns that of a folder.
local function model_of(trainer)
  local options = trainer.model.options
  if options == nil then
    fail("infer.engine: nn.gpt or moe.gpt did not make the trainer's model, so it cannot be made for another mesh or dtype: "
      .. "leave them out")
  end
  return {
    options = options, dtype = infer.abilities(trainer).dtype,
    load = function(to) parameters.copy(trainer, to) end,
  }
end

local function check_held(self)
  if not self.core then fail "this engine was released: make another one" end
end

-- Returns the engine in C++. In a dry run there is nothing to compute: prints the plan of a step, and ends the process.
local function core_of(self)
  check_held(self)
  if self.broken then
    fail("engine:update has failed, so the parameters are partly those of another trainer: call it again with one that fits. It "
      .. "said: %s", self.broken)
  end
  if core.world.dry then self.trainer:evaluate(self.core:describe_step()) end
  return self.core
end

-- Calls fn() on all ranks that compute requests together. If it fails on one of them, all fail. Returns the first result of fn;
-- the second one is a number of requests that must be the same on these ranks, by default 0.
local function together(self, fn)
  local engine = core_of(self)
  local is_right, result, count = pcall(fn)
  local reason = engine:agreed(is_right and "" or (tostring(result):gsub("^%S+:%d+: ", "")), is_right and count or 0)
  if reason ~= "" then fail("%s", reason) end
  return result
end

-- Returns the request as the engine in C++ takes it, if it can be answered.
local function checked(self, request, path)
  local ready = requests.plain(self, request, path)
  self.core:check(ready, path)
  return ready
end

--- Adds a request. Returns its number. Collective over the ranks that compute it together, as are `abort` and `step`.
function Engine:submit(request)
  return core_of(self):submit(together(self, function() return checked(self, request, "request") end), "request")
end

--- Ends all answers of a request before the next step. Returns whether it had any.
function Engine:abort(number)
  check.argument("engine:abort", "the first argument", "integer", number)
  return core_of(self):abort(number)
end

--- Computes some tokens of the answers under way and draws the next ones. Returns {answers = those that are complete now,
-- texts = {{request =, copy =, text =}, ...}}, or nil if there was nothing to do. Answers and texts of requests that were
-- submitted come here, also those that `generate` has computed beside its own.
function Engine:step()
  local step, kept = core_of(self):step(), self.kept
  if not kept then return step end
  self.kept, step = nil, step or {answers = {}, texts = {}}
  for _, name in ipairs{"answers", "texts"} do
    for _, each in ipairs(step[name]) do table.insert(kept[name], each) end
  end
  return kept
end

-- Keeps answers and texts of other requests than those of `generate` for the next step.
local function keep(self, name, value)
  self.kept = self.kept or {answers = {}, texts = {}}
  table.insert(self.kept[name], value)
end

-- Steps until there is nothing to do.
local function step_all(self, on_piece, on_answer)
  for step in function() return self.core:step() end do
    for _, piece in ipairs(step.texts) do on_piece(piece) end
    for _, answer in ipairs(step.answers) do on_answer(answer) end
  end
end

-- Returns the requests as the engine in C++ takes them, and the options of `generate`. A mistake is an error after the steps that
-- other replicas need this one for.
local function prepared(self, given, value)
  local is_right, result = pcall(together, self, function()
    local options = check.options("engine:generate", GENERATE, value)
    if type(given) ~= "table" then fail("engine:generate takes a list of requests, got %s", check.type_name(given)) end
    if given.prompt ~= nil or given.messages ~= nil then given = {given} end
    local ready = {}
    for place, request in ipairs(given) do ready[place] = checked(self, request, "requests[" .. place .. "]") end
    return {ready = ready, options = options}, #ready
  end)
  if is_right then return result.ready, result.options end
  if self.core and self.core.is_coupled then
    step_all(self, function(piece) keep(self, "texts", piece) end, function(answer) keep(self, "answers", answer) end)
  end
  error(result, 0)
end

--- Answers a list of requests, or one. Returns their answers, those of the first request first, each with its `request`, the
-- place in the list. Each replica passes its own requests; all ranks of a replica pass the same.
function Engine:generate(given, value)
  local ready, options = prepared(self, given, value)
  local engine, numbers, places, answers = self.core, {}, {}, {}
  for place, request in ipairs(ready) do
    numbers[place] = engine:submit(request, "requests[" .. place .. "]")
    places[numbers[place]] = place
  end
  local function abort()
    for _, number in ipairs(numbers) do engine:abort(number) end
  end
  local failure -- of on_text, which may fail on one rank only
  local function show(piece)
    if not places[piece.request] then return keep(self, "texts", piece) end
    piece.request = places[piece.request]
    if not options.on_text or failure then return end
    local is_shown, reason = pcall(options.on_text, piece)
    if is_shown then return end
    failure = tostring(reason)
    abort()
  end
  local is_done, reason = pcall(step_all, self, show, function(answer)
    if not places[answer.request] then return keep(self, "answers", answer) end
    answer.request = places[answer.request]
    answers[#answers + 1] = answer
  end)
  if not is_done then
    abort()
    error(reason, 0)
  end
  together(self, function() if failure then error(failure, 0) end end)
  table.sort(answers, function(a, b)
    if a.request ~= b.request then return a.request < b.request end
    return a.copy < b.copy
  end)
  return answers
end

--- Takes the parameters of a trainer of the same model, unless the engine reads those of a trainer that has an optimizer.
-- Nothing is to be done for the trainer whose parameters it reads. Answers that have begun end with an error. Collective over
-- both meshes.
function Engine:update(trainer)
  check_held(self)
  check.argument("engine:update", "the first argument", "Trainer", trainer)
  if trainer == self.trainer then return end
  if infer.abilities(self.trainer).trains then
    fail("engine:update: this engine reads the parameters of a trainer that trains, and another trainer's would replace them: "
      .. "make the engine with mesh, dtype or model, so that it has parameters of its own")
  end
  same_model.check(trainer.model, self.trainer.model, "engine:update")
  local is_done, reason = pcall(parameters.copy, trainer, self.trainer)
  self.broken = not is_done and tostring(reason) or nil
  if not is_done then error(reason, 0) end
end

--- Returns numbers about what the engine has done and holds.
function Engine:stats() return core_of(self):stats() end

--- Frees the memory for keys and values. The engine cannot be used any more.
function Engine:release()
  self.core, self.trainer = nil, nil
  collectgarbage()
end

-- A model with rotary positions also computes positions beyond those of its training, but its answers there may be useless.
local function warn_of_context(options, of_model)
  local most = of_model.seq
  if not options.max_context or not most or most == 0 or options.max_context <= most or core.world.rank > 0 then return end
  log.warn("infer.engine: max_context = %d is more than the %d tokens of the model, whose answers beyond these may be useless",
           options.max_context, most)
end

-- The options of `make`, in C++.
local OF_CORE = {"trainer", "tokenizer", "max_context", "token_budget", "max_sequences", "cache", "numerics", "speculative",
                 "stop_tokens"}

-- Returns the options, the opened model if the engine makes a trainer of its own, and the chat template of the options.
local function opened_of(value)
  local options = check.options("infer.engine", SCHEMA, value)
  if (options.trainer == nil) == (options.model == nil) then fail "infer.engine: give either trainer or model" end
  if options.adapter and not options.model then
    fail "infer.engine.adapter: an adapter is added to weights that are read from a folder: give model, not trainer"
  end
  local chat = options.chat_template and {source = options.chat_template, name = "chat_template", variables = {}} or nil
  if chat then requests.template_of(chat) end
  local has_layout = options.mesh or options.tensor or options.pipeline or options.experts or options.data or options.dtype
    or options.weights or options.shard or options.offload
  if not options.model and not has_layout then return options, nil, chat end
  local opened = options.model and require("zt.infer.model").open(options.model, options.adapter) or model_of(options.trainer)
  warn_of_context(options, opened.options)
  if chat and opened.chat then chat.variables = opened.chat.variables end
  return options, opened, chat or opened.chat
end

-- Options that name folders, which ranks on other machines may have elsewhere.
local OF_FOLDERS = {model = true, adapter = true, offload = true}

-- Returns the text of those options that all ranks of a mesh must give alike.
local function told(given)
  local parts = {}
  for _, row in ipairs(SCHEMA) do
    local value = given[row[1]]
    if type(value) == "table" then value = "{" .. same_model.text_of(value) .. "}" end
    local is_plain = type(value) ~= "userdata" and type(value) ~= "function"
    if value ~= nil and is_plain and not OF_FOLDERS[row[1]] then
      parts[#parts + 1] = row[1] .. " = " .. tostring(value)
    end
  end
  return table.concat(parts, ", ")
end

local function engine(value)
  local is_right, options, opened, chat = pcall(opened_of, value)
  local given = type(value) == "table" and value or {}
  local reason = infer.agreed(given.mesh or given.trainer, is_right and "" or tostring(options), is_right and told(given) or "")
  if reason ~= "" then error(reason, 0) end
  if opened then
    options.trainer = require "zt.infer.trainer"(opened, options)
    options.tokenizer = options.tokenizer or opened.tokenizer
    options.stop_tokens = options.stop_tokens or opened.stop_tokens
  end
  local self, of_core = setmetatable({tokenizer = options.tokenizer, trainer = options.trainer, chat = chat}, Engine), {}
  for _, key in ipairs(OF_CORE) do of_core[key] = options[key] end
  self.core = infer.make(of_core)
  self.max_context, self.vocabulary = self.core.max_context, self.core.vocabulary
  return self
end

return engine
