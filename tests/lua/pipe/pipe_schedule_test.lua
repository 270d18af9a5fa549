-- Tests pipeline schedules in Lua: by name, by hand, as text, and what pipe.check says of them.
local lu = require "luaunit"
local pipe = require "zt.pipe"

local TestSchedules = {}

function TestSchedules:test_by_name()
  local schedule = pipe.schedule.one_f_one_b{stages = 2, micro_batches = 2}
  lu.assertEquals({schedule.stages, schedule.chunks, schedule.micro_batches}, {2, 1, 2})
  lu.assertEquals(tostring(schedule:rank(0)), "0F0 0F1 0B0 0B1")
  lu.assertEquals(#schedule:rank(1), 4)
  for _, name in ipairs {"gpipe", "interleaved", "breadth_first", "interleaved_zb", "zb_h1", "zb_h2", "zb_v", "v_half", "v_min",
                         "dualpipe_v"} do
    lu.assertEquals(pipe.check(pipe.schedule[name]{stages = 3, micro_batches = 5}), {}, name)
  end
end

function TestSchedules:test_editing()
  local schedule = pipe.schedule.one_f_one_b{stages = 4, micro_batches = 8}
  schedule:rank(1):insert(3, pipe.F(1, 3))
  local mistakes = pipe.check(schedule)
  lu.assertStrContains(mistakes[1], "rank 1, step 5 (1F3) it repeats the F of step 2: remove one")
  lu.assertEquals(tostring(schedule:rank(1):remove(3)), "1F3")
  lu.assertEquals(pipe.check(schedule), {})
  lu.assertEquals(schedule, pipe.schedule.one_f_one_b{stages = 4, micro_batches = 8})
  local copy = schedule:copy()
  copy:rank(0):set(1, pipe.F(0, 1))
  lu.assertEquals(schedule:rank(0):get(1).micro_batch, 0)
  lu.assertFalse(copy == schedule)
end

function TestSchedules:test_by_hand()
  local schedule = pipe.schedule.empty{stages = 2, micro_batches = 1}
  for _, task in ipairs {pipe.F(0, 0), pipe.B(0, 0)} do schedule:rank(0):insert(task) end
  for _, task in ipairs {pipe.F(1, 0), pipe.I(1, 0)} do schedule:rank(1):insert(task) end
  lu.assertEquals(pipe.check(schedule), {"rank 1: 1W0 is missing: each I has a W"})
  schedule:rank(1):insert(pipe.W(1, 0))
  lu.assertEquals(pipe.check(schedule), {})
  lu.assertEquals(pipe.check(schedule, {activations = 1}), {})
  local placed = pipe.schedule.empty{stages = 2, micro_batches = 1, rank_of_stage = {0, 0, 1}}
  lu.assertEquals(placed.chunks, 2)
  lu.assertStrContains(placed:text(), "placement by_stage 0 0 1")
end

function TestSchedules:test_overlapped_tasks()
  local pair = pipe.overlap(pipe.F(0, 5), pipe.B(3, 2))
  lu.assertEquals(tostring(pair), "(0F5;3B2)")
  lu.assertEquals({pair.kind, pair.stage, pair.micro_batch, tostring(pair.beside)}, {"F", 0, 5, "3B2"})
  lu.assertNil(pipe.F(0, 1).beside)
  lu.assertErrorMsgContains("not one that is overlapped already", pipe.overlap, pair, pair)
end

function TestSchedules:test_text_and_csv()
  local schedule = pipe.schedule.dualpipe_v{stages = 2, micro_batches = 4}
  lu.assertEquals(pipe.schedule.from_text(schedule:text()), schedule)
  lu.assertEquals(tostring(pipe.schedule.from_csv(schedule:csv()):rank(1)), tostring(schedule:rank(1)))
  lu.assertErrorMsgContains("line 1: a schedule begins with", pipe.schedule.from_text, "0F0")
end

function TestSchedules:test_search()
  local options = {stages = 2, micro_batches = 4, costs = {F = 1, I = {1, 1, 2, 1}, W = 0.5, transfer = 0.1}, memory = 3}
  local schedule = pipe.schedule.search(options)
  lu.assertEquals(pipe.check(schedule, {activations = 3}), {})
  options.memory = 1
  lu.assertErrorMsgContains("rank 0 may hold 1 and one micro-batch of each of its stages takes 2", pipe.schedule.search, options)
  options.memory, options.costs = nil, {F = 1, I = 1}
  lu.assertErrorMsgContains("costs: the time of W is missing", pipe.schedule.search, options)
  options.costs = {F = 1, I = 1, W = 1, B = 1}
  lu.assertErrorMsgContains("pipe.schedule.search.costs.B is unknown", pipe.schedule.search, options)
  options.costs = {F = {1, 2}, I = 1, W = 1}
  lu.assertErrorMsgContains("costs.F has 2 entries: give one number, or a list of 4", pipe.schedule.search, options)
end

function TestSchedules:test_mistakes()
  lu.assertErrorMsgContains("did you mean 'stages'?", pipe.schedule.gpipe, {stage = 2, micro_batches = 2})
  lu.assertErrorMsgContains("option 'micro_batches' is missing", pipe.schedule.gpipe, {stages = 2})
  lu.assertErrorMsgContains("the schedule 'zb_v' has 2 chunks per rank, got 4", pipe.schedule.zb_v,
                            {stages = 2, micro_batches = 2, chunks = 4})
  local schedule = pipe.schedule.gpipe{stages = 2, micro_batches = 2}
  lu.assertErrorMsgContains("there is no rank 2: the schedule has 2", schedule.rank, schedule, 2)
  local list = schedule:rank(0)
  lu.assertErrorMsgContains("there is no place 9: give one from 1 to 5", list.insert, list, 9, pipe.F(0, 0))
  lu.assertErrorMsgContains("counted from 0, got -1", pipe.F, 0, -1)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestSchedules", TestSchedules}})
