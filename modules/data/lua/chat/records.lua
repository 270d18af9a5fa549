--- Reads records of JSONL: conversations, preferences and prompts, in the forms that data sets have.

local bad = require "zt.data.chat.bad"
local check = require "zt.check"
local core = require "zt.core"
local data = require "zt.data"

local records = {}

-- The keys that tell a form, in this order; the kind of its records; the keys that it needs, and may have.
local FORMS = {
  {key = "messages", kind = "conversations", needed = {"messages"}},
  {key = "completion", kind = "conversations", needed = {"prompt", "completion"}},
  {key = "instruction", kind = "conversations", needed = {"instruction", "output"}},
  {key = "chosen", kind = "preferences", needed = {"prompt", "chosen", "rejected"}},
  {key = "rejected", kind = "preferences", needed = {"prompt", "chosen", "rejected"}},
  {key = "prompt", kind = "prompts", needed = {"prompt"}},
}
local KNOWN = "{messages}, {prompt, completion}, {instruction, input, output}, {prompt, chosen, rejected} or {prompt}"

-- The prompts of Stanford's Alpaca, for texts without a template.
local ALPACA = {
  with_input = "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
    .. "response that appropriately completes the request.\n\n### Instruction:\n%s\n\n### Input:\n%s\n\n### Response:",
  without = "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
    .. "### Instruction:\n%s\n\n### Response:",
}

-- Keys that other tools have, where these forms have another one.
local OTHERS = {response = "completion", completions = "completion", responses = "completion", reject = "rejected",
                conversations = "messages", question = "prompt", query = "prompt", prompts = "prompt"}

-- Fails for a record of a prompt alone with a key that another form means.
local function check_others(fields)
  for _, key in ipairs(check.sorted_keys(OTHERS)) do
    if fields[key] ~= nil and fields[OTHERS[key]] == nil then
      bad.raise("it has '%s', which is no key here: write '%s', or give it another name if it is for the reward", key,
                OTHERS[key])
    end
  end
end

-- Fails for a record that would be a prompt only because what belongs to another kind is null in it.
local function check_prompt(kept)
  for _, form in ipairs(FORMS) do
    if form.key ~= "prompt" and kept[form.key] ~= nil then
      bad.raise("it has a prompt, and '%s' is null: give it, or leave the key out if the record is a prompt only", form.key)
    end
  end
end

-- Returns the form of a record by its keys. kept: its values as they are written, nulls too.
local function form_of(fields, kept)
  local found
  for _, form in ipairs(FORMS) do
    if fields[form.key] ~= nil then
      local is_same = found and found.kind == "preferences" and form.kind == "preferences"
      if not found then
        found = form
      elseif form.key ~= "prompt" and not is_same then
        bad.raise("it has both '%s' and '%s', which belong to different kinds of records: leave one of them out", found.key,
                  form.key)
      end
    end
  end
  if not found or found.key == "prompt" then check_others(fields) end
  if not found then bad.raise("its keys are those of no known kind of record: give %s", KNOWN) end
  if found.kind == "prompts" then check_prompt(kept) end
  for _, key in ipairs(found.needed) do
    if fields[key] == nil then
      bad.raise("it has '%s', but no '%s': give {%s}", found.key, key, table.concat(found.needed, ", "))
    end
  end
  if found.kind == "preferences" and core.json.encode{fields.chosen} == core.json.encode{fields.rejected} then
    bad.raise "'chosen' and 'rejected' are equal, so neither is better: leave the record out"
  end
  return found
end

-- Returns the items of a kept list, or nil if it is none.
local function items_of(kept)
  local is_list, items = pcall(kept.items, kept)
  return is_list and items or nil
end

-- Returns whether a content, a text or a list of parts, has no text.
local function has_no_text(content)
  if type(content) == "string" then return not content:find "%S" end
  for _, part in ipairs(content or {}) do
    if part.text:find "%S" then return false end
  end
  return true
end

local function check_parts(content, kept, path)
  local items = items_of(kept)
  if not items then
    bad.raise("%s.content is an object: give a text, or a list of parts such as {\"type\": \"text\", \"text\": \"...\"}", path)
  end
  for place = 1, #items do
    local part = content[place]
    local kind = type(part) == "table" and part.type
    if kind ~= "text" or type(part.text) ~= "string" then
      bad.raise("%s.content[%d] has the type '%s', which is not known: give texts only, {\"type\": \"text\", \"text\": \"...\"}",
                path, place, tostring(kind or type(part)))
    end
  end
end

-- Returns {role =, kept = the message as it is written, has_answer = whether it says something, path =}.
local function turn_of(message, kept, path)
  if type(message) ~= "table" or items_of(kept) and kept:length() > 0 then
    bad.raise("%s is not an object: give messages such as {\"role\": \"user\", \"content\": \"...\"}", path)
  end
  if type(message.role) ~= "string" or message.role == "" then
    bad.raise("%s has no role: give \"role\": \"user\", \"assistant\", \"system\" or another one of the template", path)
  end
  local content, calls = message.content, message.tool_calls
  local has_calls = type(calls) == "table" and next(calls) ~= nil
  if type(content) == "table" then
    check_parts(content, kept:fields().content, path)
  elseif content == nil and not has_calls then
    bad.raise("%s has no content: give \"content\", a text", path)
  elseif content ~= nil and type(content) ~= "string" then
    bad.raise("%s.content is a %s, which is not known: give a text", path, type(content))
  end
  return {role = message.role, kept = kept, has_answer = has_calls or not has_no_text(content), path = path}
end

-- Appends the turns of a list of messages, or the one of a text in the given role.
local function add_turns(turns, value, kept, role, path)
  if type(value) == "string" then
    turns[#turns + 1] = {role = role, kept = {role = role, content = value}, has_answer = value:find "%S" ~= nil, path = path}
    return
  end
  local items = type(value) == "table" and items_of(kept)
  if not items then bad.raise("'%s' is neither a text nor a list of messages", path) end
  if #items == 0 then bad.raise("'%s' is an empty list: give at least one message", path) end
  for place, item in ipairs(items) do turns[#turns + 1] = turn_of(value[place], item, ("%s[%d]"):format(path, place)) end
end

-- Returns the turns of several keys after each other, and the place of the first turn of the last key.
local function joined(record, keys)
  local turns, start = {}, 1
  for _, each in ipairs(keys) do
    start = #turns + 1
    add_turns(turns, record.fields[each.key], record.kept[each.key], each.role, each.key)
  end
  return turns, start
end

-- Fails unless an answer begins with a message of the assistant.
local function check_answer(turns, start, key)
  if turns[start].role == "assistant" then return end
  bad.raise("the first message of '%s' has the role '%s', and an answer begins with one of the assistant: leave out what "
    .. "repeats the prompt", key, turns[start].role)
end

local function text_of(fields, key)
  local value = fields[key]
  if type(value) == "string" then return value end
  bad.raise("'%s' is a list of messages, which needs a chat template: give a text, or a folder with a template (without "
    .. "plain = true)", key)
end

local function check_alpaca(fields)
  for _, key in ipairs{"instruction", "input", "output"} do
    if fields[key] ~= nil and type(fields[key]) ~= "string" then bad.raise("'%s' must be a text", key) end
  end
end

local function has_input(fields) return fields.input ~= nil and fields.input ~= "" end

-- Sets record.prompt and record.answers = {text of each answer}, of a record whose texts are used as they are.
local function set_texts(record)
  local fields, form = record.fields, record.form
  if form.key == "messages" then
    bad.raise "'messages' need a chat template: give a folder with one (without plain = true), or {prompt, completion}"
  elseif form.key == "instruction" then
    record.prompt = has_input(fields) and ALPACA.with_input:format(fields.instruction, fields.input)
      or ALPACA.without:format(fields.instruction)
    record.answers = {{key = "output", text = fields.output}}
    return
  end
  record.prompt, record.answers = text_of(fields, "prompt"), {}
  for _, key in ipairs(form.needed) do
    if key ~= "prompt" then table.insert(record.answers, {key = key, text = text_of(fields, key)}) end
  end
end

-- Sets record.turns, and of records with one answer record.start: the place of its first turn. Preferences: record.chosen and
-- record.rejected have turns and start; record.turns is the prompt.
local function set_turns(record)
  local fields, key, prompt = record.fields, record.form.key, {key = "prompt", role = "user"}
  if key == "messages" then
    record.turns, record.start = joined(record, {{key = "messages", role = "user"}}), 1
  elseif key == "completion" then
    record.turns, record.start = joined(record, {prompt, {key = "completion", role = "assistant"}})
    check_answer(record.turns, record.start, "completion")
  elseif key == "instruction" then
    local user = fields.instruction .. (has_input(fields) and "\n\n" .. fields.input or "")
    record.turns, record.start = {}, 2
    add_turns(record.turns, user, nil, "user", "instruction")
    add_turns(record.turns, fields.output, nil, "assistant", "output")
  else
    record.turns = joined(record, {prompt})
    for _, name in ipairs(record.form.kind == "preferences" and {"chosen", "rejected"} or {}) do
      local turns, start = joined(record, {prompt, {key = name, role = "assistant"}})
      check_answer(turns, start, name)
      record[name] = {turns = turns, start = start}
    end
  end
end

local function tools_of(record)
  local tools = record.fields.tools
  if tools == nil then return nil end
  if type(tools) ~= "table" or not items_of(record.kept.tools) then bad.raise "'tools' must be a list of tools" end
  return record.kept.tools
end

--- Returns the record of a line: {kind =, line =, form =}, with `turns` for a template, or `prompt` and `answers` for texts that
-- are used as they are. Raises an error of the record if it is wrong.
function records.parse(line, is_plain)
  if line:find "%z" then bad.raise "it has a byte 0, as a file that was not written to its end: write it again" end
  local is_json, fields = pcall(core.json.decode, line)
  if not is_json then
    local reason = tostring(fields):gsub("^%S+:%d+: ", "")
    bad.raise("%s%s. Correct it: each line is one JSON object", reason:find "^not " and "it is " or "", reason)
  end
  local kept = bad.guard("it cannot be kept as it is", "Correct it", data.json, line, "the line")
  local is_object, kept_fields = pcall(kept.fields, kept)
  if not is_object then bad.raise "it is not a JSON object: give {...} in each line" end
  local record = {fields = fields, kept = kept_fields, line = line, form = form_of(fields, kept_fields)}
  record.kind = record.form.kind
  if record.form.key == "instruction" then check_alpaca(fields) end
  if is_plain then
    set_texts(record)
  else
    if type(fields.messages) == "string" then bad.raise "'messages' is a text: give a list of messages" end
    set_turns(record)
    record.tools = tools_of(record)
  end
  return record
end

return records
