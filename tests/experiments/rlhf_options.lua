-- Runs scripts of scripts/exp/rlhf with options that have no effect together, or that lack another: each must say so before it
-- does anything. Arguments: the folder of the scripts, a folder for runs.
local zt = require "zt"

local scripts, folder = arg[1], arg[2]

-- {script, its words, what it says}
local CASES = {
  {"sft", "--lora-targets q", "--lora-targets names matrices with adapters: give --lora-rank, too"},
  {"sft", "--lora-rank 4", "--lora-rank trains adapters of a model that was trained: give --model"},
  {"sft", "--model x --layers 3", "--layers is for a new model, and --model has its own"},
  {"sft", "--tokenizer x", "--tokenizer is that of --data"},
  {"sft", "--skip-bad", "--skip-bad is for records of a .jsonl file"},
  {"sft", "--data x.npy --skip-bad", "--skip-bad is for records of a .jsonl file"},
  {"sft", "--data x.npy --test 5", "--test is for the task of sorting"},
  {"sft", "--data x.jsonl", "--data needs --lr, the peak learning rate"},
  {"sft", "--data x.jsonl --lr 1", "--data needs --seq for a new model"},
  {"sft", "--data x.jsonl --lr 1 --seq 8", "--data is text, and a tokenizer is needed: give --tokenizer"},
  {"sft", "--lora-alpha 3", "--lora-alpha is of adapters: give --lora-rank, too"},
  {"sft", "--pack nf4", "--pack is for matrices that are frozen beside adapters: give --lora-rank, too"},
  {"dpo", "--data x.jsonl --lr 1", "--data needs --model, the model to start from"},
  {"grpo", "--data x.jsonl --lr 1", "--data needs --max-tokens, the most tokens of an answer"},
  {"ppo", "--data x.jsonl --lr 1 --critic-lr 1 --max-tokens 4 --model y", "--data needs --reward: the run of reward.lua"},
  {"on_policy_distil", "--data x.jsonl --lr 1 --max-tokens 4 --model y", "--data needs --teacher, the model to learn from"},
  {"grpo", "--kind rloo --scale none", "--scale divides advantages of --kind group: leave it out"},
  {"grpo", "--kl-estimator k2", "--kl-estimator estimates the divergence of --kl: give that, too"},
  {"grpo", "--gather-layers", "--gather-layers is how --stage 3 samples"},
  {"grpo", "--stage 3 --tensor 2 --gather-layers", "--gather-layers is how --stage 3 samples"},
  {"ppo", "--ptx 2", "--ptx is the coefficient of --ptx-data: give that, too"},
  {"ppo", "--ptx-batch 2", "--ptx-batch is of --ptx-data: give that, too"},
  {"ppo", "--critic-lora-targets q", "--critic-lora-targets names matrices with adapters: give --critic-lora-rank, too"},
  {"ppo", "--reward x.lua", "--reward is a function, and the critic begins as a reward model by default: give --critic"},
  {"lora", "--lora-rank 0", "lora.lua trains adapters, so --lora-rank must be above 0"},
}

for _, case in ipairs(CASES) do
  local script, words, text = unpack(case)
  local arguments = {[0] = ("%s/%s.lua"):format(scripts, script), "--folder", folder}
  for word in words:gmatch "%S+" do arguments[#arguments + 1] = word end
  rawset(_G, "arg", arguments)
  local is_done, message = pcall(dofile, arguments[0])
  assert(not is_done and tostring(message):find(text, 1, true), ("%s %s: %s"):format(script, words, tostring(message)))
end
assert(not zt.exists(folder), "a script that refuses its options leaves a folder")
