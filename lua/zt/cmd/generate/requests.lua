--- The requests of `ztoolkit generate`: reads them, completes them by the command line, and gives them to the engine.

local data = require "zt.data"
local fail = require "zt.fail"
local fs   = require "zt.fs"
local json = require("zt.core").json

local requests = {}

local SAMPLING = {"max_tokens", "n", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "ignore_eos"}

--- Returns the request with the options of the command line, `o`, that it does not have itself.
function requests.completed(o, request)
  for _, key in ipairs(SAMPLING) do
    if request[key] == nil and not (key == "ignore_eos" and request.stop_tokens) then request[key] = o[key] end
  end
  if o.stop and not request.stop then request.stop = o.stop end
  return request
end

--- Returns the content of the file, or for "-" of the standard input, and how messages name it.
function requests.content_of(path)
  if path ~= "-" then return fs.read(path), path end
  local content, reason = io.stdin:read "*a"
  if not content then fail("cannot read the standard input: %s", tostring(reason)) end
  return content, "the standard input"
end

-- Fails for null in a list of a request: the decoded list is without it.
local function check_nulls(request, line, place)
  if not line:find "null" then return end
  for key, kept in pairs(data.json(line, place):fields()) do
    local list = request[key]
    local is_list = type(list) == "table" and not pcall(kept.fields, kept)
    for item = 1, is_list and kept:length() or 0 do
      if list[item] == nil then fail("%s: %s[%d] is null: leave it out, or give a value", place, key, item) end
    end
  end
end

-- Keeps the JSON of a conversation as it is written, since a template may print it: with the order of names, null and 2.0.
local function keep_conversation(request, line, place)
  if request.messages == nil then return end
  local kept = data.json(line):fields()
  request.messages = kept.messages
  if request.variables == nil then return end
  local is_object, variables = pcall(kept.variables.fields, kept.variables)
  if not is_object then fail('%s: variables must be an object, such as {"tools": []}', place) end
  request.variables = variables
end

--- Returns the requests of a text with a JSON object in each line, and of each one its line, such as "line 3 of FILE". Lines of
-- white space are skipped.
function requests.parse(o, content, name)
  local list, lines, number = {}, {}, 0
  for line in (content .. "\n"):gmatch "(.-)\r?\n" do
    number = number + 1
    if line:find "%S" then
      local is_json, request = pcall(json.decode, line)
      if not is_json then fail("line %d of %s is not JSON: %s", number, name, tostring(request)) end
      if type(request) ~= "table" or (request.prompt == nil and request.messages == nil) then
        fail('line %d of %s is no request: give a JSON object with "prompt", a text or a list of tokens, or with "messages"',
             number, name)
      end
      if line:find '"logit_bias"%s*:%s*%[' then
        fail('line %d of %s: logit_bias must be an object of tokens, such as {"5": -1}', number, name)
      end
      lines[#lines + 1] = ("line %d of %s"):format(number, name)
      check_nulls(request, line, lines[#lines])
      keep_conversation(request, line, lines[#lines])
      list[#list + 1] = requests.completed(o, request)
    end
  end
  if #list == 0 then fail("%s has no request: give a JSON object in each line", name) end
  return list, lines
end

--- Returns the number of all answers. A request whose `n` is wrong counts as one: the engine refuses it later.
function requests.answers_of(list)
  local count = 0
  for _, request in ipairs(list) do
    local n = tonumber(request.n)
    count = count + (n and n >= 1 and n % 1 == 0 and n or 1)
  end
  return count
end

local function no_tokenizer(folder)
  return ("'%s' has no tokenizer (tokenizer.json or tokenizer.model)"):format(folder)
end

--- Fails, and names the file that is missing, if the folder's engine cannot hold a conversation.
function requests.check_chat(engine, folder, what)
  if not engine.tokenizer then
    fail("%s, so %s cannot be converted to tokens: add the file, as the model's authors publish it", no_tokenizer(folder), what)
  end
  if not engine.chat then
    fail("'%s' has no chat template (chat_template.jinja, or \"chat_template\" in tokenizer_config.json), so it is not known how "
      .. "the model reads %s: add the file, as the model's authors publish it, or give prompts", folder, what)
  end
end

--- Fails unless the folder has the files that the requests need.
function requests.check_folder(engine, folder, list, lines)
  for place, request in ipairs(list) do
    if request.prompt == nil then
      requests.check_chat(engine, folder, "the messages of " .. lines[place])
    elseif type(request.prompt) == "string" and not engine.tokenizer then
      fail("%s: give prompts as lists of tokens, by --file%s", no_tokenizer(folder),
           lines and (" (%s has a text)"):format(lines[place]) or "")
    end
  end
end

--- Gives the engine those requests whose place in the list is `first`, `first + every`, ... Returns their places by the engine's
-- numbers. If one of them is wrong, returns nil, its place and what is wrong.
function requests.submit(engine, list, first, every)
  local places = {}
  for place = first, #list, every do
    local is_right, number = pcall(engine.submit, engine, list[place])
    if not is_right then return nil, place, (tostring(number):gsub("^%S+:%d+: ", "")) end
    places[number] = place
  end
  return places
end

--- Fails with what is wrong with the request at `place`.
function requests.refuse(place, reason, lines)
  fail("%s: %s", lines and lines[place] or "--prompt", (reason:gsub("^request[.:]%s*", "")))
end

return requests
