--- infer.engine{trainer = t, ...}: answers many requests at once with a model.

local check = require "zt.check"
local core = require "zt.core"
local class = require "zt.class"
local engine_options = require "zt.infer.engine_options"
local fail = require "zt.fail"
local infer = require "zt.infer"
local methods = require "zt.methods"
local parameters = require "zt.ckpt.pretrained.parameters"
local requests = require "zt.infer.requests"
local same_model = require "zt.ckpt.pretrained.same_model"

local GENERATE = {
  {"on_text", "function", "function(piece), called with {request =, copy =, text =} for each piece of text"},
}

local Engine = class "InferenceEngine"

local function check_held(self)
  if not self.core then fail "this engine was released: make another one" end
end

-- Fails inside on_text, which `generate` calls between its steps.
local function check_outside(self, call)
  if self.showing == nil or self.showing ~= (coroutine.running() or true) then return end
  fail("engine:%s was called inside on_text, while engine:generate makes the answers: call it after generate, or raise an error "
    .. "to end them", call)
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

-- Returns those answers, or texts, of a step whose requests were not dropped.
local function wanted(list, dropped)
  local left = {}
  for _, each in ipairs(list) do
    if not dropped[each.request] then left[#left + 1] = each end
  end
  return left
end

-- Computes a step in C++. Returns it without what is of dropped requests, or nil if there was nothing to do.
local function core_step(self)
  check_held(self)
  local step, dropped = self.core:step(), self.dropped
  if not step then self.dropped = nil end
  if not step or not dropped then return step end
  return {answers = wanted(step.answers, dropped), texts = wanted(step.texts, dropped)}
end

--- Computes some tokens of the answers under way and draws the next ones. Returns {answers = those that are complete now,
-- texts = {{request =, copy =, text =}, ...}}, or nil if there was nothing to do. Answers and texts of requests that were
-- submitted come here, also those that `generate` has computed beside its own.
function Engine:step()
  check_outside(self, "step")
  core_of(self)
  local step, kept = core_step(self), self.kept
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

-- Ends the requests of a `generate` that has failed. Later steps do not return their answers, since nobody waits for them.
local function drop(self, engine, numbers)
  self.dropped = self.dropped or {}
  for _, number in ipairs(numbers) do
    engine:abort(number)
    self.dropped[number] = true
  end
end

-- Steps until there is nothing to do.
local function step_all(self, on_piece, on_answer)
  for step in core_step, self do
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
    requests.check_list("requests", given)
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
  check_outside(self, "generate")
  local ready, options = prepared(self, given, value)
  local engine, numbers, places, answers = self.core, {}, {}, {}
  for place, request in ipairs(ready) do
    numbers[place] = engine:submit(request, "requests[" .. place .. "]")
    places[numbers[place]] = place
  end
  local failure -- of on_text, which may fail on one rank only
  local function show(piece)
    if not places[piece.request] then return keep(self, "texts", piece) end
    piece.request = places[piece.request]
    if not options.on_text or failure then return end
    self.showing = coroutine.running() or true
    local is_shown, reason = pcall(options.on_text, piece)
    self.showing = nil
    if is_shown then return end
    failure = tostring(reason)
    for _, number in ipairs(numbers) do engine:abort(number) end
  end
  local is_done, reason = pcall(step_all, self, show, function(answer)
    if not places[answer.request] then return keep(self, "answers", answer) end
    answer.request = places[answer.request]
    answers[#answers + 1] = answer
  end)
  if not is_done then
    drop(self, engine, numbers)
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
  local is_done, reason = pcall(parameters.take, trainer, self.trainer)
  self.broken = not is_done and tostring(reason) or nil
  if not is_done then error(reason, 0) end
end

--- Returns numbers about what the engine has done and holds.
function Engine:stats() return core_of(self):stats() end

--- Frees the memory for keys and values. The engine cannot be used any more.
function Engine:release()
  check_outside(self, "release")
  self.core, self.trainer = nil, nil
  collectgarbage()
end

-- The options of `make`, in C++.
local OF_CORE = {"trainer", "tokenizer", "max_context", "token_budget", "max_sequences", "cache", "numerics", "speculative",
                 "stop_tokens"}

methods(Engine, "engine")

local function engine(value)
  local is_right, options, opened, chat = pcall(engine_options.opened_of, value)
  local given = type(value) == "table" and value or {}
  local mistake = is_right and "" or (tostring(options):gsub("^%S+:%d+: ", ""))
  local reason = infer.agreed(given.mesh or given.trainer, mistake, is_right and engine_options.told(given) or "")
  if not is_right then error(options, 0) end
  if reason ~= "" then fail("%s", reason) end
  if opened then
    options.trainer = require "zt.infer.trainer"(opened, options)
    options.tokenizer = options.tokenizer or opened.tokenizer
    options.stop_tokens = options.stop_tokens or opened.stop_tokens
  end
  local self, of_core = setmetatable({tokenizer = options.tokenizer, trainer = options.trainer, chat = chat,
                                      stop_tokens = options.stop_tokens or {}}, Engine), {}
  for _, key in ipairs(OF_CORE) do of_core[key] = options[key] end
  self.core = infer.make(of_core)
  self.max_context, self.vocabulary = self.core.max_context, self.core.vocabulary
  return self
end

return engine
