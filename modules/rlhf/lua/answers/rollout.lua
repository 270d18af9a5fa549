--- rlhf.rollout{engine = e, prompts = batch, n = 8, ...}: samples answers.

local check = require "zt.check"
local core = require "zt.core"
local Experience = require "zt.rlhf.answers.experience"
local fail = require "zt.fail"
local infer = require "zt.infer"
local log = require "zt.log"
local items = require "zt.rlhf.answers.items"
local rlhf = require "zt.rlhf"
local share = require "zt.rlhf.answers.share"

local NAME = "rlhf.rollout"
local SCHEMA = {
  {"engine", "any", "an infer.engine with the policy's parameters", required = true},
  {"prompts", "table", "a batch of data.prompts, or {prompts = list of tokens, items =, sample =}", required = true},
  {"n", "integer", "answers to each prompt", default = 1, at_least = 1, peers = {"num_generations", "rloo_k"}},
  {"max_tokens", "integer", "most tokens of an answer", required = true, at_least = 1,
   peers = {"max_completion_length", "max_new_tokens", "response_length", "max_answer_seq_len"}},
  {"min_tokens", "integer", "fewest tokens of an answer", default = 0, at_least = 0},
  {"temperature", "number", "divides the logits", default = 1, above = 0},
  {"seed", "integer", "of all random numbers of the run", default = 1},
  {"iteration", "integer", "makes other random numbers for the same prompt", default = 0, at_least = 0},
  {"stop_tokens", "list", "tokens that end an answer; default: the engine's"},
  {"mesh", "Mesh", "whose ranks share the prompts; default: that of the engine's trainer"},
  {"top_k", "any", "is refused"}, {"top_p", "any", "is refused"}, {"min_p", "any", "is refused"},
  {"repetition_penalty", "any", "is refused"}, {"presence_penalty", "any", "is refused"},
  {"frequency_penalty", "any", "is refused"},
}

-- Options of requests with which an answer is not a sample of the policy.
local REFUSED = {"top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"}

local function check_more(o)
  for _, name in ipairs(REFUSED) do
    if o[name] ~= nil then
      fail("%s.%s: with it an answer is no sample of the policy, whose probabilities the losses use, so gradients would be "
        .. "biased: leave it out", NAME, name)
    end
  end
  if check.type_name(o.engine) ~= "an InferenceEngine" then
    fail("%s.engine must be an engine of infer.engine, got %s", NAME, check.type_name(o.engine))
  end
  if not o.engine.trainer then fail("%s.engine was released: make another one", NAME) end
end

-- Returns the mesh that options name, also if others of them are wrong; nil if they name none.
local function mesh_of(value)
  if type(value) ~= "table" then return nil end
  if check.is("Mesh", value.mesh) then return value.mesh end
  local engine = value.engine
  return check.type_name(engine) == "an InferenceEngine" and engine.trainer and engine.trainer.mesh or nil
end

-- Returns the numbers of the prompts, a list.
local function sample_numbers(given)
  local sample = given.sample
  if check.is("tensor", sample) and sample:dtype() == "int64" and sample:dim() == 1 and sample:numel() == #given.prompts then
    return sample:tolist()
  end
  fail("%s.prompts.sample must be an int64 vector with the number of each of the %d prompts, got %s", NAME, #given.prompts,
       check.is("tensor", sample) and ("%d of %s"):format(sample:numel(), sample:dtype()) or check.type_name(sample))
end

-- Fails unless the prompt at place i is a list of tokens.
local function check_tokens(tokens, i)
  if next(tokens) == nil then fail("%s.prompts.prompts[%d] has no token: a model cannot begin with nothing", NAME, i) end
  local count = 0
  for key in pairs(tokens) do
    count = count + 1
    if type(key) ~= "number" then
      fail("%s.prompts.prompts[%d] must be a list of tokens, got the key '%s'", NAME, i, tostring(key))
    end
  end
  for place = 1, count do
    local token = tokens[place]
    if type(token) ~= "number" or token % 1 ~= 0 or token < 0 then
      fail("%s.prompts.prompts[%d][%d] must be a token, an integer from 0 on, got %s", NAME, i, place,
           type(token) == "number" and ("%g"):format(token) or check.type_name(token))
    end
  end
end

-- Returns the list of this rank's prompts, {sample =, tokens = list, item =}.
local function own_prompts(given)
  if type(given.prompts) ~= "table" or #given.prompts == 0 and not given.sample then
    fail("%s.prompts must be a batch of data.prompts, {prompts = {tokens, ...}}, got %s", NAME,
         given.prompts == nil and "no prompts in it" or "an empty list")
  end
  if given.items ~= nil and type(given.items) ~= "table" then
    fail("%s.prompts.items must be a list with the item of each prompt, got %s", NAME, check.type_name(given.items))
  end
  local samples, list = given.sample and sample_numbers(given), {}
  for i, tokens in ipairs(given.prompts) do
    local is_tensor = check.is("tensor", tokens)
    if not is_tensor and type(tokens) ~= "table" then
      fail("%s.prompts.prompts[%d] must be tokens, a tensor or a list, got %s", NAME, i, check.type_name(tokens))
    end
    local plain = is_tensor and tokens:tolist() or tokens
    check_tokens(plain, i)
    list[i] = {sample = samples and samples[i] or i - 1, tokens = plain, item = given.items and given.items[i]}
  end
  return list
end

-- Returns the lists of prompts of all ranks.
local function gathered(world, given)
  if not world then return {own_prompts(given)} end
  local own = share.together(world, function()
    local list = own_prompts(given)
    for i, prompt in ipairs(list) do prompt.item = items.packed(prompt.item, ("%s.prompts.items[%d]"):format(NAME, i)) end
    return list
  end)
  local lists = world:gather_values(own)
  for _, list in ipairs(lists) do
    for _, prompt in ipairs(list) do prompt.item = items.unpacked(prompt.item) end
  end
  return lists
end

-- Returns the prompts of all ranks by ascending sample number, each once.
local function all_prompts(world, given)
  local all, by_sample = {}, {}
  for _, list in ipairs(gathered(world, given)) do
    for _, prompt in ipairs(list) do
      local there = by_sample[prompt.sample]
      if not there then
        by_sample[prompt.sample], all[#all + 1] = prompt, prompt
      elseif table.concat(there.tokens, " ") ~= table.concat(prompt.tokens, " ") then
        fail("%s.prompts: two different prompts have the sample number %d, which decides their random numbers: give `sample`, "
          .. "with a number of its own for each prompt of all ranks", NAME, prompt.sample)
      elseif not items.are_equal(there.item, prompt.item) then
        fail("%s.prompts: two different items have the sample number %d, and a prompt has one: give `sample`, with a number of "
          .. "its own for each prompt of all ranks", NAME, prompt.sample)
      end
    end
  end
  if #all == 0 then fail("%s.prompts: no rank has a prompt", NAME) end
  table.sort(all, function(a, b) return a.sample < b.sample end)
  return all
end

-- Returns the answers of this rank's group, and the places of their prompts in the list by request: {answers =, places =}.
local function generate(o, prompts, own)
  local requests, places = {}, {}
  for place = own.index + 1, #prompts, own.count do
    requests[#requests + 1] = {
      prompt = prompts[place].tokens, n = o.n, max_tokens = o.max_tokens, min_tokens = o.min_tokens,
      temperature = o.temperature, seed = rlhf.seed_of(o.seed, o.iteration, prompts[place].sample),
      stop_tokens = o.stop_tokens, logprobs = 0,
    }
    places[#requests] = place
  end
  return {answers = o.engine:generate(requests), places = places}
end

-- Fails if an answer is none.
local function check_answers(answers, places, prompts)
  for _, answer in ipairs(answers) do
    if answer.finish_reason == "error" or answer.finish_reason == "abort" then
      fail("%s: the answer to prompt %d ended with: %s", NAME, prompts[places[answer.request]].sample,
           answer.error or "it was aborted")
    end
  end
end

local function offsets_of(lengths)
  return core.cat({core.zeros({1}, {dtype = "int64"}), lengths:cumsum(0)})
end

-- Puts together what the first ranks of all groups have: lengths, tokens, log-probabilities and how answers ended. The engine has
-- log-probabilities in float64. `precision` is that of the output of a head, so that a model whose arithmetic is that of the
-- engine has equal ones.
local function join(world, answers, places, count, n, is_first, precision)
  local lengths = core.zeros({count}, {dtype = "int64"})
  local ended = core.zeros({count}, {dtype = "int64"})
  local function number(answer) return (places[answer.request] - 1) * n + answer.copy end
  local own = is_first and answers or {}
  for _, answer in ipairs(own) do
    lengths[number(answer)] = #answer.tokens
    ended[number(answer)] = answer.finish_reason == "length" and 1 or 0
  end
  lengths, ended = share.joined(world, lengths), share.joined(world, ended)
  local offsets = offsets_of(lengths)
  local tokens = core.zeros({offsets[count]:item()}, {dtype = "int64"})
  local logprobs = core.zeros({offsets[count]:item()}, {dtype = "float64"})
  for _, answer in ipairs(own) do
    local size = #answer.tokens
    if size > 0 then
      local first, of_answer = offsets[number(answer)]:item(), {}
      for t, each in ipairs(answer.logprobs) do of_answer[t] = each.sampled_logprob end
      tokens:narrow(0, first, size):copy_(core.tensor(answer.tokens, {dtype = "int64"}))
      logprobs:narrow(0, first, size):copy_(core.tensor(of_answer, {dtype = precision}))
    end
  end
  return offsets, share.joined(world, tokens), share.joined(world, logprobs), ended
end

-- Returns the prompts, n times each, as the parts of an experience.
local function prompt_parts(prompts, n)
  local tokens, lengths, groups, copies, of_prompts = {}, {}, {}, {}, {}
  for _, prompt in ipairs(prompts) do
    for copy = 0, n - 1 do
      for _, token in ipairs(prompt.tokens) do tokens[#tokens + 1] = token end
      lengths[#lengths + 1], groups[#groups + 1], copies[#copies + 1] = #prompt.tokens, prompt.sample, copy
      of_prompts[#lengths] = prompt.item
    end
  end
  local function int64(list) return core.tensor(list, {dtype = "int64"}) end
  return {prompts = int64(tokens), prompt_offsets = offsets_of(int64(lengths)), groups = int64(groups), copies = int64(copies),
          items = of_prompts}
end

-- Adds what can be told of the answers to the metrics.
local function measure(experience)
  local lengths = experience.answer_offsets:diff():to "float64"
  local truncated = 0
  for _, each in ipairs(experience.truncated) do truncated = truncated + (each and 1 or 0) end
  experience.metrics.length = lengths:mean():item()
  experience.metrics.truncated = truncated / math.max(experience.count, 1)
  experience.metrics.entropy = -experience:mean(experience.of_tokens.sampled_logprobs)
end

local warned = setmetatable({}, {__mode = "k"}) -- engines

-- Warns, once per engine, if nothing can end an answer.
local function warn_of_endless(o)
  if #(o.stop_tokens or o.engine.stop_tokens) > 0 or warned[o.engine] or core.world.rank > 0 then return end
  warned[o.engine] = true
  log.warn("%s: the engine has no stop tokens, so every answer has max_tokens = %d tokens and counts as truncated: give "
    .. "infer.engine{stop_tokens = ...}, such as the field stop_tokens of ckpt.pretrained", NAME, o.max_tokens)
end

--- Returns an Experience with n answers to each prompt, equal on all ranks. Ranks may give different prompts (as data.prompts
-- with an axis does) or the same ones; each sample number counts once. The seed, the iteration and the sample number decide an
-- answer, not ranks. An answer of max_tokens tokens that no stop token ends is truncated; it gets no stop token. Collective over
-- the mesh.
local function rollout(value)
  if core.world.dry then
    fail("%s: a plan draws no answers, so the steps that learn from them cannot be planned: rlhf.report tells the memory of each "
      .. "phase before anything runs", NAME)
  end
  local began = core.now()
  local mesh = mesh_of(value)
  local o = share.options(mesh and share.world(mesh, NAME), NAME, SCHEMA, value, "prompts", check_more)
  local world = share.world(o.mesh or o.engine.trainer.mesh, NAME)
  local prompts = all_prompts(world, o.prompts)
  warn_of_endless(o)
  local own = share.of(o.engine.trainer, world)
  local made = share.together(world, function()
    local generated = generate(o, prompts, own)
    check_answers(generated.answers, generated.places, prompts)
    return generated
  end)

  local parts = prompt_parts(prompts, o.n)
  parts.world, parts.temperature, parts.tokenizer, parts.vocabulary =
    world, o.temperature, o.engine.tokenizer, o.engine.vocabulary
  local precision = infer.abilities(o.engine.trainer).dtype == "fp64" and "float64" or "float32"
  local offsets, tokens, logprobs, ended =
    join(world, made.answers, made.places, #prompts * o.n, o.n, own.is_first, precision)
  parts.answer_offsets, parts.answers, parts.truncated, parts.n = offsets, tokens, {}, o.n
  for i, each in ipairs(ended:tolist()) do parts.truncated[i] = each == 1 end
  local experience = Experience(parts)
  experience.of_tokens.sampled_logprobs = logprobs
  measure(experience)
  experience.metrics.rollout_seconds = core.now() - began
  return experience
end

return rollout
