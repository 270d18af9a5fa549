--- The arguments of `generate` of Hugging Face's transformers, as requests of zt.infer, and its result from the answers.

local arguments_of = require "zt.deepspeed.inference.generation_arguments"
local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local log = require "zt.log"
local samples = require "zt.deepspeed.inference.generation_samples"

local generation = {}

local NAME = "engine:generate"
local TOP_K, NEW_TOKENS = 50, 20 -- transformers' defaults of top_k, if tokens are drawn, and of max_new_tokens

-- Returns the list of the argument `name`, which is one value, a list, or a tensor.
local function list_of(o, name)
  local value = o[name]
  if check.is("tensor", value) then value = value:tolist() end
  if type(value) == "table" and not check.is("list", value) then
    fail("%s.%s must be one value, or a list without holes, got %s", NAME, name, check.type_name(value))
  end
  if value == nil or type(value) == "table" then return value end
  return {value}
end

-- Returns the tokens of eos_token_id, and those of them that can end an answer: negative ones cannot, nor can those that the
-- model does not have. The latter are an error in a call.
local function ends_of(o, is_of_file, vocabulary)
  local all, ends = list_of(o, "eos_token_id") or {}, {}
  for place, token in ipairs(all) do
    if type(token) ~= "number" or token ~= math.floor(token) then
      fail("%s.eos_token_id must be a token or a list of tokens, got %s at place %d", NAME, check.type_name(token), place)
    end
    if token >= 0 and (token < vocabulary or not is_of_file.eos_token_id) then ends[#ends + 1] = token end
  end
  return all, ends
end

local function max_length_error(length, width)
  fail("%s.max_length = %d leaves no token for an answer, the samples have %d: raise it, or give max_new_tokens", NAME, length,
       width)
end

-- Returns the most tokens of an answer to samples of `width` tokens with padding. What no argument of the call says ends where
-- the context does: `longest` is the number of tokens of the longest sample without padding.
local function most_of(o, is_of_file, width, longest, context)
  local is_of_call = o.max_new_tokens and not is_of_file.max_new_tokens or o.max_length and not is_of_file.max_length
  local most = o.max_new_tokens
  if not most and o.max_length then
    most = o.max_length - width
    if most < 1 then max_length_error(o.max_length, width) end
  end
  if is_of_call then return most end
  if not most then most = math.min(NEW_TOKENS, math.max(context - width, 1)) end
  return math.max(math.min(most, context - longest), 1) -- the engine refuses a prompt that leaves no token
end

-- Returns the fewest tokens of an answer. As in transformers, an answer ends earlier if it must. For arguments of the call this
-- is an error.
local function fewest_of(o, is_of_file, width, most)
  local key = o.min_new_tokens and "min_new_tokens" or "min_length"
  local fewest = o.min_new_tokens or math.max((o.min_length or 0) - width, 0)
  if fewest > most and not is_of_file[key] then
    fail("%s.%s = %d needs answers of %d tokens, which may have at most %d: lower it, or raise max_new_tokens", NAME, key, o[key],
         fewest, most)
  end
  return math.min(fewest, most)
end

local function longest_of(prompts)
  local longest = 0
  for _, tokens in ipairs(prompts) do longest = math.max(longest, #tokens) end
  return longest
end

--- Returns the requests of zt.infer for the arguments of transformers' generate, and what `result` needs. `engine` is of
-- zt.infer, `defaults` is of generation_file.read, and notice(text) is called for what has no effect.
function generation.requests(arguments, engine, defaults, notice)
  local o, is_of_file = arguments_of.settle(arguments, defaults, notice)
  local copies = o.num_return_sequences or 1
  if not o.do_sample and copies > 1 then
    fail("%s.num_return_sequences = %d: without do_sample = true all of them would be equal", NAME, copies)
  end
  if o.stop_strings ~= nil and not engine.tokenizer then
    fail("%s.stop_strings are texts, and the engine has no tokenizer: give one to zt.init_inference, or give eos_token_id", NAME)
  end
  local all_ends, ends = ends_of(o, is_of_file, engine.vocabulary)
  local pad = o.pad_token_id or all_ends[1]
  local rows, prompts, width = samples.read(o, pad, all_ends, engine.trainer.model)
  local most = most_of(o, is_of_file, width, longest_of(prompts), engine.max_context)
  local fewest = fewest_of(o, is_of_file, width, most)
  local requests = {}
  for place, prompt in ipairs(prompts) do
    requests[place] = {
      prompt = prompt, max_tokens = most, min_tokens = fewest, n = copies,
      temperature = o.do_sample and (o.temperature or 1) or 0, top_k = o.do_sample and (o.top_k or TOP_K) or nil,
      top_p = o.top_p and math.min(o.top_p, 1), min_p = o.min_p, repetition_penalty = o.repetition_penalty,
      stop = list_of(o, "stop_strings"), stop_tokens = #ends > 0 and ends or nil, ignore_eos = #ends == 0 or nil,
      seed = o.do_sample and (o.seed or 1) + place - 1 or nil,
    }
  end
  return requests, {rows = rows, pad = pad}
end

--- Returns transformers' result for the answers: an int64 tensor [samples x num_return_sequences, tokens] of the samples as they
-- were given and the tokens of their answers, with padding at the end.
function generation.result(answers, given)
  local rows, width = {}, 0
  for place, answer in ipairs(answers) do
    if answer.error then fail("%s: the answer to sample %d failed: %s", NAME, answer.request, answer.error) end
    local row = {unpack(given.rows[answer.request])}
    for _, token in ipairs(answer.tokens) do row[#row + 1] = token end
    rows[place], width = row, math.max(width, #row)
  end
  for _, row in ipairs(rows) do
    local pad = given.pad or row[#row]
    for place = #row + 1, width do row[place] = pad end
  end
  return core.tensor(rows, {dtype = "int64"})
end

-- Returns a function that logs a text the first time.
local function teller(told)
  return function(text)
    if told[text] then return end
    told[text] = true
    log.info("%s", text)
  end
end

-- Generates for arguments of transformers' generate. What is wrong on one rank is an error on all that share matrices with it.
local function generate_samples(holder, arguments)
  local engine = holder.engine
  local is_right, requests, given = pcall(generation.requests, arguments, engine, holder.config.generation, teller(holder.told))
  local wrong = is_right and "" or (tostring(requests):gsub("^%S+:%d+: ", ""))
  if not core.world.dry then wrong = engine.core:agreed(wrong) end
  if wrong ~= "" then
    if not core.world.dry then engine:generate{} end -- other replicas may need this rank's parameters or experts
    fail("%s", wrong)
  end
  return generation.result(engine:generate(requests), given)
end

-- Returns whether a table is that of transformers' arguments: neither a request of zt.infer nor a list of them.
local function is_arguments(inputs)
  if type(inputs) ~= "table" or next(inputs) == nil then return false end
  return #inputs == 0 and inputs.prompt == nil and inputs.messages == nil
end

-- Returns whether a value is input_ids: a tensor, or a list of lists of tokens.
local function is_samples(inputs)
  if check.is("tensor", inputs) then return true end
  local first = type(inputs) == "table" and inputs[1]
  return type(first) == "table" and type(first[1]) == "number"
end

--- Generates as the method `generate` of zt.init_inference's engine does. `holder` has the engine of zt.infer as `engine`, the
-- result of generation_file.read as `config.generation`, and the table `told` of the texts that were logged.
function generation.generate(holder, inputs, options)
  if is_samples(inputs) then
    if options ~= nil then check.argument(NAME, "the second argument", "table", options) end
    local arguments = {}
    for key, value in pairs(options or {}) do arguments[key] = value end
    if arguments.input_ids ~= nil then fail("%s: input_ids is given twice, first as the first argument", NAME) end
    arguments.input_ids = inputs
    return generate_samples(holder, arguments)
  end
  if is_arguments(inputs) then
    if options ~= nil then fail("%s: a table with input_ids has all arguments: put the others into it", NAME) end
    return generate_samples(holder, inputs)
  end
  return holder.engine:generate(inputs, options)
end

return generation
