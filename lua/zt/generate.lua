--- zt.generate: generates tokens from a trained model, one at a time.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"

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

-- Returns a function from an index, counted from 0, to a uniform number in [0, 1), a multiple of 2^-48, equal on every rank and
-- machine. Number `index` is made of elements 2 index and 2 index + 1 of the Philox stream of `seed`.
local function uniform_stream(seed)
  local made, values = 0, {}
  return function(index)
    if index >= made then
      made = math.max(64, 2 * made)
      values = core.rand({2 * made}, {seed = seed, dtype = "float64"}):tolist()
    end
    return values[2 * index + 1] + values[2 * index + 2] / 2 ^ 24
  end
end

-- Returns how many of the leading `weights` are needed to reach the share `top_p` of their sum `total`, and the sum of these.
-- `weights` are in descending order.
local function nucleus(weights, total, top_p)
  if top_p == 1 then return #weights, total end
  local sum = 0
  for count, weight in ipairs(weights) do
    sum = sum + weight
    if sum >= top_p * total then return count, sum end
  end
  return #weights, sum
end

-- Samples a token from `logits`, [vocabulary]: keeps the `top_k` likeliest tokens, applies the softmax with the temperature,
-- keeps the likeliest with the probability `top_p`, and takes the token at `uniform` in [0, 1) of their cumulative distribution.
local function sample(logits, options, uniform)
  local vocabulary = logits:size(0)
  if options.temperature == 0 then return logits:argmax():item() end
  local count = options.top_k > 0 and math.min(options.top_k, vocabulary) or vocabulary
  local top, indices = logits:topk(count)
  local values, tokens = top:tolist(), indices:tolist()
  local weights, total = {}, 0
  for index, value in ipairs(values) do
    weights[index] = math.exp((value - values[1]) / options.temperature)
    total = total + weights[index]
  end
  local kept, left = nucleus(weights, total, options.top_p)
  left = uniform * left
  for index = 1, kept do
    left = left - weights[index]
    if left < 0 then return tokens[index] end
  end
  return tokens[kept]
end

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

--- Continues `prompt`, a list of tokens or an int64 tensor, [n] or [1, n], and returns the list of new tokens. Collective: all
-- ranks pass equal arguments and get the same tokens. New token i depends on the prompt, the options, and element i of the seed's
-- random numbers. Each token costs one trainer:infer on the last `seq` tokens, in as many equal micro-batches as an evaluation
-- of the program has: there is no cache of keys and values. The batch's `logits_of` asks the head for the last token's logits
-- only; of a head that gives those of all tokens, the last are used. In a pipeline only the token is sent to the other ranks.
local function generate(trainer, prompt, value)
  local options = check.options("zt.generate", SCHEMA, value)
  check.argument("zt.generate", "the first argument", "Trainer", trainer)
  local given = tokens_of(prompt)
  local uniform = uniform_stream(options.seed)
  local window, out = {}, {}
  for index = math.max(1, #given - options.seq + 1), #given do window[#window + 1] = given[index] end
  local windows = {}
  for micro_batch = 1, trainer.program.eval_micro_batches do windows[micro_batch] = window end
  while #out < options.max_tokens do
    local token = core.scope(function()
      local batch = {tokens = core.tensor(windows, {dtype = "int64"})}
      batch.logits_of = core.full({#windows, 1}, #window - 1, {dtype = "int64"})
      return trainer:infer(batch, function(outputs)
        return sample(checked_logits(outputs.logits, #out + 1), options, uniform(#out))
      end)
    end)
    out[#out + 1] = token
    if token == options.stop then break end
    if #window == options.seq then table.remove(window, 1) end
    window[#window + 1] = token
  end
  return out
end

return generate
