--- zt.generate: text, token by token, from a trained model.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"

local SCHEMA = {
  {"max_tokens", "integer", "how many tokens to add", default = 100, at_least = 0},
  {"seq", "integer", "the longest window the model takes", required = true, at_least = 1},
  {"temperature", "number", "0: always the likeliest token", default = 1, at_least = 0},
  {"top_k", "integer", "choose among this many; 0: all", default = 0, at_least = 0},
  {"seed", "integer", "the same seed gives the same tokens", default = 1, at_least = 0},
  {"stop", "integer", "ends after this token"},
}

-- Uniform numbers in [0, 1) by SplitMix64 (Steele, Lea, Flood 2014), the same on every rank and machine.
local function uniform_stream(seed)
  local state = 0x9e3779b97f4a7c15ULL * (seed + 1)
  return function()
    state = state + 0x9e3779b97f4a7c15ULL
    local z = state
    z = bit.bxor(z, bit.rshift(z, 30)) * 0xbf58476d1ce4e5b9ULL
    z = bit.bxor(z, bit.rshift(z, 27)) * 0x94d049bb133111ebULL
    z = bit.bxor(z, bit.rshift(z, 31))
    return tonumber(bit.rshift(z, 11)) / 2 ^ 53
  end
end

-- A token out of `logits`, [vocabulary]: the softmax over the likeliest `top_k` at `temperature`, cut at `uniform`.
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
  local left = uniform() * total
  for index, weight in ipairs(weights) do
    left = left - weight
    if left < 0 then return tokens[index] end
  end
  return tokens[#tokens]
end

--- Continues `prompt`, a list of at least one token, and returns the list of new tokens. Collective: all ranks call it alike
-- and get the same. Each new token takes one trainer:infer on the last `seq` tokens: there is no cache of keys and values.
local function generate(trainer, prompt, value)
  local options = check.options("zt.generate", SCHEMA, value)
  if type(prompt) ~= "table" or #prompt == 0 then fail("zt.generate: the prompt must be a list of at least one token") end
  local uniform = uniform_stream(options.seed)
  local window, out = {}, {}
  for index = math.max(1, #prompt - options.seq + 1), #prompt do window[#window + 1] = prompt[index] end
  while #out < options.max_tokens do
    local token = core.scope(function()
      local logits = trainer:infer{tokens = core.tensor({window}, {dtype = "int64"})}.logits
      local rows = logits:reshape({-1, logits:size(-1)})
      return sample(rows:select(0, rows:size(0) - 1), options, uniform)
    end)
    out[#out + 1] = token
    if token == options.stop then break end
    if #window == options.seq then table.remove(window, 1) end
    window[#window + 1] = token
  end
  return out
end

return generate
