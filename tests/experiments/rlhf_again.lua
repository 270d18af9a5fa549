-- Starts experiments of RLHF that are complete once more, as after a kill at the end: they measure again, and record nothing
-- twice. Arguments: the folder of the scripts, a folder for runs.
local zt = require "zt"

local scripts, folder = arg[1], arg[2]

local function start(script, ...)
  rawset(_G, "arg", {[0] = scripts .. "/" .. script .. ".lua", "--folder", folder, "--test", "8", ...})
  dofile(scripts .. "/" .. script .. ".lua")
  return zt.fs.read(("%s/%s/metrics.jsonl"):format(folder, script))
end

local model = folder .. "/sft"
for _, case in ipairs{{"sft", "--steps", "4"}, {"reward", "--steps", "4", "--model", model},
                      {"dpo", "--steps", "3", "--model", model},
                      {"grpo", "--iterations", "2", "--prompts", "4", "--model", model},
                      {"on_policy_distil", "--iterations", "2", "--prompts", "4", "--model", model, "--teacher", model}} do
  local first = start(case[1], "--overwrite", unpack(case, 2))
  local again = start(case[1], unpack(case, 2))
  assert(first == again, case[1] .. " records other metrics when it is started again")
  assert(first:find "accuracy", case[1] .. " has not recorded what it has measured")
end
