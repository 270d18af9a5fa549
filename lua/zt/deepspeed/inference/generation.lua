--- The arguments of `generate` of Hugging Face's transformers, as requests of zt.infer, and its result from the answers.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"

local generation = {}

local NAME = "engine:generate"
local TOP_K = 50 -- transformers' default where tokens are drawn

local function draws(o) return o.do_sample end
local DRAWN = {"with do_sample = true", draws}

local SCHEMA = {
  {"input_ids", "any", "tokens: an int64 tensor [samples, tokens], or a list of lists of tokens", required = true},
  {"attention_mask", "any", "a tensor or lists like input_ids: 0 for padding at the begin or the end of a sample; default: "
   .. "padding at the begin, by pad_token_id"},
  {"max_new_tokens", "integer", "most tokens of an answer; default: 128, or what the context leaves", at_least = 1},
  {"max_length", "integer", "most tokens of a sample and its answer, in place of max_new_tokens", at_least = 1},
  {"min_new_tokens", "integer", "fewest tokens of an answer", at_least = 0},
  {"min_length", "integer", "fewest tokens of a sample and its answer", at_least = 0},
  {"do_sample", "boolean", "draws tokens; false: the likeliest one", default = false},
  {"temperature", "number", "divides the logits", above = 0, only_with = DRAWN},
  {"top_k", "integer", "draws from so many likeliest tokens; 50 when absent, 0: all", at_least = 0, only_with = DRAWN},
  {"top_p", "number", "draws from the likeliest tokens with this share of the probability", above = 0, only_with = DRAWN},
  {"min_p", "number", "draws from tokens with this share of the likeliest one's probability", at_least = 0, only_with = DRAWN},
  {"seed", "integer", "the same seed gives the same answers", default = 1, at_least = 0, only_with = DRAWN},
  {"num_return_sequences", "integer", "answers to each sample", default = 1, at_least = 1},
  {"num_beams", "integer", "1: there is no beam search", default = 1},
  {"repetition_penalty", "number", "as in transformers", default = 1, above = 0},
  {"eos_token_id", "any", "a token or a list of tokens that end an answer; default: the model's"},
  {"pad_token_id", "integer", "fills short answers; default: the first of eos_token_id, or the token that ended the answer",
   at_least = 0},
  {"stop_strings", "any", "a text or a list of texts that end an answer"},
  {"use_cache", "boolean", "keys and values are always kept", default = true},
  {"generation_config", "table", "further arguments; those beside it replace them"},
}

-- Returns the arguments together with those of generation_config.
local function merged(arguments)
  local inner = arguments.generation_config
  if inner == nil then return arguments end
  if type(inner) ~= "table" then
    fail("%s.generation_config must be a table of arguments, got %s", NAME, check.type_name(inner))
  end
  local all = {}
  for _, from in ipairs {inner, arguments} do
    for key, value in pairs(from) do all[key] = value end
  end
  all.generation_config = nil
  return all
end

-- Returns the list of an argument that is one value or a list.
local function list_of(value)
  if value == nil or type(value) == "table" then return value end
  return {value}
end

-- Returns a tensor or a list as a list of lists of integers.
local function rows_of(name, value)
  local is_tensor = check.is("tensor", value)
  if is_tensor and value:dim() ~= 2 then
    fail("%s.%s must have the shape [samples, tokens], got %d dimensions", NAME, name, value:dim())
  end
  local rows = is_tensor and value:tolist() or value
  if type(rows) ~= "table" or #rows == 0 then
    fail("%s.%s must be an int64 tensor [samples, tokens] or a list of lists, got %s", NAME, name, check.type_name(value))
  end
  for place, row in ipairs(rows) do
    if type(row) ~= "table" or #row == 0 then
      fail("%s.%s[%d] must be a list of at least one token, got %s", NAME, name, place, check.type_name(row))
    end
    for _, token in ipairs(row) do
      if type(token) ~= "number" or token ~= math.floor(token) then
        fail("%s.%s[%d] holds %s, where an integer is needed", NAME, name, place, tostring(token))
      end
    end
  end
  return rows
end

-- Returns the tokens of a sample without padding.
local function unpadded(place, row, mask)
  if not mask then return row end
  if #mask ~= #row then
    fail("%s.attention_mask[%d] has %d numbers, and the sample %d tokens: give one per token", NAME, place, #mask, #row)
  end
  local tokens, last = {}, nil
  for at, is_token in ipairs(mask) do
    if is_token ~= 0 then
      if last and last ~= at - 1 then
        fail("%s.attention_mask[%d] has a gap before token %d: padding stands at the begin or the end of a sample", NAME, place,
             at)
      end
      tokens[#tokens + 1], last = row[at], at
    end
  end
  if #tokens == 0 then fail("%s.attention_mask[%d] leaves no token of the sample", NAME, place) end
  return tokens
end

-- Returns the masks of samples that begin with the padding token, as transformers takes them; nil if it is not known, or a token
-- that ends answers. Elsewhere in a sample the token may be text or padding.
local function masks_of(o, rows)
  local pad = o.pad_token_id
  for _, token in ipairs(list_of(o.eos_token_id) or {}) do
    if token == pad then return nil end
  end
  if not pad then return nil end
  local masks = {}
  for place, row in ipairs(rows) do
    local mask, has_begun = {}, false
    for at, token in ipairs(row) do
      if token == pad and has_begun then
        fail("%s.input_ids[%d] holds pad_token_id = %d after other tokens, as text or as padding: give attention_mask", NAME,
             place, pad)
      end
      has_begun = token ~= pad
      mask[at] = has_begun and 1 or 0
    end
    masks[place] = mask
  end
  return masks
end

local function check_options(o)
  if o.num_beams ~= 1 then
    fail("%s.num_beams = %d: there is no beam search, as in DeepSpeed; give num_return_sequences with do_sample = true", NAME,
         o.num_beams)
  end
  if not o.use_cache then fail("%s.use_cache = false: keys and values are always kept; leave it out", NAME) end
  if o.max_length and o.max_new_tokens then
    fail("%s: max_length counts the tokens of the sample, and max_new_tokens does not: give one of them", NAME)
  end
  if not o.do_sample and o.num_return_sequences > 1 then
    fail("%s.num_return_sequences = %d: without do_sample = true all of them would be equal", NAME, o.num_return_sequences)
  end
end

-- Returns the most and the fewest tokens of an answer to a sample of `width` tokens, padding included.
local function lengths(o, width)
  local most, fewest = o.max_new_tokens, o.min_new_tokens or 0
  if o.max_length then most = o.max_length - width end
  if most and most < 1 then
    fail("%s.max_length = %d leaves no token for an answer, the samples have %d: raise it, or give max_new_tokens", NAME,
         o.max_length, width)
  end
  if o.min_length then fewest = math.max(fewest, o.min_length - width) end
  return most, fewest
end

--- Returns the requests of zt.infer for the arguments of transformers' generate, and what `result` needs.
function generation.requests(arguments)
  local o = check.options(NAME, SCHEMA, merged(arguments))
  check_options(o)
  local rows = rows_of("input_ids", o.input_ids)
  local masks = o.attention_mask and rows_of("attention_mask", o.attention_mask) or masks_of(o, rows)
  if masks and #masks ~= #rows then
    fail("%s.attention_mask has %d samples, and input_ids %d: give one per sample", NAME, #masks, #rows)
  end
  local width = 0
  for _, row in ipairs(rows) do width = math.max(width, #row) end
  local requests, most, fewest = {}, lengths(o, width)
  for place, row in ipairs(rows) do
    requests[place] = {
      prompt = unpadded(place, row, masks and masks[place]), max_tokens = most, min_tokens = fewest,
      n = o.num_return_sequences, temperature = o.do_sample and (o.temperature or 1) or 0,
      top_k = o.do_sample and (o.top_k or TOP_K) or nil, top_p = o.top_p, min_p = o.min_p,
      repetition_penalty = o.repetition_penalty, stop = list_of(o.stop_strings), stop_tokens = list_of(o.eos_token_id),
      seed = o.do_sample and o.seed + place - 1 or nil,
    }
  end
  return requests, {rows = rows, pad = o.pad_token_id or (list_of(o.eos_token_id) or {})[1]}
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

return generation
