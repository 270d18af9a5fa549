--- Requests as the engine in C++ takes them: with tokens.

local check = require "zt.check"
local fail = require "zt.fail"

local requests = {}

local LISTS = {"prompt", "messages", "stop", "stop_tokens"}

--- Fails unless a table is a list without holes. path: names it.
function requests.check_list(path, list)
  if check.is("list", list) then return end
  for key in pairs(list) do
    if type(key) ~= "number" then fail("%s must be a list, and has the key '%s'", path, tostring(key)) end
  end
  local place = 1
  while list[place] ~= nil do place = place + 1 end
  fail("%s[%d] is nil, and there are items after it: leave no holes in a list", path, place)
end

-- Returns the tokens of a text. Fails without a tokenizer.
local function encode(self, text, specials, path)
  if not self.tokenizer then
    fail("%s.prompt is a text: give infer.engine a tokenizer, or a list of tokens", path)
  end
  return self.tokenizer:encode(text, {specials = specials or "added"})
end

--- Returns the template of {source =, name =}, which is parsed when it is needed first.
function requests.template_of(chat)
  chat.template = chat.template or require("zt.data").chat_template(chat.source, chat.name)
  return chat.template
end

-- Returns the tokens of a conversation. What its messages say never becomes a special token.
local function encode_chat(self, request, path)
  if request.prompt ~= nil then fail("%s: give either prompt or messages", path) end
  if not self.chat or not self.tokenizer then
    fail("%s.messages need a tokenizer and a chat template, and the model has none: give infer.engine tokenizer and "
      .. "chat_template, or the request a prompt", path)
  end
  local messages = request.messages
  local count = check.type_name(messages) == "a Json" and messages:length() or type(messages) == "table" and #messages
  if count == 0 then fail("%s.messages is empty: give at least one message", path) end
  local variables, given = {}, request.variables or {}
  if check.type_name(given) == "a Json" then given = given:fields() end
  if type(given) ~= "table" then
    fail("%s.variables must be a table of names, got %s", path, check.type_name(given))
  end
  for _, from in ipairs{self.chat.variables, given} do
    for key, value in pairs(from) do variables[key] = value end
  end
  local chat = requests.template_of(self.chat):render(request.messages, {variables = variables, add_generation_prompt = true})
  return self.tokenizer:encode(chat.text, {specials = "parsed", contents = chat.contents})
end

--- Returns a request of an engine as that in C++ takes it: with tokens, and logit_bias by the names of tokens. path: names it.
function requests.plain(self, request, path)
  if type(request) ~= "table" then fail("%s must be a table, got %s", path, check.type_name(request)) end
  for _, key in ipairs(LISTS) do
    if type(request[key]) == "table" then requests.check_list(path .. "." .. key, request[key]) end
  end
  local copy = {}
  for key, value in pairs(request) do copy[key] = value end
  if request.messages ~= nil then copy.prompt = encode_chat(self, request, path)
  elseif type(request.prompt) == "string" then copy.prompt = encode(self, request.prompt, request.specials, path) end
  if request.variables ~= nil and request.messages == nil then
    fail("%s.variables are those of the chat template: give messages", path)
  end
  if request.specials ~= nil and type(request.prompt) ~= "string" then
    fail("%s.specials says what becomes of special tokens in a prompt that is a text: leave it out", path)
  end
  copy.messages, copy.variables, copy.specials = nil, nil, nil
  if type(request.logit_bias) == "table" then
    copy.logit_bias = {}
    for token, bias in pairs(request.logit_bias) do copy.logit_bias[tostring(token)] = bias end
  end
  return copy
end

return requests
