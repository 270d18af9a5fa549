--- Converts records for `ztoolkit tokenize --chat`: prints progress, the first records, warnings and a summary.

local core = require "zt.core"
local data = require "zt.data"
local progress_lines = require "zt.cmd.tokenize.progress_lines"
local shown = require "zt.data.chat.shown"

local WARNINGS = 5 -- records that are left out and told one by one
local PARTS = {preferences = {"prompt", "chosen", "rejected"}}

local function warn(message, ...) io.stderr:write("tokenize: warning: ", message:format(...), "\n") end

local function has_colours()
  local wish = os.getenv "NO_COLOR"
  return core.isatty(1) and (wish == nil or wish == "")
end

-- Returns a callback that prints the first records.
local function printer_of(count)
  local printed, colours = 0, has_colours()
  return function(kind, documents, tokenizer)
    if printed >= count then return end
    printed = printed + 1
    for place, document in ipairs(documents) do
      local part = PARTS[kind] and ", " .. PARTS[kind][place] or ""
      print(("== record %d%s: %d tokens, %d of them count"):format(printed, part, document.size, document.counted))
      print(shown.text(tokenizer, document, colours))
    end
  end
end

-- Returns a callback that tells the first records that are left out.
local function teller()
  local told = 0
  return function(message)
    told = told + 1
    if told <= WARNINGS then warn("left out %s", message) end
    if told == WARNINGS + 1 then warn "more records are wrong: they are counted below" end
  end
end

local function tell_stops(done)
  if done.answers == 0 or done.stopped == done.answers then return end
  if done.stopped > 0 then
    return warn("%d of %d answers have no stop token that counts: a model does not learn to end them",
                done.answers - done.stopped, done.answers)
  end
  local names = table.concat(done.tokenizer:pieces(done.stop_tokens), ", ")
  warn("none of the %d answers ends with a stop token that counts (%s), so a model does not learn to stop: check the chat "
    .. "template, and eos_token_id in generation_config.json", done.answers, names ~= "" and names or "the folder names none")
end

local function files_of(done, output)
  local of_tokenizer = done.tokenizer.kind == "tokenizer.json" and ".tokenizer.json" or ".model"
  local endings = {".mask.npy", ".offsets.npy", ".json", of_tokenizer}
  if done.kind == "prompts" then table.insert(endings, ".items.jsonl") end
  for place, ending in ipairs(endings) do endings[place] = output:gsub("%.npy$", ending) end
  return endings
end

--- Converts the records by the options of the command line.
return function(o)
  local started = core.now()
  local done = data.tokenize_chat{
    input = o.chat, output = o.output, model = o.model, mask = o.mask, plain = o.plain, max_tokens = o.max_tokens,
    skip_bad = o.skip_bad, limit = not o.output and o.show or nil, on_record = o.show and printer_of(o.show) or nil,
    on_bad = teller(), progress = o.output and progress_lines(started) or nil,
  }
  tell_stops(done)
  print(("%s%d records (%s), %d tokens, %.1f %% of them count, longest %d tokens, %d skipped, in %.1f s"):format(
    o.output and "wrote " .. o.output .. ": " or "", done.records, done.kind, done.tokens, 100 * done.counted / done.tokens,
    done.longest, done.skipped, core.now() - started))
  for _, file in ipairs(o.output and files_of(done, o.output) or {}) do print("wrote " .. file) end
end
