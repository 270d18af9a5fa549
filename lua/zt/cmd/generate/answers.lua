--- Prints the answers of `ztoolkit generate` in the order of their requests, each as soon as those before it are printed.

local core     = require "zt.core"
local fail     = require "zt.fail"
local progress = require "zt.run.progress"
local text     = require "zt.text"

local Answers = {}
Answers.__index = Answers

-- The fields of an answer that are lists. An empty table of Lua does not tell a list from an object.
local LISTS = {tokens = true, logprobs = true, prompt_logprobs = true}

-- With whole buffers, a flush tells whether the output was written. The C library hides the errors of lines.
io.stdout:setvbuf "full"

--- Prints on rank 0. Fails if the output cannot be written, as on a full disk.
local function say(...)
  if core.world.rank ~= 0 then return end
  local is_written, reason = io.stdout:write(...)
  if is_written then is_written, reason = io.stdout:flush() end
  if not is_written then fail("cannot write the output: %s", tostring(reason)) end
end

--- Returns the line of JSON for an answer.
local function line_of(answer)
  local keys = {}
  for key in pairs(answer) do keys[#keys + 1] = key end
  table.sort(keys)
  for place, key in ipairs(keys) do
    local value = answer[key]
    local is_empty_list = LISTS[key] and next(value) == nil
    keys[place] = core.json.encode(key) .. ":" .. (is_empty_list and "[]" or core.json.encode(value))
  end
  return "{" .. table.concat(keys, ",") .. "}"
end

--- Returns a bar that counts answers, with their tokens per second.
local function bar_of(total, out)
  local bar = progress.new{name = "generate", total = total, is_terminal = true, every = 1, out = out, now = core.now}
  function bar.describe(self, done, left)
    local rate = self.latest.tokens_per_second
    return ("%d of %d answers%s%s"):format(done, total, rate and ("  %s tokens/s"):format(text.count(rate)) or "",
                                           left and ("  %s left"):format(text.duration(left)) or "")
  end
  return bar
end

--- Returns a printer. Options: `requests`, of which each has `n`; `lines`, which name them in messages, or nil; `is_json`;
-- `has_text`, whether there is a tokenizer; `is_printed`, whether the text of the only answer is printed already; `total`, the
-- number of answers; `is_watched`, whether progress is shown on `errors`, which has `write` and `flush`.
local function new(options)
  local self = setmetatable({
    requests = options.requests, lines = options.lines, is_json = options.is_json, has_text = options.has_text,
    is_printed = options.is_printed, total = options.total, errors = options.errors or io.stderr, begin = core.now(),
    ready = {}, place = 1, copy = 0, done = 0, tokens = 0, first_seconds = {}, failed = 0,
  }, Answers)
  if options.is_watched then
    self.bar = bar_of(self.total, self.errors)
    self.bar:update(0, {})
  end
  return self
end

function Answers:print(answer)
  if self.is_json then
    say(line_of(answer), "\n")
  elseif not self.is_printed then
    if self.total > 1 then say(("== request %d, answer %d\n"):format(answer.request, answer.copy + 1)) end
    say(self.has_text and answer.text or table.concat(answer.tokens, " "), "\n")
  end
  if not answer.error then return end
  self.failed = self.failed + 1
  if self.bar then self.bar:close() end
  local name = self.lines and self.lines[answer.request]
  if core.world.rank == 0 then self.errors:write("generate: ", name and name .. ": " or "", answer.error, "\n") end
end

--- Takes an answer whose `request` is a place in the list, and prints what is next in the order of the list.
function Answers:add(answer)
  self.done, self.tokens = self.done + 1, self.tokens + #answer.tokens
  if #answer.tokens > 0 then table.insert(self.first_seconds, answer.first_seconds) end
  local ready = self.ready
  ready[answer.request] = ready[answer.request] or {}
  ready[answer.request][answer.copy] = answer
  while ready[self.place] and ready[self.place][self.copy] do
    self:print(ready[self.place][self.copy])
    self.copy = self.copy + 1
    if self.copy == self.requests[self.place].n then
      ready[self.place] = nil
      self.place, self.copy = self.place + 1, 0
    end
  end
  if self.bar then self.bar:update(self.done, {tokens_per_second = self.tokens / (core.now() - self.begin)}) end
end

--- Returns the line of rates: of all tokens, and after which time answers had their first token. This time includes the time that
-- a request waits for those before it.
function Answers:rates(seconds)
  local first = self.first_seconds
  table.sort(first)
  local line = ("%s tokens in %.2f s, %.1f tokens/s"):format(text.count(self.tokens), seconds, self.tokens / seconds)
  if #first == 0 then return line end
  if #first == 1 then return ("%s, the first after %.2f s"):format(line, first[1]) end
  return ("%s, the first after %.2f s; an answer's first, with the wait for earlier requests: median %.2f s, longest %.2f s")
    :format(line, first[1], first[math.ceil(#first / 2)], first[#first])
end

--- Ends the progress and prints the rates on rank 0. Returns whether all answers are complete.
function Answers:finish()
  if self.bar then self.bar:close() end
  if core.world.rank == 0 then self.errors:write(self:rates(core.now() - self.begin), "\n") end
  return self.failed == 0
end

return {new = new, say = say, line_of = line_of}
