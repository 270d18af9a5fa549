--- rlhf.reject(experience, {keep = 1}): keeps the best answers to each prompt (rejection sampling, best of n).

local check = require "zt.check"
local class = require "zt.class"
local Experience = require "zt.rlhf.answers.experience"
local fail = require "zt.fail"
local share = require "zt.rlhf.answers.share"

local NAME = "rlhf.reject"
local SCHEMA = {
  {"keep", "integer", "answers to each prompt that are kept", default = 1, at_least = 1},
  {"least", "number", "answers with less reward are dropped, too"},
  {"truncated", "boolean", "keep answers that no stop token ends", default = false},
}

-- Returns the numbers, from 1, of the sequences of each prompt, best first; of equal ones the first copy.
local function ranked(experience, o)
  local rewards, groups, by_group, order = experience.rewards:tolist(), experience.groups:tolist(), {}, {}
  for i = 1, experience.count do
    local group = groups[i]
    if not by_group[group] then
      by_group[group] = {}
      order[#order + 1] = group
    end
    local is_whole = o.truncated or not experience.truncated[i]
    local is_good = not o.least or rewards[i] >= o.least
    if experience.is_kept[i] and is_whole and is_good then table.insert(by_group[group], i) end
  end
  for _, group in ipairs(order) do
    table.sort(by_group[group], function(a, b)
      if rewards[a] ~= rewards[b] then return rewards[a] > rewards[b] end
      return a < b
    end)
  end
  return by_group, order
end

--- Drops all answers but the best `keep` to each prompt, so that later calls and rlhf.batches see these only: a model with a loss
-- of labels, such as nn.lm_loss, learns them. Returns the experience.
-- Collective over the ranks of the experience.
local function reject(experience, value)
  if not class.is(experience, Experience) then
    fail("%s takes what rlhf.rollout returns as its first argument, got %s", NAME, check.type_name(experience))
  end
  local o = share.options(experience.world, NAME, SCHEMA, value or {})
  if not experience.rewards then fail("%s needs rewards, which rlhf.score{reward = ...} gives", NAME) end
  local by_group, order = ranked(experience, o)
  local kept = 0
  for i = 1, experience.count do experience.is_kept[i] = false end
  for _, group in ipairs(order) do
    for place = 1, math.min(o.keep, #by_group[group]) do
      experience.is_kept[by_group[group][place]] = true
      kept = kept + 1
    end
  end
  if kept == 0 then
    fail("%s: no answer is left: all were dropped%s%s", NAME, o.truncated and "" or " or truncated",
         o.least and (" or had less reward than %g"):format(o.least) or "")
  end
  return experience
end

return reject
