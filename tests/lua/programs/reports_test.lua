-- Tests what a trainer says of a step: planned and measured memory, bytes that layers send, promises that are given up, traces.
-- Also runs on two ranks, which share the experts.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"
local small = require "support.small_mixture"

local ranks = zt.world.size

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

-- Before a step the shapes of tokens are not known; after it the report has the bytes that the plan has.
function TestReports:test_reports_say_what_exchanges_send()
  local trainer = small.trainer(small.model{})
  local before = trainer:report()
  lu.assertNotStrContains(before, "gives up")
  lu.assertEquals(before:find("wire      combine, dispatch: what they send depends on the batch; ", 1, true) ~= nil, ranks > 1)
  trainer:step(small.batch())
  local after, sent = trainer:report(), trainer:plan(small.batch())[1].sent
  lu.assertNotStrContains(after, "depends on the batch")
  for _, kind in ipairs{"dispatch", "combine"} do
    lu.assertEquals(sent[kind] ~= nil, ranks > 1)
    lu.assertEquals(after:match("wire      " .. kind .. " (.-) sent per step and rank"),
                    sent[kind] and zt.human_bytes(sent[kind]))
  end
end

-- A block whose matrices are cut makes two sums over the ranks forward, and two backward.
function TestReports:test_plans_say_what_is_sent_along_each_axis()
  local mesh = comm.mesh{dp = 1, tp = ranks}
  local gpt = nn.gpt{layers = 3, hidden = 16, heads = 4, vocab = 12, seq = 8, tensor = mesh.tp}
  local trainer = zt.trainer(zt.program(gpt):apply(zero.shard{axis = mesh.dp}), {optimizer = optim.sgd{lr = 0.1}})
  local tokens = zt.zeros({2, 8}, {dtype = "int64"})
  local plan = trainer:plan{tokens = tokens, labels = tokens}[1]
  if ranks == 1 then return lu.assertEquals({plan.sent, plan.along}, {{}, {}}) end
  lu.assertEquals(plan.sent.block, 3 * 4 * 2 * (ranks - 1) / ranks * 2 * 8 * 16 * 4)
  lu.assertEquals(plan.along, {tp = plan.sent.block + plan.sent.embedding + plan.sent.lm_loss})
end

-- Three heads on two ranks are two and one: the plan is that of the rank with two.
function TestReports:test_plans_have_the_largest_share()
  local mesh = comm.mesh{dp = 1, tp = ranks}
  local gpt = nn.gpt{layers = 2, hidden = 12, heads = 3, vocab = 13, seq = 64, tensor = mesh.tp}
  local trainer = zt.trainer(zt.program(gpt):apply(zero.shard{axis = mesh.dp}), {optimizer = optim.sgd{lr = 0.1}})
  local tokens = zt.zeros({2, 64}, {dtype = "int64"})
  local batch = {tokens = tokens, labels = tokens}
  local planned, own = trainer:plan(batch)[1].memory.activations, trainer:predict_activations(batch)
  if mesh.tp.rank == 0 then lu.assertEquals(planned, own) else lu.assertTrue(planned > own) end
end

function TestReports:test_reports_say_which_promises_are_given_up()
  local function given_up(router)
    local lines = {}
    local report = small.trainer(small.model{router = router}):report()
    for line in report:gmatch "gives up  router: (%S+ = %S+)" do lines[#lines + 1] = line end
    return lines
  end
  lu.assertEquals(given_up{losses = {balance = 0.1}, capacity = {}}, {})
  lu.assertEquals(given_up{losses = {per = "micro_batch", balance = 0.1}}, {'losses.per = "micro_batch"'})
  lu.assertEquals(given_up{losses = {per = "batch", balance = 0.1}, batch_axes = {"dp", "ep"}}, {'losses.per = "batch"'})
  lu.assertEquals(given_up{losses = {per = "micro_batch", balance = 0.1}, capacity = {per = "micro_batch"}},
                  {'capacity.per = "micro_batch"', 'losses.per = "micro_batch"'})
end

function TestReports:test_traces_call_exchanges_communication()
  local trainer = small.trainer(small.model{})
  trainer:trace_start()
  trainer:step(small.batch())
  local found = {}
  local events = zt.json.decode("[" .. trainer:trace_events() .. "]")
  for _, event in ipairs(events) do
    if event.name:match "^[FB] %d" and event.tid == 0 then found[event.cat] = (found[event.cat] or 0) + 1 end
  end
  lu.assertEquals(found.communication, ranks > 1 and 4 or nil) -- dispatch and combine, forward and backward
  lu.assertTrue(found.compute > 4)
end

function TestReports:test_refusals_of_one_kind_are_one_line()
  local program = zt.program(nn.gpt{layers = 2, hidden = 8, heads = 2, vocab = 11, seq = 4}, {micro_batches = 4})
  local text = program:text():gsub("\nNORM", "\nRESHARD 0\nRESHARD 1\nRESHARD 0\nNORM")
  local _, message = pcall(zt.trainer, program:with_actions(text), {optimizer = optim.sgd{lr = 0.1}})
  local lines = {}
  for line in message:gmatch "\n  ([^\n]+)" do lines[#lines + 1] = line end
  lu.assertEquals(#lines, 2, message)
  lu.assertStrContains(lines[1], "is not sharded: nothing could bring its parameters back, remove it (and 2 more of this kind)")
  lu.assertStrContains(lines[2], "and the next program needs them: add UNSHARD 1 (and 1 more of this kind)")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestReports", TestReports}})
