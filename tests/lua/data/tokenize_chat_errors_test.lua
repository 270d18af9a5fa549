-- Tests the errors of records of zt.data.tokenize_chat, and that files appear complete or not at all.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local data = require "zt.data"
local fs = require "zt.fs"
local chat_files = require "data.chat_files"
local temporary = require "support.temporary"

local CHATML = chat_files.GOLDEN .. "/chatml"
local RIGHT = '{"prompt": "Hi", "completion": "Yes"}'
local USER, ASSISTANT = '{"role": "user", "content": "U"}', '{"role": "assistant", "content": "A"}'

local TestErrors = {}

function TestErrors:setUp()
  self.path = temporary()
  zt.mkdir_p(self.path)
end

function TestErrors:options(lines, more)
  local o = {input = chat_files.records(self.path .. "/x.jsonl", lines), output = self.path .. "/out.npy", model = CHATML}
  for key, value in pairs(more or {}) do o[key] = value end
  return o
end

-- Fails unless the second line is refused with each of the texts, and unless no file is left.
function TestErrors:refused(line, texts, more)
  local o = self:options({RIGHT, line}, more)
  local is_right, message = pcall(data.tokenize_chat, o)
  lu.assertFalse(is_right, line)
  lu.assertStrContains(message, ("line 2 of %s/x.jsonl: "):format(self.path))
  for _, text in ipairs(type(texts) == "table" and texts or {texts}) do lu.assertStrContains(message, text) end
  local left = {}
  for _, name in ipairs(fs.list(self.path)) do
    if name:find "^out" then left[#left + 1] = name end
  end
  lu.assertEquals(left, {})
end

local function messages(...) return '{"messages": [' .. table.concat({...}, ", ") .. "]}" end

function TestErrors:test_each_has_its_line()
  self:refused('{"prompt": ', "not JSON, at byte")
  self:refused("[1, 2]", "is not a JSON object")
  self:refused('"text"', "is not a JSON object")
  self:refused('{"prompt": "\xFF", "completion": "x"}', "not JSON")
  self:refused('{"prompt": "x", "completion": "y"}\0{"prompt": "lost', "it has a byte 0")
  self:refused('{"prompt": ' .. ("["):rep(600) .. ("]"):rep(600) .. "}", "x.jsonl: the JSON is nested in more than 500 levels")
  self:refused('{"text": "x"}', "no known kind of record")
  self:refused('{"completion": "x"}', "no 'prompt'")
  self:refused('{"prompt": "x", "chosen": "y"}', "no 'rejected'")
  self:refused('{"instruction": "x"}', "no 'output'")
  self:refused('{"prompt": "x", "response": "y"}', "it has 'response', which is no key here: write 'completion'")
  self:refused('{"conversations": []}', "it has 'conversations', which is no key here: write 'messages'")
  self:refused('{"instruction": 3, "output": "x"}', "'instruction' must be a text")
  self:refused('{"messages": [], "completion": "x"}', "both 'messages' and 'completion'")
  self:refused('{"messages": "hi"}', "give a list of messages")
  self:refused('{"messages": []}', "'messages' is an empty list")
  self:refused('{"messages": {"role": "user"}}', "neither a text nor a list")
  self:refused('{"prompt": 3, "completion": "x"}', "'prompt' is neither a text nor a list")
  self:refused(messages(USER, "null"), "messages[2] is not an object")
  self:refused(messages(USER, '"hi"'), "messages[2] is not an object")
  self:refused(messages('{"content": "U"}', ASSISTANT), "messages[1] has no role")
  self:refused(messages('{"role": "user"}', ASSISTANT), "messages[1] has no content")
  self:refused(messages('{"role": "user", "content": 3}', ASSISTANT), "messages[1].content is a number")
  self:refused(messages('{"role": "user", "content": {"a": 1}}', ASSISTANT), "messages[1].content is an object")
  self:refused(messages('{"role": "user", "content": [{"type": "image"}]}', ASSISTANT), "content[1] has the type 'image'")
  self:refused('{"prompt": "x", "tools": 3, "completion": "y"}', "'tools' must be a list")
end

function TestErrors:test_of_other_kinds()
  self:refused('{"prompt": "x"}', {"keys are those of prompts", "before it are conversations", "a file of its own"})
  self:refused('{"prompt": "x", "chosen": "a", "rejected": "b"}', "those of preferences")
end

-- An answer that is missing does not make a record a prompt, and a file one of prompts. Data sets with all keys have null for
-- those of other kinds.
function TestErrors:test_nulls()
  for _, key in ipairs{"completion", "chosen", "rejected", "messages", "instruction"} do
    local line = ('{"prompt": "x", "%s": null}'):format(key)
    self:refused(line, {"it has a prompt, and '" .. key .. "' is null", "leave the key out"})
  end
  self:refused('{"prompt": "x", "chosen": "y", "rejected": null}', "no 'rejected'")
  local path = chat_files.records(self.path .. "/nulls.jsonl", {'{"messages": null, "prompt": "x", "completion": "y"}'})
  lu.assertEquals(data.tokenize_chat{input = path, model = CHATML}.kind, "conversations")
end

function TestErrors:test_nothing_to_learn()
  self:refused(messages(USER), "nothing to learn")
  self:refused('{"prompt": "x", "completion": ""}', "completion is an empty answer")
  self:refused('{"prompt": "x", "completion": " \\n"}', "is an empty answer")
  self:refused('{"prompt": "x", "completion": ""}', "'completion' is an empty answer", {plain = true})
  self:refused(messages(USER, '{"role": "assistant", "content": ""}', USER, ASSISTANT), "messages[2] is an empty answer")
  local blocks = fs.read(chat_files.GOLDEN .. "/chatml_blocks/chat_template.jinja"):gsub("== 'assistant'", "== 'model'")
  local model = chat_files.folder(self.path .. "/blocks", "chatml_blocks", {["chat_template.jinja"] = blocks})
  self:refused_alone("there is nothing to learn: no token counts, since the {% generation %} blocks", {RIGHT}, {model = model})
end

function TestErrors:test_long_records()
  self:refused('{"prompt": "Hi", "completion": "Yes, with a long answer that goes on"}', "more than the 30 that are allowed",
               {max_tokens = 30})
end

function TestErrors:test_what_the_template_refuses()
  local odd = messages(ASSISTANT, USER)
  local model = chat_files.GOLDEN .. "/gemma"
  self:refused(odd, {"the chat template does not accept it", "Roles must alternate", "Give what it asks for"}, {model = model})
end

-- Returns a folder whose template writes a message in another way once there are later ones.
function TestErrors:forgetful()
  return chat_files.folder(self.path .. "/forgetful", "chatml", {["chat_template.jinja"] = "{% for m in messages %}"
    .. "<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and not loop.last %}...{% else %}{{ m.content }}{% endif %}"
    .. "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"})
end

function TestErrors:test_templates_that_rewrite_answers()
  local model, two = self:forgetful(), messages(USER, ASSISTANT, USER, ASSISTANT)
  self:refused(two, {"messages[2]: the template writes it in another way once there are messages after it", "mask = 'last'"},
               {model = model})
  data.tokenize_chat(self:options({RIGHT, two}, {model = model, mask = "last"}))
  local prefix = chat_files.folder(self.path .. "/prefix", "chatml", {["chat_template.jinja"] = "{{ messages | length }}:"
    .. "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"})
  self:refused_alone("messages[2]: the template writes the messages before it in another way", {messages(USER, ASSISTANT)},
                     {model = prefix, mask = "last"})
end

function TestErrors:refused_alone(message, lines, more)
  lu.assertErrorMsgContains(message, data.tokenize_chat, self:options(lines, more))
end

function TestErrors:test_of_preferences_and_prompts()
  self:refused_alone("the first message of 'chosen' has the role 'user'",
                     {'{"prompt": "x", "chosen": [' .. USER .. "," .. ASSISTANT .. '], "rejected": "b"}'})
  self:refused_alone("rejected is an empty answer", {'{"prompt": "x", "chosen": "a", "rejected": ""}'})
  self:refused_alone("'rejected' is an empty answer", {'{"prompt": "x", "chosen": "a", "rejected": ""}'}, {plain = true})
  local model = chat_files.folder(self.path .. "/counts", "chatml", {["chat_template.jinja"] = "{{ messages | length }}"})
  self:refused_alone("chosen: the template writes the prompt in another way once there is an answer",
                     {'{"prompt": "x", "chosen": "a", "rejected": "b"}'}, {model = model})
  self:refused_alone("prompt[2] is an answer of the assistant", {'{"prompt": [' .. USER .. "," .. ASSISTANT .. "]}"})
  self:refused_alone("mask = 'all' has no meaning with prompts", {'{"prompt": "x"}'}, {mask = "all"})
  self:refused_alone("mask = 'last' has no meaning with preferences", {'{"prompt": "x", "chosen": "a", "rejected": "b"}'},
                     {mask = "last"})
end

function TestErrors:test_of_folders_and_files()
  self:refused_alone("there is no folder", {RIGHT}, {model = self.path .. "/none"})
  self:refused_alone("has no tokenizer", {RIGHT}, {model = self.path})
  self:refused_alone("must have a name that ends in .npy", {RIGHT}, {output = self.path .. "/out.bin"})
  self:refused_alone("there is no folder", {RIGHT}, {output = self.path .. "/none/out.npy"})
  self:refused_alone("would replace the text", {'{"prompt": "x"}'},
                     {input = chat_files.records(self.path .. "/out.items.jsonl", {'{"prompt": "x"}'})})
  self:refused_alone("has no record", {"", " "})
  self:refused_alone("'messages' need a chat template", {messages(USER, ASSISTANT)}, {plain = true})
  self:refused_alone("'prompt' is a list of messages", {'{"prompt": [' .. USER .. '], "completion": "x"}'}, {plain = true})
  self:refused_alone("mask = 'last' needs messages", {RIGHT}, {plain = true, mask = "last"})
  local silent = chat_files.folder(self.path .. "/silent", "chatml", {["tokenizer_config.json"] = "{}"})
  self:refused_alone("does not say which token ends a text", {RIGHT}, {model = silent, plain = true})
  local wrong = chat_files.folder(self.path .. "/wrong", "chatml", {["tokenizer_config.json"] = '{"eos_token": "<nope>"}'})
  self:refused_alone("names the end token '<nope>'", {RIGHT}, {model = wrong})
end

function TestErrors:test_bad_records_are_skipped()
  local told = {}
  local done = data.tokenize_chat(self:options({"{", RIGHT, '{"prompt": "x"}', "", messages(USER), RIGHT}, {
    skip_bad = true, on_bad = function(message) told[#told + 1] = message:match "^line (%d+)" end,
  }))
  lu.assertEquals({done.records, done.skipped, told}, {2, 3, {"1", "3", "5"}})
  lu.assertEquals(#chat_files.read(self.path .. "/out.npy"), 2)
  self:refused_alone("has no record that is right", {"{"}, {skip_bad = true})
end

-- An error in the script's own function is none of a record.
function TestErrors:test_other_errors_are_not_skipped()
  self:refused_alone("mine", {RIGHT}, {skip_bad = true, on_record = function() error "mine" end})
  lu.assertFalse(zt.exists(self.path .. "/out.npy.partial"))
end

function TestErrors:test_an_error_keeps_the_old_files()
  data.tokenize_chat(self:options{RIGHT})
  local names = fs.list(self.path)
  local before = fs.read(self.path .. "/out.npy")
  self:refused_alone("line 2", {RIGHT, "{"})
  lu.assertEquals(fs.list(self.path), names)
  lu.assertEquals(fs.read(self.path .. "/out.npy"), before)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestErrors", TestErrors}})
