--- Converts records to documents: tokens, and which of them count.

local bad = require "zt.data.chat.bad"

local Documents = {}
Documents.__index = Documents

local documents = {}

-- Returns the tokens that the tokenizer puts before a text, such as the one of its beginning.
local function begin_of(tokenizer)
  local text = tokenizer:encode "a":tolist()
  local added = tokenizer:encode("a", {specials = "added"}):tolist()
  for first = 1, #added - #text + 1 do
    local is_here = true
    for place, id in ipairs(text) do is_here = is_here and added[first + place - 1] == id end
    if is_here then return {unpack(added, 1, first - 1)} end
  end
  return {}
end

--- Returns a converter. folder: of chat_folder.open; renderer: nil for texts that are used as they are.
function documents.new(folder, renderer, mask)
  return setmetatable({folder = folder, tokenizer = folder.tokenizer, renderer = renderer, mask = mask,
                       begin = renderer and {} or begin_of(folder.tokenizer)}, Documents)
end

-- Returns a document of a text: what tokenizer:encode_answers returns for the options, and the number of `answers`.
function Documents:encode(text, options)
  options.stop_tokens = self.folder.stop_tokens
  local tokenizer = self.tokenizer
  local document = bad.guard("it cannot be encoded", "Leave it out", tokenizer.encode_answers, tokenizer, text, options)
  if document.size == 0 then bad.raise "it has no tokens: its texts are empty" end
  document.answers = #(options.answers or {})
  return document
end

function Documents:check_counts(document)
  if document.counted > 0 then return document end
  bad.raise("there is nothing to learn: no token counts%s", self.renderer and self.renderer.has_blocks
    and ", since the {% generation %} blocks of the template hold nothing of it" or "")
end

function Documents:conversation(record)
  local found = self.renderer:conversation(record, self.mask)
  local document = self:encode(found.text, {contents = found.contents, answers = found.answers, ends_at_stop = found.is_trimmed})
  return {self:check_counts(document)}
end

function Documents:prompt(record)
  local prompt = self.renderer:prompt(record)
  return {self:encode(prompt.text, {contents = prompt.contents})}
end

function Documents:preference(record)
  local prompt = self.renderer:prompt(record)
  local list = {self:encode(prompt.text, {contents = prompt.contents})}
  for _, key in ipairs{"chosen", "rejected"} do
    local answer = self.renderer:answer(record, record[key], prompt)
    list[#list + 1] = self:encode(answer.text, {contents = answer.contents, from = answer.from, ends_at_stop = true,
                                                answers = {{answer.from, #answer.text}}})
  end
  return list
end

-- Returns the documents of texts that are used as they are. What they say never becomes a special token.
function Documents:plain(record)
  local prompt, list = record.prompt, {}
  if record.kind ~= "conversations" then
    list[1] = self:encode(prompt, {contents = {{0, #prompt}}, begin = self.begin})
  end
  for _, answer in ipairs(record.answers) do
    if not answer.text:find "%S" then bad.raise("'%s' is an empty answer: leave the record out", answer.key) end
    local text = prompt .. answer.text
    local options = {contents = {{0, #text}}, answers = {{#prompt, #text}}, end_token = self.folder.end_token}
    if record.kind == "preferences" then
      options.from = #prompt
    else
      options.begin, options.counts_all = self.begin, self.mask == "all"
    end
    list[#list + 1] = self:check_counts(self:encode(text, options))
  end
  return list
end

-- Returns how many tokens a model reads at once of a record: an answer comes after the prompt.
local function longest_of(record, list)
  local size = list[1].size
  return record.kind == "preferences" and size + math.max(list[2].size, list[3].size) or size
end

--- Returns the documents of a record, as of tokenizer:encode_answers, and the tokens of the longest text in it. Raises an error
-- of the record.
function Documents:of(record)
  local list
  if not self.renderer then list = self:plain(record)
  elseif record.kind == "conversations" then list = self:conversation(record)
  elseif record.kind == "preferences" then list = self:preference(record)
  else list = self:prompt(record) end
  return list, longest_of(record, list)
end

return documents
