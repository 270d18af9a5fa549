-- Models and requests for the tests of zt.infer.
local zt = require "zt"
local nn = require "zt.nn"

local LLAMA3 = {type = "llama3", factor = 4, low_freq_factor = 1, high_freq_factor = 4, original = 64}

local cases = {VOCAB = 131, SEQ = 192}

--- Returns a table with the entries of both; those of `more` win.
function cases.with(base, more)
  local all = {}
  for _, from in ipairs{base, more} do
    for key, value in pairs(from) do all[key] = value end
  end
  return all
end

--- Returns an int64 tensor of rows of tokens.
function cases.tensor(rows) return zt.tensor(rows, {dtype = "int64"}) end

--- Returns a trainer of a model whose matrices can be packed.
function cases.wide(precision)
  local options = {layers = 2, hidden = 128, heads = 4, ffn = 256, vocab = cases.VOCAB, seq = cases.SEQ, seed = 5, std = 0.15}
  return zt.trainer(zt.program(nn.gpt(options), {precision = precision or "fp32"}), {separate = true})
end

--- Returns the tokens of a prompt.
function cases.prompt(length, seed)
  local tokens = {}
  for place = 1, length do tokens[place] = (place * 7 + seed * 13 + place * place * (seed % 5 + 1)) % cases.VOCAB end
  return tokens
end

--- Returns the options of nn.gpt for a small model of a kind.
function cases.options(kind)
  local base = {layers = 3, hidden = 48, heads = 4, vocab = cases.VOCAB, seq = cases.SEQ, seed = 5, std = 0.15}
  local more = ({
    gpt2 = {family = "gpt2"},
    llama = {family = "llama", kv_heads = 2, rope_scaling = LLAMA3},
    qwen3 = {family = "llama", kv_heads = 1, head_dim = 16, qk_norm = true},
    window = {family = "llama", window = 40},
  })[kind]
  for key, value in pairs(more) do base[key] = value end
  return base
end

function cases.trainer(kind, precision)
  return zt.trainer(zt.program(nn.gpt(cases.options(kind)), {precision = precision or "fp32"}), {separate = true})
end

--- Returns `count` requests of different lengths.
function cases.requests(count, more)
  local requests = {}
  for i = 1, count do
    local request = {prompt = cases.prompt(1 + (i * 37) % 90, i), max_tokens = 3 + (i * 11) % 30, seed = i, logprobs = 2,
      temperature = i % 3 == 0 and 0 or 0.9, top_k = i % 4 == 1 and 20 or 0, top_p = i % 5 == 2 and 0.9 or 1}
    if i % 4 == 2 then
      request.repetition_penalty, request.presence_penalty, request.frequency_penalty = 1.3, 0.2, 0.1
    elseif i % 4 == 3 then
      request.stop_tokens, request.min_tokens, request.logit_bias = {3, 5, 7, 11, 13, 17, 19}, 2, {[23] = 3, [3] = 1}
    end
    for key, value in pairs(more or {}) do request[key] = value end
    requests[i] = request
  end
  return requests
end

--- Returns an answer as a text that is equal for equal bits.
function cases.text(answer)
  local parts = {answer.finish_reason, answer.text}
  for place, token in ipairs(answer.tokens) do
    local of = (answer.logprobs or {})[place]
    parts[#parts + 1] = of and ("%d:%.17g:%.17g"):format(token, of.logprob, of.sampled_logprob) or tostring(token)
  end
  for _, logprob in ipairs(answer.prompt_logprobs or {}) do parts[#parts + 1] = ("%.17g"):format(logprob) end
  return table.concat(parts, " ")
end

--- Returns the texts of all answers, by request and copy.
function cases.texts(answers)
  local texts = {}
  for _, answer in ipairs(answers) do texts[answer.request .. "." .. answer.copy] = cases.text(answer) end
  return texts
end

return cases
