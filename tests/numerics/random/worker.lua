--- What a rank of a test does: runs variants of a case and gives their outcomes. Started by ranks.run.
local ranks = require "zt.ranks"

local task = ranks.task()
local run, case = assert(loadstring(task.script, "=case"))()
local results = {}
for i, variant in ipairs(task.variants) do
  results[i] = variant.differences and require("differences").check(case, variant) or run(variant)
end
ranks.give(results)
