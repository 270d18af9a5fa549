--- Experience: the answers of a roll-out and what is known of their tokens. Every rank of the mesh holds all of it, with equal
-- bits: it is small beside the models, and so means, moments and the cut into batches do not depend on the ranks.
--
-- Sequences are ordered by the numbers of their prompts, then by copy. Numbers per token are float64 vectors over the tokens of
-- all answers, one answer after the other.

local class = require "zt.class"
local core = require "zt.core"
local fail = require "zt.fail"
local methods = require "zt.methods"
local share = require "zt.rlhf.answers.share"

local Experience = class "Experience"

-- The numbers per token, by which calls add them.
local MADE_BY = {
  sampled_logprobs = "rlhf.rollout", old_logprobs = "rlhf.score", ref_logprobs = "rlhf.score{reference = ...}",
  old_values = "rlhf.score{critic = ...}", correction = "rlhf.score{is = ...}", advantages = "rlhf.advantages",
  returns = "rlhf.advantages{kind = \"gae\"}",
}

--- parts: prompts, prompt_offsets, answers, answer_offsets, groups (the numbers of the prompts) and copies, int64 on the CPU;
-- truncated, a list of booleans; items, a list of tables or nothing; temperature, tokenizer, vocabulary, world.
function Experience:init(parts)
  for key, value in pairs(parts) do self[key] = value end
  self.count = parts.groups:numel()
  self.token_count = parts.answers:numel()
  self.of_tokens = {}
  self.rewards = nil -- float64 [count]
  self.is_kept = {}  -- false: the reward has dropped the sequence
  for i = 1, self.count do self.is_kept[i] = true end
  self.metrics = {}
end

--- Returns the numbers `name` per token, or fails with what makes them. call: what needs them.
function Experience:tokens_of(name, call)
  local found = self.of_tokens[name]
  if not found then fail("%s needs %s of the tokens, which %s gives", call, name, MADE_BY[name] or "an earlier call") end
  return found
end

-- Fails unless there is a sequence i.
local function check_number(self, i)
  if type(i) == "number" and i % 1 == 0 and i >= 1 and i <= self.count then return end
  fail("there is no sequence %s: those of this experience are numbered from 1 to %d", tostring(i), self.count)
end

--- Returns the place of the first token of answer i, from 1, among the tokens of all answers, and the number of its tokens.
function Experience:span(i)
  check_number(self, i)
  local first = self.answer_offsets[i - 1]:item()
  return first, self.answer_offsets[i]:item() - first
end

--- Returns the places of the tokens of sequences, by their numbers from 0, among the tokens of all answers.
function Experience:token_places(numbers)
  local chosen = core.tensor(numbers, {dtype = "int64"})
  local first, lengths = self.answer_offsets:index_select(0, chosen), self.answer_offsets:diff():index_select(0, chosen)
  local begins = lengths:cumsum(0) - lengths -- of each among the places that are returned
  local total = #numbers > 0 and lengths:sum():item() or 0
  return core.arange(total):to "int64" + (first - begins):repeat_interleave(lengths)
end

--- Returns the tokens of prompt i and of answer i, from 1, int64.
function Experience:prompt(i)
  check_number(self, i)
  local first = self.prompt_offsets[i - 1]:item()
  return self.prompts:narrow(0, first, self.prompt_offsets[i]:item() - first)
end

function Experience:answer(i)
  local first, count = self:span(i)
  return self.answers:narrow(0, first, count)
end

-- Returns the text of tokens. A model's vocabulary may have more of them than its tokenizer knows: these have no text.
local function text_of(tokenizer, tokens)
  return tokenizer:decode(tokens:masked_select(tokens:lt(tokenizer.vocab)))
end

--- Returns the texts of prompt i and of answer i without the token that ended it; nil without a tokenizer.
function Experience:texts(i)
  if not self.tokenizer then return nil, nil end
  local answer = self:answer(i)
  if not self.truncated[i] and answer:numel() > 0 then answer = answer:narrow(0, 0, answer:numel() - 1) end
  return text_of(self.tokenizer, self:prompt(i)), text_of(self.tokenizer, answer)
end

--- Returns which sequences count and have a token, as their numbers from 0.
function Experience:kept()
  local numbers = {}
  for i = 1, self.count do
    local _, tokens = self:span(i)
    if self.is_kept[i] and tokens > 0 then numbers[#numbers + 1] = i - 1 end
  end
  return numbers
end

--- Returns numbers per sequence, [count], at the tokens of their answers.
function Experience:spread(numbers)
  return numbers:index_select(0, self:sequence_of_token())
end

--- Returns the sums over the tokens of each answer, [count].
function Experience:sums(of_tokens)
  return core.zeros({self.count}, {dtype = "float64"}):index_add(0, self:sequence_of_token(), of_tokens)
end

--- Returns the number of the sequence of each token, int64.
function Experience:sequence_of_token()
  if not self.sequences then
    local lengths = self.answer_offsets:narrow(0, 1, self.count) - self.answer_offsets:narrow(0, 0, self.count)
    self.lengths = lengths
    self.sequences = core.arange(self.count):to "int64":repeat_interleave(lengths)
  end
  return self.sequences
end

--- Returns the mean over tokens of sequences that are kept.
function Experience:mean(of_tokens)
  local weights = self:spread(self:kept_mask())
  return (of_tokens * weights):sum():item() / math.max(weights:sum():item(), 1)
end

--- Returns 1 for sequences that are kept and 0 for others, float64 [count].
function Experience:kept_mask()
  local mask = {}
  for i, is_kept in ipairs(self.is_kept) do mask[i] = is_kept and 1 or 0 end
  return core.tensor(mask, {dtype = "float64"})
end

--- Returns the sum of a tensor over all ranks, each of which fills other elements of zeros.
function Experience:joined(tensor) return share.joined(self.world, tensor) end

--- Returns the options of rlhf.count_rows and rlhf.make_rows for the sequences with these numbers.
function Experience:row_options(numbers, seq, padding)
  return {prompts = self.prompts, prompt_offsets = self.prompt_offsets, answers = self.answers,
          answer_offsets = self.answer_offsets, chosen = core.tensor(numbers, {dtype = "int64"}), seq = seq, padding = padding}
end

--- Returns the tokens of the longest sequence.
function Experience:longest()
  if self.count == 0 then return 1 end
  local function sizes(offsets) return offsets:narrow(0, 1, self.count) - offsets:narrow(0, 0, self.count) end
  return (sizes(self.prompt_offsets) + sizes(self.answer_offsets)):max():item()
end

methods(Experience, "experience")

return Experience
