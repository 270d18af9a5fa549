-- Runs scripts/exp/rlhf/rlhf.lua with few steps, and checks what each method reaches. Arguments: the script, a folder.
local zt = require "zt"

-- By method: the least share of right answers after so few steps.
local LEAST = {
  ["SFT"] = 0.35, ["reward model (pairs)"] = 0.95, ["best of 8 by it"] = 0.75, ["DPO"] = 0.7, ["PPO"] = 0.3, ["GRPO"] = 0.7,
  ["GRPO of adapters"] = 0.65, ["on-policy distillation of GRPO"] = 0.65,
}
local script, folder = arg[1], arg[2]
rawset(_G, "arg", {[0] = script, "--folder", folder, "--scale", "0.3", "--test", "200", "--overwrite"})
dofile(script)
local seen = 0
for _, row in ipairs(require("parts.experiment").result.rows) do
  local name, right = row[1], row[2]
  local least = LEAST[name] or 2
  assert(right >= least, ("%s is right in %.3f, and should be in %.2f"):format(name, right, least))
  seen = seen + 1
end
assert(seen == 8)

-- The reward of PPO rises.
local first, last
for line in zt.fs.read(folder .. "/ppo/metrics.jsonl"):gmatch "[^\n]+" do
  local reward = zt.json.decode(line).reward
  if reward then first, last = first or reward, reward end
end
assert(last > first, ("the reward of PPO goes from %.3f to %.3f"):format(first, last))
