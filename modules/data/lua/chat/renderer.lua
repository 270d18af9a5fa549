--- Writes the turns of records by a chat template, and finds the answers in the text.

local bad = require "zt.data.chat.bad"
local data = require "zt.data"

local Renderer = {}
Renderer.__index = Renderer

local renderer = {}

--- Returns a renderer. chat: as of chat_folder.open.
function renderer.new(chat)
  local plain = chat.source:gsub("{#.-#}", "")
  return setmetatable({
    template = data.chat_template(chat.source, chat.name), variables = chat.variables, source = chat.source,
    has_blocks = plain:find "{%%[-+]?%s*generation%s*[-+]?%%}" ~= nil,
  }, Renderer)
end

--- Returns {text =, contents =, answers =} of the first `count` turns.
function Renderer:render(turns, count, tools, add_generation_prompt)
  local messages, variables = {}, self.variables
  for place = 1, count do messages[place] = turns[place].kept end
  if tools then
    variables = {tools = tools}
    for key, value in pairs(self.variables) do variables[key] = value end
  end
  return bad.guard("the chat template does not accept it", "Give what it asks for, or leave the record out", self.template.render,
                   self.template, messages, {variables = variables, add_generation_prompt = add_generation_prompt})
end

local function is_prefix(text, whole) return whole:sub(1, #text) == text end

-- Fails because the text of the turns before one of the assistant is not the beginning of a longer text.
local function refuse_prefix(turn, what, advice)
  bad.raise("%s: %s, so it is not known which tokens are its answer: %s", turn.path, what,
            advice or "use a template with {% generation %} blocks, or mask = 'last', or mask = 'all'")
end

--- Returns the bytes of the prompt that the turn at `place` answers. whole: the text that has to begin with it.
function Renderer:prompt_of(record, turns, place, whole)
  local prompt = self:render(turns, place - 1, record.tools, true)
  if not is_prefix(prompt.text, whole) then
    refuse_prefix(turns[place], "the template writes the messages before it in another way once it is there")
  end
  return #prompt.text
end

-- Returns the range of the answer at `place`, by the text with it as the last turn. whole: the text of all turns.
function Renderer:range_of(record, turns, place, whole)
  local until_it = place == #turns and whole or self:render(turns, place, record.tools, false)
  if not is_prefix(until_it.text, whole.text) then
    refuse_prefix(turns[place], "the template writes it in another way once there are messages after it")
  end
  return {self:prompt_of(record, turns, place, until_it.text), #until_it.text}
end

-- Returns the places of the turns that count.
local function targets_of(turns, start, mask)
  local targets = {}
  for place = mask == "completion" and start or 1, #turns do
    if turns[place].role == "assistant" then targets[#targets + 1] = place end
  end
  return mask == "last" and {targets[#targets]} or targets
end

-- Returns the ranges of the template's own blocks, from the byte `first` on.
local function blocks_from(ranges, first)
  local result = {}
  for _, range in ipairs(ranges) do
    if range[2] > first then result[#result + 1] = {math.max(range[1], first), range[2]} end
  end
  return result
end

local function check_says(turn)
  if not turn.has_answer then bad.raise("%s is an empty answer: leave the record out", turn.path) end
end

local function check_targets(turns, targets)
  if #targets == 0 then
    bad.raise("there is nothing to learn: it has no message of the assistant that counts. (A prompt to be answered is "
      .. "{\"prompt\": [messages]})")
  end
  for _, place in ipairs(targets) do check_says(turns[place]) end
end

-- Returns the ranges of the answers at the places `targets`.
function Renderer:ranges(record, targets, whole)
  local ranges, turns = {}, record.turns
  for number, place in ipairs(targets) do
    local range, before = self:range_of(record, turns, place, whole), ranges[number - 1]
    if range[1] == range[2] then bad.raise("%s is an empty answer: the template writes nothing of it", turns[place].path) end
    if before and range[1] < before[2] then
      refuse_prefix(turns[place], "the template does not write the end of the answer before it when it asks for this one")
    end
    ranges[number] = range
  end
  return ranges
end

--- Returns {text =, contents =, answers = the ranges of bytes that count, is_trimmed = whether what follows the last stop token
-- of an answer does not count}.
function Renderer:conversation(record, mask)
  local turns, start = record.turns, record.start
  local targets = targets_of(turns, start, mask)
  check_targets(turns, targets)
  local whole = self:render(turns, #turns, record.tools, false)
  local found = {text = whole.text, contents = whole.contents, answers = {}, is_trimmed = not self.has_blocks}
  if mask == "all" then
    found.answers, found.is_trimmed = {{0, #whole.text}}, false
  elseif self.has_blocks then
    local is_part = mask == "last" or (mask == "completion" and start > 1)
    found.answers = blocks_from(whole.answers, is_part and self:prompt_of(record, turns, targets[1], whole.text) or 0)
  else
    found.answers = self:ranges(record, targets, whole)
  end
  return found
end

--- Returns {text =, contents =} of the prompt of a record.
function Renderer:prompt(record)
  local turns = record.turns
  if turns[#turns].role == "assistant" then
    bad.raise("%s is an answer of the assistant, and the last message of a prompt is one to answer: leave it out",
              turns[#turns].path)
  end
  return self:render(turns, #turns, record.tools, true)
end

--- Returns {text =, contents =, from = the bytes of the prompt} of an answer {turns =, start =} to a prompt's text.
function Renderer:answer(record, answer, prompt)
  local turns = answer.turns
  for place = answer.start, #turns do
    local turn = turns[place]
    if turn.role == "assistant" then check_says(turn) end
  end
  local whole = self:render(turns, #turns, record.tools, false)
  if not is_prefix(prompt.text, whole.text) then
    refuse_prefix(turns[answer.start], "the template writes the prompt in another way once there is an answer",
                  "use a template that writes the prompt alike")
  end
  if #whole.text == #prompt.text then
    bad.raise("%s is an empty answer: the template writes nothing of it", turns[answer.start].path)
  end
  return {text = whole.text, contents = whole.contents, from = #prompt.text}
end

return renderer
