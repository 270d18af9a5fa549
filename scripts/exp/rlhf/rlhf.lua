-- All of it, on the task of sorting digits: supervised fine-tuning, a reward model, best of 8, DPO, PPO, GRPO, GRPO of adapters
-- and on-policy distillation, and a table of what each reaches. The scripts beside this one do the work; each can run by itself.
--
--   ztoolkit run -n 2 scripts/exp/rlhf/rlhf.lua --folder runs/rlhf
package.path = (arg[0]:match "^(.*/)[^/]*$" or "./") .. "?.lua;" .. package.path
local experiment, models = require "parts.experiment", require "parts.models"
local records, rollouts = require "parts.records", require "parts.rollouts"
local sort = require "parts.sort"
local zt = require "zt"
local ckpt, rlhf = require "zt.ckpt", require "zt.rlhf"

local o = zt.cli{name = "rlhf", about = "Every method of RLHF on the task of sorting digits, and a table.", options = {
  {"folder", "runs/rlhf", "the parent folder of the runs"},
  {"seed", 1, "of data, samples and new parameters", at_least = 0},
  {"test", 1000, "unseen prompts that each model answers", at_least = 1},
  {"stage", 1, "ZeRO stage", between = {0, 3}},
  {"scale", 1, "the share of the steps and iterations of each script that are made", type = "number", above = 0},
  {"overwrite", false, "begin all runs anew"},
}}
local rows = {}

-- Runs a script with these options and notes what it reaches. name: in the table; steps: the option that counts its steps.
local function run(name, script, steps, arguments)
  local began, words = zt.now(), {"--folder", o.folder, "--seed", o.seed, "--stage", o.stage, "--" .. steps[1],
                                  math.max(math.ceil(steps[2] * o.scale), 1)}
  for _, word in ipairs(arguments or {}) do words[#words + 1] = word end
  if script ~= "reward.lua" then
    words[#words + 1], words[#words + 2] = "--test", o.test
  end
  if o.overwrite then words[#words + 1] = "--overwrite" end
  experiment.say("%s", name)
  experiment.run(script, words)
  rows[#rows + 1] = {name, experiment.result.accuracy, zt.now() - began, experiment.result.trained}
  return experiment.result.run
end

-- Notes how often the best of 8 samples by the reward model is right.
local function best_of_8(policy, reward)
  local began = zt.now()
  local options = {stage = o.stage, precision = "fp32", seq = 64, test = o.test, folder = o.folder}
  local mesh, base = experiment.mesh(), ckpt.pretrained(policy)
  local trainer = models.frozen(options, mesh, base, "logprobs")
  options.reward = reward
  local scorer = rollouts.reward(options, mesh, base)
  local engine = models.engine(options, trainer, base.tokenizer, base.stop_tokens)
  local answers = records.unseen(options, mesh, engine, 8)
  rlhf.score(answers, {reward = scorer, rows = 64, seq = 96})
  rlhf.reject(answers, {keep = 1})
  local kept = answers.is_kept
  rlhf.score(answers, {reward = sort.reward})
  local right, count = 0, 0
  for i, is_kept in ipairs(kept) do
    if is_kept then right, count = right + answers.rewards[i - 1]:item(), count + 1 end
  end
  rows[#rows + 1] = {"best of 8 by it", right / count, zt.now() - began}
end

local began = zt.now()
local sft = run("SFT", "sft.lua", {"steps", 400})
local reward = run("reward model (pairs)", "reward.lua", {"steps", 100}, {"--model", sft})
best_of_8(sft, reward)
run("DPO", "dpo.lua", {"steps", 100}, {"--model", sft})
run("PPO", "ppo.lua", {"iterations", 60}, {"--model", sft, "--reward", reward})
local grpo = run("GRPO", "grpo.lua", {"iterations", 60}, {"--model", sft})
run("GRPO of adapters", "lora.lua", {"iterations", 80}, {"--model", sft})
run("on-policy distillation of GRPO", "on_policy_distil.lua", {"iterations", 40}, {"--model", sft, "--teacher", grpo})

local lines = {{"method", "right", "trained", "seconds"}}
for _, row in ipairs(rows) do
  lines[#lines + 1] = {row[1], ("%.3f"):format(row[2]), row[4] and ("%.1f %%"):format(100 * row[4]) or "all",
                       ("%.0f"):format(row[3])}
end
experiment.say("\n%s\nall: %.0f seconds on %d ranks", zt.text.columns(lines), zt.now() - began, zt.world.size)
experiment.result = {rows = rows}
