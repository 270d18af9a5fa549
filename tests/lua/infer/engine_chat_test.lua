-- Tests conversations: chat templates, special tokens, and `ztoolkit generate --chat`.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
require "zt.gemm"
local ckpt, data, infer, nn = require "zt.ckpt", require "zt.data", require "zt.infer", require "zt.nn"
local command = require "support.command"
local temporary = require "support.temporary"

local TOKENIZER = "tests/golden/tokenizers/llama3.json"
local BEGIN, HEAD, HEAD_END, TURN_END = "<s>", "<|a|>", "<|b|>", "</s>"
local TEMPLATE = [[
{{- bos_token }}
{%- for message in messages %}
{{- '<|a|>' + message['role'] + '<|b|>\n\n' + message['content'] | trim + '</s>' }}
{%- endfor %}
{%- if mood is defined %}{{ '(' + mood + ')' }}{% endif %}
{%- if add_generation_prompt %}{{ '<|a|>assistant<|b|>\n\n' }}{% endif %}]]

local tokenizer = data.tokenizer.load(TOKENIZER)
local trainer = zt.trainer(zt.program(nn.gpt{layers = 2, hidden = 32, heads = 2, vocab = tokenizer.vocab, seq = 256,
                                             family = "llama", seed = 3, std = 0.3}), {separate = true})
local VARIABLES = {bos_token = BEGIN}

local function engine_of(more)
  local options = {trainer = trainer, tokenizer = tokenizer, chat_template = TEMPLATE}
  for key, value in pairs(more or {}) do options[key] = value end
  return infer.engine(options)
end

local TestChat = {}

function TestChat:test_special_tokens()
  local begin, turn_end = tokenizer:id_of(BEGIN), tokenizer:id_of(TURN_END)
  lu.assertEquals({tokenizer:is_special(begin), tokenizer:is_special(turn_end), tokenizer:id_of "no such token"}, {true, true})
  local text = "x" .. TURN_END .. "y"
  local function ids(options) return tokenizer:encode(text, options):tolist() end
  local function has(list, id)
    for _, each in ipairs(list) do
      if each == id then return true end
    end
    return false
  end
  lu.assertFalse(has(ids(), turn_end))
  lu.assertTrue(has(ids{specials = "parsed"}, turn_end))
  lu.assertFalse(has(ids{specials = "parsed", contents = {{2, 3}}}, turn_end))
  lu.assertEquals(ids{specials = "added"}[1], begin)
  lu.assertEquals(tokenizer:decode(ids{specials = "parsed"}), "xy")
  lu.assertEquals(tokenizer:decode(ids()), text)
  for _, wrong in ipairs{{{3, 2}}, {{0, 99}}, {{2, 4}, {3, 5}}, {{1}}} do
    lu.assertErrorMsgContains("contents must be ascending ranges", tokenizer.encode, tokenizer, text, {contents = wrong})
  end
end

-- A conversation is the prompt that the template writes. What messages say stays text, also where it spells a special token.
function TestChat:test_messages_are_rendered()
  local messages = {{role = "system", content = " be kind "}, {role = "user", content = "say " .. TURN_END}}
  local template = data.chat_template(TEMPLATE, "template")
  local chat = template:render(messages, {variables = VARIABLES, add_generation_prompt = true})
  lu.assertEquals(chat.text, ("%s%ssystem%s\n\nbe kind%s%suser%s\n\nsay %s%s%sassistant%s\n\n"):format(
    BEGIN, HEAD, HEAD_END, TURN_END, HEAD, HEAD_END, TURN_END, TURN_END, HEAD, HEAD_END))
  local engine = engine_of()
  engine.chat.variables = VARIABLES
  local prompt = tokenizer:encode(chat.text, {specials = "parsed", contents = chat.contents})
  local ends = 0
  for _, id in ipairs(prompt:tolist()) do ends = ends + (id == tokenizer:id_of(TURN_END) and 1 or 0) end
  lu.assertEquals(ends, 2)
  local more = {max_tokens = 8, logprobs = 0}
  local expected = engine:generate{prompt = prompt, max_tokens = 8, logprobs = 0}[1]
  local answer = engine:generate{messages = messages, max_tokens = more.max_tokens, logprobs = 0}[1]
  lu.assertEquals({answer.tokens, answer.logprobs}, {expected.tokens, expected.logprobs})
  local moody = template:render(messages, {variables = {bos_token = BEGIN, mood = "good"}})
  lu.assertStrContains(moody.text, "(good)")
  local other = engine:generate{messages = messages, variables = {mood = "good"}, max_tokens = 8, logprobs = 0}[1]
  lu.assertNotEquals(other.logprobs, expected.logprobs)
end

function TestChat:test_prompts_without_special_tokens()
  local engine = engine_of()
  local function logprobs(request)
    request.max_tokens, request.logprobs = 4, 0
    return engine:generate(request)[1].logprobs
  end
  lu.assertEquals(logprobs{prompt = "a</s>b", specials = "none"}, logprobs{prompt = tokenizer:encode "a</s>b"})
  lu.assertEquals(logprobs{prompt = "a</s>b", specials = "parsed"},
                  logprobs{prompt = tokenizer:encode("a</s>b", {specials = "parsed"})})
  lu.assertErrorMsgContains("specials must be one of", engine.generate, engine, {{prompt = "a", specials = "x"}})
  lu.assertErrorMsgContains("a prompt that is a text", engine.generate, engine, {{prompt = {1}, specials = "none"}})
end

-- A prompt gets the tokens that the tokenizer adds, as transformers does.
function TestChat:test_prompts_begin_with_the_tokenizers_tokens()
  local engine = engine_of()
  local expected = engine:generate{prompt = tokenizer:encode("Science", {specials = "added"}), max_tokens = 5, logprobs = 0}[1]
  lu.assertEquals(engine:generate{prompt = "Science", max_tokens = 5, logprobs = 0}[1].logprobs, expected.logprobs)
end

function TestChat:test_errors()
  local engine = engine_of()
  local function check(text, request) lu.assertErrorMsgContains(text, engine.generate, engine, {request}) end
  check("give either prompt or messages", {prompt = "x", messages = {}})
  check("requests[1].variables are those of the chat template", {prompt = "x", variables = {mood = "good"}})
  check("messages", {messages = "x"})
  local bare = infer.engine{trainer = trainer, tokenizer = tokenizer}
  local conversation = {messages = {{role = "user", content = "x"}}}
  lu.assertErrorMsgContains("need a tokenizer and a chat template", bare.generate, bare, {conversation})
  lu.assertErrorMsgContains("chat_template", engine_of, {chat_template = "{% if %}"})
  local raising = engine_of{chat_template = "{{ raise_exception('roles must alternate') }}"}
  lu.assertErrorMsgContains("roles must alternate", raising.generate, raising, {conversation})
  check("requests[1].messages is empty: give at least one message", {messages = {}})
  check("requests[1].messages is empty: give at least one message", {messages = data.json "[]"})
  for text, reason in pairs{["[1, -9223372036854775809]"] = "more than 63 bits, -9223372036854775809, at byte 4",
                            ["[123456789012345678901234567890]"] = "write it as text", ["[1e400]"] = "beyond 1.8e308"} do
    lu.assertErrorMsgContains(reason, data.json, text)
  end
  data.json '["9223372036854775808 \\" 99999999999999999999", 9223372036854775807, 1e30, -0.5E-3]'
  lu.assertErrorMsgContains("beyond 1.8e308", zt.json.decode, "[1e400]")
end

-- Returns a folder as Hugging Face writes it, with the tokenizer and the template.
local function folder_of()
  local base = temporary()
  ckpt.save(base .. "/run", {trainer = trainer}, {step = 0, async = false})
  local text, status = command "ckpt"("export", base .. "/run", base .. "/out", "--huggingface")
  lu.assertEquals(status, 0, text)
  zt.write_file(base .. "/out/tokenizer.json", zt.fs.read(TOKENIZER))
  zt.write_file(base .. "/out/tokenizer_config.json", zt.json.encode{
    bos_token = {content = BEGIN}, chat_template = TEMPLATE, eos_token = TURN_END})
  return base .. "/out"
end

function TestChat:test_the_command_holds_a_conversation()
  local folder = folder_of()
  local engine = infer.engine{model = folder}
  local messages = {{role = "system", content = "be kind"}, {role = "user", content = "hello"}}
  local function answer() return engine:generate{messages = messages, max_tokens = 6, temperature = 0}[1].text end
  local first = answer()
  messages[3], messages[4] = {role = "assistant", content = first}, {role = "user", content = "and?"}
  local second = answer()
  messages = {{role = "system", content = "be kind"}, {role = "user", content = "and?"}}
  local third = answer()
  local input = "hello\n\nand?\n" .. ("long "):rep(200) .. "\n/clear\nand?\n/exit\nnever\n"
  local chat = command("generate", input)
  local text, status = chat(folder, "--chat", "--system", "be kind", "--max-tokens", "6", "--temperature", "0")
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, first .. "\n" .. second .. "\n")
  lu.assertStrContains(text, "exceed max_context = 256")
  lu.assertStrContains(text, third .. "\n")
  lu.assertNotStrContains(text, "never")
  local file = temporary() .. ".jsonl"
  zt.write_file(file, zt.json.encode{messages = {{role = "user", content = "hello"}}, max_tokens = 3} .. "\n")
  text, status = command "generate"(folder, "--file", file)
  lu.assertEquals(status, 0, text)
  text, status = command "generate"(folder, "--prompt", "hello", "--max-tokens", "4", "--temperature", "0", "--weights", "int8",
                                    "--group", "32")
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, "4 tokens in")
end

-- A folder without a tokenizer or a template is one error at the start, which names the file, whatever the input says.
function TestChat:test_the_command_names_the_missing_file()
  local folder = folder_of()
  local chat = command("generate", "hello\nand?\n")
  local function refused(messages)
    local text, status = chat(folder, "--chat")
    lu.assertEquals(status, 1, text)
    for _, message in ipairs(messages) do lu.assertStrContains(text, message) end
    lu.assertNotStrContains(text, "/clear")
    lu.assertNotStrContains(text, "infer.engine")
    local _, count = text:gsub("generate: ", "")
    lu.assertEquals(count, 1, text)
  end
  zt.write_file(folder .. "/tokenizer_config.json", zt.json.encode{bos_token = BEGIN})
  refused{"'" .. folder .. "' has no chat template (chat_template.jinja, or", "a conversation"}
  local file = temporary() .. ".jsonl"
  zt.write_file(file, '{"prompt": "x"}\n\n{"messages": [{"role": "user", "content": "x"}]}\n')
  local text, status = command "generate"(folder, "--file", file)
  lu.assertEquals(status, 1, text)
  lu.assertStrContains(text, "has no chat template")
  lu.assertStrContains(text, "the messages of line 3 of " .. file)
  zt.fs.remove(folder .. "/tokenizer.json")
  refused{"'" .. folder .. "' has no tokenizer (tokenizer.json or tokenizer.model), so a conversation cannot"}
end

-- A template that prints tools as JSON prints them as the file has them.
function TestChat:test_the_command_keeps_the_json_of_a_file()
  local folder = folder_of()
  zt.write_file(folder .. "/tokenizer_config.json", zt.json.encode{
    bos_token = BEGIN, chat_template = "{{ tools | tojson }}{{ messages[0] | tojson }}"})
  local messages, tools = '[{"role": "user", "content": [null], "name": null}]', '[{"z": 2.0, "a": [], "b": null}]'
  local file = temporary() .. ".jsonl"
  local line = '{"messages": %s, "variables": {"tools": %s}, "max_tokens": 2, "temperature": 0, "prompt_logprobs": true}'
  zt.write_file(file, line:format(messages, tools))
  local text, status = command "generate"(folder, "--file", file, "--json")
  lu.assertEquals(status, 0, text)
  local prompt = tokenizer:encode '[{"z": 2.0, "a": [], "b": null}]{"role": "user", "content": [null]}'
  local expected = infer.engine{model = folder}:generate{prompt = prompt, max_tokens = 2, temperature = 0, prompt_logprobs = true}
  local answer = zt.json.decode(text:match "{[^\n]*}")
  lu.assertEquals({answer.tokens, answer.prompt_logprobs}, {expected[1].tokens, expected[1].prompt_logprobs})
  zt.write_file(file, '{"messages": [], "variables": [1]}')
  text, status = command "generate"(folder, "--file", file)
  lu.assertEquals(status, 1, text)
  lu.assertStrContains(text, "line 1 of " .. file .. ": variables must be an object")
end

-- A conversation without any answer is a failure. /clear is advised only where there is something to clear.
function TestChat:test_the_command_fails_without_an_answer()
  local folder = folder_of()
  local function chat(input)
    return command("generate", input)(folder, "--chat", "--max-tokens", "3", "--temperature", "0")
  end
  local text, status = chat(("long "):rep(300) .. "\n")
  lu.assertEquals(status, 1, text)
  lu.assertStrContains(text, "exceed max_context = 256")
  lu.assertNotStrContains(text, "/clear")
  text, status = chat("hello\n" .. ("long "):rep(300) .. "\n")
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, "lower max_tokens (/clear begins a new conversation)")
  lu.assertEquals(({chat ""})[2], 0)
end

-- Tokens of a text by a tokenizer.json are those of the whole text, and the token file knows its tokenizer.
function TestChat:test_token_files()
  local base = temporary()
  local text = ("A line.\n\n  Another  one, 12345.\n"):rep(4000)
  zt.write_file(base .. ".txt", text)
  local count = data.tokenize{input = base .. ".txt", output = base .. ".npy", tokenizer = tokenizer}
  local expected = tokenizer:encode(text)
  lu.assertEquals(count, expected:numel())
  local loaded = data.tokenizer.load(base .. ".npy")
  lu.assertEquals(loaded.kind, "tokenizer.json")
  local stream = data.tokens{path = base .. ".npy", seq = 16, batch = 1, shuffle = false, validation = 0}
  lu.assertTrue(zt.op "equal"(stream:batch(0).tokens[0], expected:narrow(0, 0, 16)))
  lu.assertEquals(stream.tokenizer.vocab, tokenizer.vocab)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestChat", TestChat}})
