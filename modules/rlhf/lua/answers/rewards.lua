--- Rewards of answers by a function in Lua.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local items = require "zt.rlhf.answers.items"
local log = require "zt.log"
local share = require "zt.rlhf.answers.share"

local MOST_SHOWN = 300 -- bytes of a prompt and of an answer in a message

local function shortened(text)
  if not text then return "(tokens)" end
  return #text <= MOST_SHOWN and text or text:sub(1, MOST_SHOWN) .. "..."
end

-- Returns what an error says. One with a __tostring of its own may fail at that.
local function text_of(failure)
  local is_text, text = pcall(tostring, failure)
  return is_text and text or "its error is " .. check.type_name(failure) .. " whose text cannot be made"
end

-- Returns the function's reward for sequence i, from 1; nil drops the sequence. The function gets copies, so that what it writes
-- into them reaches neither the experience nor the other answers to the prompt, some of which other ranks judge.
local function reward_of(experience, fn, i)
  local prompt, answer = experience:texts(i)
  local is_done, reward = pcall(fn, prompt, answer, items.copied(experience.items[i]), experience:answer(i):clone())
  local function refuse(what)
    fail("rlhf.score: the reward function %s\n  prompt: %s\n  answer: %s", what,
         shortened(prompt or core.json.encode(experience:prompt(i):tolist())),
         shortened(answer or core.json.encode(experience:answer(i):tolist())))
  end
  if not is_done then
    refuse("failed: " .. text_of(reward) .. (experience.tokenizer and "" or "\n  (the engine has no tokenizer, so prompt and "
      .. "answer are nil: give infer.engine{tokenizer = ...}, or use the fourth argument, the tokens)"))
  end
  if type(reward) == "boolean" then refuse "returned a boolean: let it return a number, such as 1 or 0" end
  if reward ~= nil and type(reward) ~= "number" then
    refuse(("returned %s: let it return a number, or nil to drop the answer"):format(check.type_name(reward)))
  end
  if reward and (reward ~= reward or math.abs(reward) == math.huge) then
    refuse(("returned %s: let it return a finite number, or nil to drop the answer"):format(reward))
  end
  return reward
end

local warned = setmetatable({}, {__mode = "k"}) -- functions

-- Fails if a function can read nothing but texts, and there are none. One that takes the item, too, may do without.
local function check_texts(experience, fn)
  local about = debug.getinfo(fn, "u")
  if experience.tokenizer or about.isvararg or about.nparams == 0 or about.nparams > 3 then return end
  local what = "rlhf.score: the engine has no tokenizer, so the reward function gets no texts, prompt and answer are nil: give "
    .. "infer.engine{tokenizer = ...}, such as the field tokenizer of ckpt.pretrained, or let the function take a fourth "
    .. "argument, the answer's tokens"
  if about.nparams < 3 then fail("%s", what) end
  if warned[fn] or core.world.rank > 0 then return end
  warned[fn] = true
  log.warn("%s", what)
end

--- Returns the rewards of all sequences, float64 [count], and which are kept, a list. Each rank calls the function for its part
-- of those that no earlier call has dropped. Collective.
return function(experience, fn)
  local world = experience.world
  local rank, size = world and world.rank or 0, world and world.size or 1
  share.together(world, function() check_texts(experience, fn) end)
  local rewards = core.zeros({experience.count}, {dtype = "float64"})
  local dropped = core.zeros({experience.count}, {dtype = "int64"})
  share.together(world, function()
    for i = rank + 1, experience.count, size do
      local reward = experience.is_kept[i] and reward_of(experience, fn, i)
      if reward then rewards[i - 1] = reward else dropped[i - 1] = 1 end
    end
  end)
  local is_kept, kept = {}, 0
  for i, each in ipairs(experience:joined(dropped):tolist()) do
    is_kept[i] = each == 0
    kept = kept + 1 - each
  end
  if kept == 0 then
    fail("rlhf.score: the reward function has dropped all %d answers, since it returned nil for each: let it return a number",
      experience.count)
  end
  return experience:joined(rewards), is_kept
end
