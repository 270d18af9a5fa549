--- zt.generate: generates tokens from a trained model, one at a time.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local infer = require "zt.infer"

local DRAWS = "with temperature above 0"
local SCHEMA = {
  {"max_tokens", "integer", "number of tokens to generate", default = 100, at_least = 0},
  {"seq", "integer", "the longest sequence that the model takes, in tokens", required = true, at_least = 1},
  {"temperature", "number", "divides the logits; 0: always the likeliest token", default = 1, at_least = 0, below = math.huge},
  {"top_k", "integer", "samples from this number of likeliest tokens; 0: all", default = 0, at_least = 0,
   only_with = {DRAWS, function(o) return o.temperature > 0 or o.top_k == 0 end}},
  {"top_p", "number", "samples from the smallest set of likeliest tokens with at least this probability; 1: all", default = 1,
   above = 0, between = {0, 1},
   only_with = {DRAWS, function(o) return o.temperature > 0 or o.top_p == 1 end}},
  {"seed", "integer", "the same seed gives the same tokens", default = 1, at_least = 0},
  {"stop", "integer", "generation ends after this token", at_least = 0},
}

-- Returns the logits of the last token, [vocabulary]. Fails if the largest one is nan or infinite. The check finds every nan,
-- because the maximum is nan if any logit is.
local function checked_logits(logits, place)
  if not logits then
    fail("zt.generate: the model has no output 'logits': nn.lm_loss has one, and a layer in Lua names it by "
      .. 'io = {outputs = {"logits"}}')
  end
  local rows = logits:reshape({-1, logits:size(-1)})
  local last = rows:select(0, rows:size(0) - 1)
  local largest = last:max():item()
  if largest ~= largest or math.abs(largest) == math.huge then
    fail("zt.generate: the largest logit for new token %d is %s, so no token has a probability: the model's weights or "
      .. "activations are not finite; look at the loss of the last steps, or go back to an earlier checkpoint", place,
      largest ~= largest and "nan" or tostring(largest))
  end
  return last
end

local PROMPT = "zt.generate: the prompt must be a list of at least one token, or an int64 tensor [n] or [1, n] as "
  .. "tokenizer:encode gives"

-- Returns the prompt as a list of tokens. Fails if it is neither a list of tokens nor an int64 tensor.
local function tokens_of(prompt)
  if type(prompt) == "userdata" then
    local is_tensor, dtype = pcall(function() return prompt:dtype() end)
    if not is_tensor then fail("%s; got another object", PROMPT) end
    if dtype ~= "int64" then fail("%s; got dtype %s", PROMPT, tostring(dtype)) end
    local sizes = prompt:size()
    if not (#sizes == 1 or #sizes == 2 and sizes[1] == 1) or prompt:numel() == 0 then
      fail("%s; got the shape [%s]", PROMPT, table.concat(sizes, ", "))
    end
    return prompt:reshape({-1}):tolist()
  end
  if type(prompt) ~= "table" or #prompt == 0 then fail("%s; got %s", PROMPT, check.type_name(prompt)) end
  for place, token in ipairs(prompt) do
    if type(token) ~= "number" or token ~= math.floor(token) or token < 0 or token == math.huge then
      fail("zt.generate: the prompt's token %d must be an integer of at least 0, got %s", place, tostring(token))
    end
  end
  return prompt
end

local ANY_MEMORY = 2 ^ 50 -- bytes: an engine takes what one sequence needs

-- Returns the tokens that an engine gives, which keeps keys and values.
local function by_engine(trainer, given, options, numerics)
  local engine = infer.engine{
    trainer = trainer, max_context = #given + options.max_tokens, max_sequences = 1, numerics = numerics,
    cache = {prefix = false, memory = ANY_MEMORY},
  }
  local answer = engine:generate{
    prompt = given, max_tokens = options.max_tokens, temperature = options.temperature, top_k = options.top_k,
    top_p = options.top_p, seed = options.seed, stop_tokens = {options.stop},
  }[1]
  engine:release()
  if answer.error then fail("zt.generate: %s", (answer.error:gsub("^request %d+: ", ""))) end
  return answer.tokens
end

-- Returns the tokens that trainer:infer gives, which reads the last `seq` tokens again for each new one.
local function by_windows(trainer, given, options)
  local sampling = {temperature = options.temperature, top_k = options.top_k, top_p = options.top_p}
  local window, out = {}, {}
  for index = math.max(1, #given - options.seq + 1), #given do window[#window + 1] = given[index] end
  local windows = {}
  for micro_batch = 1, trainer.program.eval_micro_batches do windows[micro_batch] = window end
  while #out < options.max_tokens do
    local token = core.scope(function()
      local batch = {tokens = core.tensor(windows, {dtype = "int64"})}
      batch.logits_of = core.full({#windows, 1}, #window - 1, {dtype = "int64"})
      return trainer:infer(batch, function(outputs)
        return infer.draw(checked_logits(outputs.logits or outputs.logprobs, #out + 1), sampling, options.seed, #out)
      end)
    end)
    out[#out + 1] = token
    if token == options.stop then break end
    if #window == options.seq then table.remove(window, 1) end
    window[#window + 1] = token
  end
  return out
end

--- Continues `prompt`, a list of tokens or an int64 tensor, [n] or [1, n], and returns the list of new tokens. Collective: all
-- ranks pass equal arguments and get the same tokens. New token i depends on the prompt, the options, and element i of the seed's
-- random numbers. Prompt and answer of at most `seq` tokens are the work of an engine (zt.infer), which keeps keys and values, if
-- the model's layers allow that. Otherwise each token costs one trainer:infer on the last `seq` tokens, in as many equal
-- micro-batches as an evaluation of the program has. The batch's `logits_of` asks the head for the last token's logits only; of a
-- head that gives those of all tokens, the last are used. In a pipeline only the token is sent to the other ranks.
local function generate(trainer, prompt, value)
  local options = check.options("zt.generate", SCHEMA, value)
  check.argument("zt.generate", "the first argument", "Trainer", trainer)
  local given = tokens_of(prompt)
  if options.max_tokens == 0 then return {} end
  local abilities = type(trainer) == "userdata" and infer.abilities(trainer) or {}
  if abilities.keys and #given + options.max_tokens <= options.seq then
    return by_engine(trainer, given, options, abilities.invariant and "invariant" or "fast")
  end
  return by_windows(trainer, given, options)
end

return generate
