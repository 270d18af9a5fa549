-- Tests what a trainer says of a step: planned and measured memory.
local lu = require "luaunit"
local zt = require "zt"
local nn, optim = require "zt.nn", require "zt.optim"

local TestReports = {}

-- The tensors that meta does not show, of single elements, are 1 % at most. 16 bits need half of the memory of 32.
function TestReports:test_planned_memory_is_that_measured_in_all_precisions()
  local peaks = {}
  for _, precision in ipairs{"fp64", "fp32", "bf16", "fp16"} do
    local gpt = nn.gpt{layers = 2, hidden = 128, heads = 2, vocab = 64, seq = 64, seed = 1}
    local trainer = zt.trainer(zt.program(gpt, {precision = precision}), {optimizer = optim.sgd{lr = 0.1}})
    for seq = 64, 63, -1 do -- the first step over new shapes is measured, in new memory and in memory that threads keep
      local tokens = zt.arange(16 * seq):remainder(64):view({16, seq}):to "int64"
      trainer:step{tokens = tokens, labels = tokens}
      local found = trainer:memory().activations
      lu.assertTrue(found.measured >= found.predicted and found.measured < 1.01 * found.predicted,
        ("%s, %d tokens: predicted %d, measured %d"):format(precision, seq, found.predicted, found.measured))
      peaks[precision] = found.measured
    end
  end
  lu.assertTrue(peaks.bf16 < 0.55 * peaks.fp32 and peaks.fp16 < 0.55 * peaks.fp32)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestReports", TestReports}})
