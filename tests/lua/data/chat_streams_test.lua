-- Tests that the streams of records read what zt.data.tokenize_chat writes: each label that counts is a token of an answer.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local data = require "zt.data"
local chat_files = require "data.chat_files"
local temporary = require "support.temporary"

local TestChatStreams = {}

function TestChatStreams:setUp()
  self.path = temporary()
  zt.mkdir_p(self.path)
  self.model = chat_files.folder(self.path .. "/model", "chatml")
end

function TestChatStreams:convert(name, records)
  local path = ("%s/%s"):format(self.path, name)
  data.tokenize_chat{input = chat_files.records(path .. ".jsonl", records), output = path .. ".npy", model = self.model}
  return path .. ".npy"
end

-- Returns {[text] = count} of the runs of labels that count, in all rows of an epoch. `key`: a field in whose groups they are.
local function answers_of(stream, key)
  local found = {}
  for _, batch in stream:steps(stream.samples) do
    local labels, groups, tokens = batch.labels[0]:tolist(), batch[key][0]:tolist(), {}
    local function finish()
      if #tokens == 0 then return end
      local text = stream.tokenizer:decode(tokens)
      found[text], tokens = (found[text] or 0) + 1, {}
    end
    for place, label in ipairs(labels) do
      if label == -100 or groups[place] ~= groups[place - 1] then finish() end
      if label ~= -100 then tokens[#tokens + 1] = label end
    end
    finish()
  end
  return found
end

function TestChatStreams:test_conversations()
  local records = {}
  for i = 1, 20 do
    records[i] = {messages = {{role = "user", content = "question " .. i}, {role = "assistant", content = "answer " .. i}}}
  end
  local path = self:convert("sft", records)
  for _, pack in ipairs{true, false} do
    local stream = data.conversations{path = path, seq = 128, batch = 1, pack = pack, validation = 0}
    local found, count = answers_of(stream, "segments"), 0
    for text, times in pairs(found) do
      lu.assertEquals(times, 1, text)
      lu.assertTrue(tonumber(text:match "answer (%d+)") ~= nil, text)
      count = count + 1
    end
    lu.assertEquals(count, 20)
  end
end

function TestChatStreams:test_preferences_and_prompts()
  local pairs_of, asked = {}, {}
  for i = 1, 8 do
    pairs_of[i] = {prompt = "question " .. i, chosen = "good " .. i, rejected = "bad " .. i}
    asked[i] = {prompt = "question " .. i, answer = i}
  end
  local stream = data.preferences{path = self:convert("pairs", pairs_of), seq = 256, batch = 1, validation = 0}
  local found, counts = answers_of(stream, "sequence"), {good = 0, bad = 0}
  for text, times in pairs(found) do
    lu.assertEquals(times, 1, text)
    local kind = text:match "(%a+) %d+"
    counts[kind] = counts[kind] + 1
  end
  lu.assertEquals(counts, {good = 8, bad = 8})
  local prompts, seen = data.prompts{path = self:convert("ask", asked), batch = 2, validation = 0}, {}
  for _, batch in prompts:steps(4) do
    for place, tokens in ipairs(batch.prompts) do
      local item = batch.items[place]
      lu.assertStrContains(prompts.tokenizer:decode(tokens), item.prompt)
      lu.assertEquals(item.prompt, "question " .. item.answer)
      seen[item.answer] = true
    end
  end
  lu.assertEquals(#seen, 8)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestChatStreams", TestChatStreams}})
