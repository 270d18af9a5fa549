--- What a rank of a test does: runs variants of a case and gives their outcomes. Started by ranks.run.
local ranks, zt = require "zt.ranks", require "zt"

-- Bits are promised for a fixed number of threads. Without this it would follow from the number of ranks.
if not os.getenv "OMP_NUM_THREADS" then zt.set_num_threads(1) end

local task = ranks.task()
local run, case = assert(loadstring(task.script, "=case"))()
local results = {}
for i, variant in ipairs(task.variants) do
  results[i] = variant.differences and require("differences").check(case, variant) or run(variant)
end
ranks.give(results)
