--- The task "sort", for the scripts of this folder when no data are given: `52917>` is to be continued by `12579` and an end
-- token. In half of the answers to learn from, two neighbouring digits are exchanged, so a model that fits these data is right in
-- half of its samples at temperature 1. What is learnt after that is seen in this number.
local zt = require "zt"

local sort = {DIGITS = 5, MAX_TOKENS = 7, VOCAB = 12}

local CONFIG = {eos_token = "<end>", tokenizer_class = "PreTrainedTokenizerFast"}

-- Returns the content of a tokenizer.json with a token for each digit, for ">" and for the end.
local function tokenizer_json()
  local vocabulary = {}
  for digit = 0, 9 do vocabulary[#vocabulary + 1] = ('"%d": %d'):format(digit, digit) end
  return ([[{"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
 "post_processor": null, "decoder": {"type": "Fuse"},
 "added_tokens": [{"id": 11, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                   "special": true}],
 "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
           "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
           "vocab": {%s, ">": 10, "<end>": 11}, "merges": []}}]]):format(table.concat(vocabulary, ", "))
end

--- Returns the digits of a text in ascending order.
function sort.sorted(digits)
  local list = {}
  for digit in digits:gmatch "%d" do list[#list + 1] = digit end
  table.sort(list)
  return table.concat(list)
end

--- The reward: whether an answer is right.
function sort.reward(prompt, answer) return answer == sort.sorted(prompt) and 1 or 0 end

-- Returns a right answer with two different neighbouring digits exchanged, of which there must be some. number: which of them.
local function wrong_answer(right, number)
  local places = {}
  for place = 1, #right - 1 do
    if right:byte(place) ~= right:byte(place + 1) then places[#places + 1] = place end
  end
  local place = places[number % #places + 1]
  return right:sub(1, place - 1) .. right:sub(place + 1, place + 1) .. right:sub(place, place) .. right:sub(place + 2)
end

-- Returns `count` different texts of digits that are not all equal, and as many random numbers.
local function inputs(count, draw)
  local texts, numbers, seen = {}, {}, {}
  while #texts < count do
    local digits = zt.randint(10, {4 * count, sort.DIGITS}, {generator = draw}):to "int64":tolist()
    local more = zt.randint(1000000, {4 * count}, {generator = draw}):to "int64":tolist()
    for i, row in ipairs(digits) do
      local text = table.concat(row)
      if #texts < count and not seen[text] and text ~= text:sub(1, 1):rep(#text) then
        seen[text] = true
        texts[#texts + 1], numbers[#numbers + 1] = text, more[i]
      end
    end
  end
  return texts, numbers
end

-- By kind of data: the record of an input. `right`: its answer; number: a random number of it.
local RECORDS = {
  sft = function(prompt, right, number)
    local is_right = number % 2 == 0
    return {prompt = prompt, completion = is_right and right or wrong_answer(right, math.floor(number / 2))}
  end,
  pairs = function(prompt, right, number)
    return {prompt = prompt, chosen = right, rejected = wrong_answer(right, math.floor(number / 2))}
  end,
  prompts = function(prompt, right) return {prompt = prompt, answer = right} end,
}

--- Writes the task into a folder unless it is there: sft.jsonl, pairs.jsonl and prompts.jsonl with so many records each, and the
-- tokenizer. The last twentieth of the inputs is in no file of training: unseen.jsonl has prompts of it. Call it on one rank.
function sort.write(folder, records, seed)
  if zt.exists(folder .. "/unseen.jsonl") then return end
  zt.mkdir_p(folder)
  zt.write_file(folder .. "/tokenizer.json", tokenizer_json())
  zt.write_file(folder .. "/tokenizer_config.json", zt.json.encode(CONFIG))
  local texts, numbers = inputs(math.ceil(records * 1.05), zt.generator(seed))
  local function write(name, kind, first, last)
    local lines = {}
    for i = first, last do
      local right = sort.sorted(texts[i])
      lines[#lines + 1] = zt.json.encode(RECORDS[kind](texts[i] .. ">", right, numbers[i]))
    end
    zt.write_file(("%s/%s.jsonl"):format(folder, name), table.concat(lines, "\n") .. "\n")
  end
  for kind in pairs(RECORDS) do write(kind, kind, 1, records) end
  write("unseen", "prompts", records + 1, #texts)
end

return sort
