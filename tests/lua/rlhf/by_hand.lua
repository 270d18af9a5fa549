--- Experience made by hand, for tests: answers and what is known of them, without an engine.
local zt = require "zt"
local Experience = require "zt.rlhf.answers.experience"

local by_hand = {}

local function int64(list) return zt.tensor(list, {dtype = "int64"}) end

-- Returns the lists one after the other, and where each begins.
local function joined(lists, dtype)
  local all, offsets = {}, {0}
  for i, list in ipairs(lists) do
    for _, each in ipairs(list) do all[#all + 1] = each end
    offsets[i + 1] = #all
  end
  return zt.tensor(all, {dtype = dtype or "int64"}), int64(offsets)
end

--- Returns an experience. prompts, answers: lists of lists of tokens, n answers to each prompt one after the other. more:
-- rewards, a list; of_tokens, numbers per token by name, lists of lists; vocabulary.
function by_hand.experience(prompts, answers, more)
  local n, of_answers, groups, copies, truncated = #answers / #prompts, {}, {}, {}, {}
  for i = 1, #answers do
    local group = math.floor((i - 1) / n)
    of_answers[i], groups[i], copies[i], truncated[i] = prompts[group + 1], group, (i - 1) % n, false
  end
  local parts = {groups = int64(groups), copies = int64(copies), truncated = truncated, items = {}, n = n, temperature = 1,
                 vocabulary = more.vocabulary or 7}
  parts.prompts, parts.prompt_offsets = joined(of_answers)
  parts.answers, parts.answer_offsets = joined(answers)
  local experience = Experience(parts)
  experience.rewards = more.rewards and zt.tensor(more.rewards, {dtype = "float64"})
  for name, lists in pairs(more.of_tokens or {}) do
    experience.of_tokens[name] = joined(lists, "float64")
  end
  return experience
end

return by_hand
