--- zt.data.tokenize_chat{input =, model =, ...}: converts records of JSONL to documents with a mask.

local bad = require "zt.data.chat.bad"
local chat_folder = require "zt.data.chat_folder"
local check = require "zt.check"
local data = require "zt.data"
local documents = require "zt.data.chat.documents"
local fail = require "zt.fail"
local records = require "zt.data.chat.records"
local renderer = require "zt.data.chat.renderer"

local OPTIONS = {
  {"input", "string", "the records, one JSON object per line", required = true},
  {"model", "string", "a folder of Hugging Face, which may be without a model", required = true},
  {"output", "string", "the token file, NAME.npy; when absent, nothing is written"},
  {"mask", "string", "which tokens of conversations count; default: completion",
   one_of = {"all", "completion", "assistant", "last"}},
  {"plain", "boolean", "texts are used as they are, also if the folder has a chat template", default = false},
  {"max_tokens", "integer", "a record with more tokens is an error", at_least = 1},
  {"skip_bad", "boolean", "leaves out records that are wrong", default = false},
  {"limit", "integer", "stops after so many records", at_least = 1},
  {"on_record", "function", "function(kind, documents, tokenizer), called for each record"},
  {"on_bad", "function", "function(message), called for each record that is left out"},
  {"progress", "function", "function(bytes done, bytes in total)"},
}

-- The work on one file.
local Work = {}
Work.__index = Work

-- Returns the folder, and the renderer of its template; nil for texts that are used as they are.
local function open_folder(o)
  local folder = chat_folder.open(o.model)
  local is_plain = o.plain or not folder.chat
  local reason = o.plain and "plain" or ("that '%s' has no chat template"):format(o.model)
  if is_plain and (o.mask == "assistant" or o.mask == "last") then
    fail("mask = '%s' needs messages, and with %s there are only texts: leave it out, or give a folder with a template", o.mask,
         reason)
  end
  if is_plain and not folder.end_token then
    fail("'%s' does not say which token ends a text, and without a chat template it ends each answer: add eos_token to "
      .. "tokenizer_config.json, or eos_token_id to generation_config.json", o.model)
  end
  return folder, not is_plain and renderer.new(folder.chat) or nil
end

local function new_work(o)
  local folder, template = open_folder(o)
  return setmetatable({
    o = o, folder = folder, template = template, lines = data.lines(o.input),
    documents = documents.new(folder, template, o.mask or "completion"), records = 0, tokens = 0, counted = 0, longest = 0,
    skipped = 0, answers = 0, stopped = 0,
  }, Work)
end

-- Sets the kind of the file by its first record. Fails for a later record of another kind.
function Work:check_kind(record)
  if self.kind and record.kind ~= self.kind then
    bad.raise("its keys are those of %s, and the records before it are %s: keep each kind in a file of its own", record.kind,
              self.kind)
  end
  if self.kind then return end
  if self.o.mask and record.kind ~= "conversations" then
    fail("mask = '%s' has no meaning with %s, in which %s: leave it out", self.o.mask, record.kind,
         record.kind == "prompts" and "no token counts" or "the answers count")
  end
  self.kind = record.kind
end

-- Returns the documents of a line and the tokens of its longest text.
function Work:convert(line)
  local record = records.parse(line, self.template == nil)
  self:check_kind(record)
  local list, size = self.documents:of(record)
  local most = self.o.max_tokens
  if most and size > most then
    bad.raise("it has %d tokens, more than the %d that are allowed: shorten it, leave it out, or allow more", size, most)
  end
  return list, size
end

function Work:write(list, line)
  if not self.o.output then return end
  self.writer = self.writer or data.document_writer{
    input = self.o.input, output = self.o.output, tokenizer = self.folder.tokenizer, items = self.kind == "prompts",
  }
  for _, document in ipairs(list) do self.writer:add(document.tokens, document.mask) end
  if self.kind == "prompts" then self.writer:add_item(line) end
end

function Work:count(list, size)
  self.records, self.longest = self.records + 1, math.max(self.longest, size)
  for _, document in ipairs(list) do
    self.tokens, self.counted = self.tokens + document.size, self.counted + document.counted
    self.answers, self.stopped = self.answers + document.answers, self.stopped + document.stopped
  end
end

function Work:take(line)
  local is_right, list, size = pcall(self.convert, self, line)
  if not is_right then
    if not bad.is(list) then error(list, 0) end
    local message = ("line %d of %s: %s"):format(self.lines.number, self.o.input, tostring(list))
    if not self.o.skip_bad then fail("%s (skip_bad = true leaves out such records)", message) end
    self.skipped = self.skipped + 1
    if self.o.on_bad then self.o.on_bad(message) end
    return
  end
  self:write(list, line)
  self:count(list, size)
  if self.o.on_record then self.o.on_record(self.kind, list, self.folder.tokenizer) end
end

local MASKS = {preferences = "completion", prompts = "none"}

function Work:run()
  local o, lines = self.o, self.lines
  for line in lines.next, lines do
    if line:find "%S" then self:take(line) end
    if o.progress then o.progress(lines.done, lines.size) end
    if o.limit and self.records == o.limit then break end
  end
  if self.records == 0 then
    fail("%s has no record%s: give a JSON object in each line", o.input, self.skipped > 0 and " that is right" or "")
  end
  if not self.writer then return end
  self.writer:commit{
    lines = lines, kind = self.kind, mask_of = MASKS[self.kind] or o.mask or "completion", records = self.records,
    template = self.template and self.template.source, stop_tokens = self.folder.stop_tokens,
  }
end

return function(given)
  local o = check.options("data.tokenize_chat", OPTIONS, given)
  if o.output and o.limit then fail "data.tokenize_chat.limit is for a look at the first records: leave it or output out" end
  local work = new_work(o)
  local is_done, failure = pcall(work.run, work)
  if work.writer then work.writer:discard() end
  if not is_done then error(failure, 0) end
  return {kind = work.kind, records = work.records, tokens = work.tokens, counted = work.counted, longest = work.longest,
          skipped = work.skipped, answers = work.answers, stopped = work.stopped, stop_tokens = work.folder.stop_tokens,
          tokenizer = work.folder.tokenizer}
end
