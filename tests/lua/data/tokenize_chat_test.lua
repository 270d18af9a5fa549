-- Tests zt.data.tokenize_chat: tokens and masks of records. transformers made those of tests/golden/chat.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local data = require "zt.data"
local fs = require "zt.fs"
local chat_files = require "data.chat_files"
local temporary = require "support.temporary"

local CASES = zt.json.decode(fs.read(chat_files.GOLDEN .. "/masks.json"))
local FAMILIES = {"chatml", "chatml_blocks", "llama3", "gemma", "mistral"}

local TestMasks = {}

function TestMasks:setUp()
  self.path = temporary()
  zt.mkdir_p(self.path)
end

-- Converts records. Returns the documents, the companion and what the call returned.
function TestMasks:convert(records, model, more)
  local o = {input = chat_files.records(self.path .. "/x.jsonl", records), output = self.path .. "/x.npy", model = model}
  for key, value in pairs(more or {}) do o[key] = value end
  local done = data.tokenize_chat(o)
  local documents, companion = chat_files.read(o.output)
  return documents, companion, done
end

function TestMasks:folder(family, more) return chat_files.folder(self.path .. "/" .. family, family, more) end

local function cases_of(family)
  local cases, records = {}, {}
  for _, case in ipairs(CASES) do
    if case.family == family then
      cases[#cases + 1] = case
      records[#records + 1] = {messages = case.messages}
    end
  end
  return cases, records
end

-- Keeps the last run of ones.
local function last_run(mask)
  local kept, place = {}, #mask
  for index = 1, #mask do kept[index] = 0 end
  while mask[place] == 0 do place = place - 1 end
  while mask[place] == 1 do kept[place], place = 1, place - 1 end
  return kept
end

function TestMasks:test_are_those_of_transformers()
  for _, family in ipairs(FAMILIES) do
    local cases, records = cases_of(family)
    lu.assertEquals(#cases, 5)
    local expected = {
      assistant = function(case) return case.mask end,
      completion = function(case) return case.mask end,
      last = function(case) return last_run(case.mask) end,
      all = function(case)
        local ones = {0}
        for place = 2, #case.ids do ones[place] = 1 end
        return ones
      end,
    }
    for mask, mask_of in pairs(expected) do
      local documents, companion, done = self:convert(records, chat_files.GOLDEN .. "/" .. family, {mask = mask})
      lu.assertEquals({companion.kind, companion.mask_of, companion.records}, {"conversations", mask, #cases})
      lu.assertEquals(done.stopped, done.answers)
      for place, case in ipairs(cases) do
        local name = ("%s, %s, %s"):format(family, case.conversation, mask)
        lu.assertEquals(documents[place].tokens, case.ids, name)
        lu.assertEquals(documents[place].mask, mask_of(case), name)
      end
    end
  end
end

-- Returns the text of the tokens that count, each run within [].
local function counted(tokenizer, document)
  local text, was = "", 0
  for place, piece in ipairs(tokenizer:pieces(document.tokens)) do
    local counts = document.mask[place]
    if counts ~= was then text = text .. (counts == 1 and "[" or "]") end
    text, was = text .. piece, counts
  end
  return text .. (was == 1 and "]" or "")
end

function TestMasks:test_texts_become_messages()
  local model = chat_files.GOLDEN .. "/chatml"
  local tokenizer = data.tokenizer.load(model)
  local documents, companion = self:convert({
    {prompt = "Hi", completion = "Yes"},
    {prompt = {{role = "system", content = "S"}, {role = "user", content = "U"}},
     completion = {{role = "assistant", content = "A"}}},
    {instruction = "Sum", input = "1 2", output = "3"},
    {instruction = "Greet", input = "", output = "Hey"},
    {prompt = {{role = "user", content = "U"}, {role = "assistant", content = "A"}, {role = "user", content = "V"}},
     completion = "B"},
    {messages = {{role = "user", content = {{type = "text", text = "U"}}}, {role = "assistant", content = "A"}}},
  }, self:folder("chatml", {["chat_template.jinja"] = fs.read(model .. "/chat_template.jinja"):gsub("message%.content",
    "(message.content if message.content is string else message.content[0].text)")}))
  local user, assistant, tail = "<|im_start|>user\n%s<|im_end|>\n", "<|im_start|>assistant\n", "[%s<|im_end|>]\n"
  local function of(prompt, answer) return user:format(prompt) .. assistant .. tail:format(answer) end
  local expected = {
    of("Hi", "Yes"), "<|im_start|>system\nS<|im_end|>\n" .. of("U", "A"), of("Sum\n\n1 2", "3"), of("Greet", "Hey"),
    user:format "U" .. assistant .. "A<|im_end|>\n" .. of("V", "B"), of("U", "A"),
  }
  for place, text in ipairs(expected) do lu.assertEquals(counted(tokenizer, documents[place]), text) end
  lu.assertEquals(companion.stop_tokens, {tokenizer:id_of "<|im_end|>"})
  lu.assertEquals({companion.records, companion.mask_of, #companion.template.hash}, {6, "completion", 16})
  lu.assertEquals({companion.format, companion.tokenizer.model}, {"ztoolkit tokens 1", "x.tokenizer.json"})
  lu.assertEquals(data.tokenizer.load(self.path .. "/x.npy").vocab, tokenizer.vocab)
end

function TestMasks:test_assistant_counts_in_the_prompt()
  local record = {{
    prompt = {{role = "user", content = "U"}, {role = "assistant", content = "A"}, {role = "user", content = "V"}},
    completion = "B"}}
  for _, family in ipairs{"chatml", "chatml_blocks"} do
    local model = chat_files.GOLDEN .. "/" .. family
    local tokenizer = data.tokenizer.load(model)
    local runs = {assistant = 2, completion = 1, last = 1}
    for mask, count in pairs(runs) do
      local documents = self:convert(record, model, {mask = mask})
      lu.assertEquals(select(2, counted(tokenizer, documents[1]):gsub("%[", "")), count, family .. " " .. mask)
    end
  end
end

-- What users write never becomes a special token.
function TestMasks:test_contents_are_text()
  local model = chat_files.GOLDEN .. "/chatml"
  local tokenizer = data.tokenizer.load(model)
  local stop = tokenizer:id_of "<|im_end|>"
  local record = {prompt = "say <|im_end|>", completion = "<|im_end|> ok"}
  for _, plain in ipairs{true, false} do
    local documents = self:convert({record}, model, {plain = plain})
    local stops = 0
    for _, id in ipairs(documents[1].tokens) do stops = stops + (id == stop and 1 or 0) end
    lu.assertEquals(stops, plain and 1 or 2)
    lu.assertStrContains(counted(tokenizer, documents[1]), "[<|im_end|> ok<|im_end|>]")
  end
end

function TestMasks:test_plain_texts()
  local model = chat_files.GOLDEN .. "/llama3"
  local tokenizer = data.tokenizer.load(model)
  local records = {{prompt = "2 + 2 =", completion = " 4"}, {instruction = "Greet", output = "Hey"},
                   {instruction = "Sum", input = "1 2", output = "3"}}
  local documents, companion = self:convert(records, model, {plain = true})
  lu.assertEquals(counted(tokenizer, documents[1]), "<s>2 + 2 =[ 4<|eot_id|>]")
  lu.assertStrContains(counted(tokenizer, documents[2]), "request.\n\n### Instruction:\nGreet\n\n### Response:[Hey<|eot_id|>]")
  lu.assertStrContains(counted(tokenizer, documents[3]), "### Input:\n1 2\n\n### Response:[3<|eot_id|>]")
  lu.assertNil(companion.template)
  local all = self:convert(records, model, {plain = true, mask = "all"})
  lu.assertEquals(counted(tokenizer, all[1]), "<s>[2 + 2 = 4<|eot_id|>]")
  lu.assertEquals(all[1].tokens, documents[1].tokens)
  local without = self:folder("llama3", {["chat_template.jinja"] = false})
  lu.assertEquals(self:convert(records, without), documents, "a folder without a template")
end

-- A tokenizer that puts a space before each text does not put one before a completion.
function TestMasks:test_completions_continue_their_prompt()
  local model = chat_files.GOLDEN .. "/mistral"
  local tokenizer = data.tokenizer.load(model)
  local documents = self:convert({{prompt = "say:", completion = " the thing"}}, model, {plain = true})
  local tokens = tokenizer:encode "say: the thing":tolist()
  table.insert(tokens, 1, tokenizer:id_of "<s>")
  table.insert(tokens, tokenizer:id_of "</s>")
  lu.assertEquals(documents[1].tokens, tokens)
end

function TestMasks:test_preferences()
  for _, plain in ipairs{false, true} do
    local model = chat_files.GOLDEN .. "/chatml"
    local tokenizer = data.tokenizer.load(model)
    local documents, companion, done = self:convert({{prompt = "Hi", chosen = "Good", rejected = "Bad bad"},
                                                     {prompt = "Ho", chosen = "Fine", rejected = "No"}}, model, {plain = plain})
    lu.assertEquals({companion.kind, companion.mask_of, companion.records, #documents}, {"preferences", "completion", 2, 6})
    local prompt = plain and "Hi" or "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    lu.assertEquals({counted(tokenizer, documents[1]), counted(tokenizer, documents[2]), counted(tokenizer, documents[3])},
                    {prompt, "[Good<|im_end|>]", "[Bad bad<|im_end|>]"})
    lu.assertEquals(done.longest, #documents[1].tokens + #documents[3].tokens)
    lu.assertEquals({done.answers, done.stopped}, {4, 4})
  end
end

function TestMasks:test_prompts_keep_their_items()
  local model = chat_files.GOLDEN .. "/chatml"
  local tokenizer = data.tokenizer.load(model)
  local lines = {'{"prompt": "1 + 1?",  "answer": 2, "null": null}',
                 '{"answer": "x", "prompt": [{"role": "user", "content": "Hi"}]}'}
  local documents, companion = self:convert(lines, model)
  lu.assertEquals({companion.kind, companion.mask_of, #documents}, {"prompts", "none", 2})
  lu.assertEquals(fs.read(self.path .. "/x.items.jsonl"), table.concat(lines, "\n") .. "\n")
  lu.assertEquals(counted(tokenizer, documents[2]), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
  local template = data.chat_template(fs.read(model .. "/chat_template.jinja"), "chatml")
  local chat = template:render({{role = "user", content = "1 + 1?"}}, {add_generation_prompt = true})
  local as_sampled = tokenizer:encode(chat.text, {specials = "parsed", contents = chat.contents}):tolist()
  lu.assertEquals(documents[1].tokens, as_sampled)
  local plain = self:convert({lines[1]}, model, {plain = true})
  lu.assertEquals(counted(tokenizer, plain[1]), "1 + 1?")
end

function TestMasks:test_tools_reach_the_template()
  local template = fs.read(chat_files.GOLDEN .. "/chatml/chat_template.jinja")
  template = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" .. template
  local model = self:folder("chatml", {["chat_template.jinja"] = template})
  local tokenizer = data.tokenizer.load(model)
  local documents = self:convert({'{"tools": [{"name": "f", "a": []}], "messages": [{"role": "user", "content": "Hi"},'
    .. '{"role": "assistant", "content": "A"}]}'}, model)
  lu.assertStrContains(counted(tokenizer, documents[1]), '{"name": "f", "a": []}<|im_start|>user')
end

-- Older folders name their special tokens in a file of their own, and some have several templates.
function TestMasks:test_older_folders()
  local model = self:folder("llama3", {["chat_template.jinja"] = false, ["tokenizer_config.json"] = zt.json.encode{
    chat_template = {{name = "tool_use", template = "no"}, {name = "default", template =
      "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
      .. "{% if add_generation_prompt %}assistant: {% endif %}"}}}})
  zt.write_file(model .. "/special_tokens_map.json", '{"bos_token": {"content": "<s>"}, "eos_token": "</s>"}')
  local documents, companion = self:convert({{prompt = "Hi", completion = "Yes"}}, model)
  local tokenizer = data.tokenizer.load(model)
  lu.assertEquals(counted(tokenizer, documents[1]), "<s>user: Hi</s>assistant: [Yes</s>]")
  lu.assertEquals(companion.stop_tokens, {tokenizer:id_of "</s>"})
end

function TestMasks:test_options_of_answers()
  local tokenizer = data.tokenizer.bytes()
  local function refused(message, options)
    lu.assertErrorMsgContains(message, tokenizer.encode_answers, tokenizer, "some text", options)
  end
  refused("answers must be ascending ranges", {answers = {{3, 99}}})
  refused("contents must be ascending ranges", {contents = {{3, 2}}})
  refused("from is 10: it must lie in the 9 bytes", {from = 10})
  refused("from is 5: it must lie in the 9 bytes of the text, and before all answers", {from = 5, answers = {{4, 9}}})
  refused("begin has the token 256: this tokenizer has the tokens 0 to 255", {begin = {256}})
  refused("end_token has the token -1", {end_token = -1})
  local found = tokenizer:encode_answers("abc", {answers = {{1, 2}}, stop_tokens = {98}, begin = {1}, end_token = 2})
  lu.assertEquals({found.tokens:tolist(), found.mask:tolist()}, {{1, 97, 98, 2, 99}, {0, 0, 1, 1, 0}})
  lu.assertEquals({found.size, found.counted, found.stopped}, {5, 2, 1})
end

function TestMasks:test_stop_tokens()
  local generation = zt.json.encode{eos_token_id = {1, 99999}}
  local model = self:folder("chatml", {["generation_config.json"] = generation})
  local _, companion, done = self:convert({{prompt = "Hi", completion = "Yes"}}, model)
  lu.assertEquals({companion.stop_tokens, done.stopped, done.answers}, {{1}, 0, 1})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestMasks", TestMasks}})
