-- Tests pipeline schedules in Lua: by name, by hand, as text, and what pipe.check says of them.
local lu = require "luaunit"
local pipe = require "zt.pipe"

local TestSchedules = {}

function TestSchedules:test_by_name()
  local schedule = pipe.schedule.one_f_one_b{ranks = 2, micro_batches = 2}
  lu.assertEquals({schedule.ranks, schedule.chunks, schedule.micro_batches}, {2, 1, 2})
  lu.assertEquals(tostring(schedule:rank(0)), "0F0 0F1 0B0 0B1")
  lu.assertEquals(#schedule:rank(1), 4)
  for _, name in ipairs(pipe.schedule.names()) do
    lu.assertEquals(pipe.check(pipe.schedule[name]{ranks = 3, micro_batches = 5}), {}, name)
  end
end

function TestSchedules:test_editing()
  local schedule = pipe.schedule.one_f_one_b{ranks = 4, micro_batches = 8}
  schedule:rank(1):insert(3, pipe.F(1, 3))
  local mistakes = pipe.check(schedule)
  lu.assertStrContains(mistakes[1], "rank 1, step 6 (1F3) it repeats the F of step 3: remove one")
  lu.assertEquals(tostring(schedule:rank(1):remove(3)), "1F3")
  lu.assertEquals(pipe.check(schedule), {})
  lu.assertEquals(schedule, pipe.schedule.one_f_one_b{ranks = 4, micro_batches = 8})
  local copy = schedule:copy()
  copy:rank(0):set(1, pipe.F(0, 1))
  lu.assertEquals(schedule:rank(0):get(1).micro_batch, 0)
  lu.assertFalse(copy == schedule)
end

function TestSchedules:test_by_hand()
  local schedule = pipe.schedule.empty{ranks = 2, micro_batches = 1}
  for _, task in ipairs {pipe.F(0, 0), pipe.B(0, 0)} do schedule:rank(0):insert(task) end
  for _, task in ipairs {pipe.F(1, 0), pipe.I(1, 0)} do schedule:rank(1):insert(task) end
  lu.assertEquals(pipe.check(schedule), {"rank 1: 1W0 is missing: each I has a W"})
  schedule:rank(1):insert(pipe.W(1, 0))
  lu.assertEquals(pipe.check(schedule), {})
  lu.assertEquals(pipe.check(schedule, {activations = 1}), {})
  local placed = pipe.schedule.empty{ranks = 2, micro_batches = 1, rank_of_stage = {0, 0, 1}}
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
  local schedule = pipe.schedule.dualpipe_v{ranks = 2, micro_batches = 4}
  lu.assertEquals(pipe.schedule.from_text(schedule:text()), schedule)
  lu.assertEquals(tostring(pipe.schedule.from_csv(schedule:csv()):rank(1)), tostring(schedule:rank(1)))
  lu.assertErrorMsgContains("line 1: a schedule begins with", pipe.schedule.from_text, "0F0")
end

function TestSchedules:test_search()
  local options = {ranks = 2, micro_batches = 4, costs = {F = 1, I = {1, 1, 2, 1}, W = 0.5, transfer = 0.1}, memory = 3}
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

-- Steps count from 1 everywhere: the place that a message names is that of list:remove.
function TestSchedules:test_a_message_names_the_place_to_edit()
  local schedule = pipe.schedule.gpipe{ranks = 2, micro_batches = 3}
  schedule:rank(1):insert(5, pipe.F(1, 0))
  local place = pipe.check(schedule)[1]:match("^rank 1, step (%d+) ")
  lu.assertEquals(tostring(schedule:rank(1):remove(tonumber(place))), "1F0")
  lu.assertEquals(pipe.check(schedule), {})
end

function TestSchedules:test_sizes_are_bounded()
  local function refused(message, make, ...) lu.assertErrorMsgContains(message, make, ...) end
  local schedule = pipe.schedule
  local most = "a pipeline schedule of 2147488281 stages: give a number from 1 to 1048576"
  refused(most, schedule.empty, {ranks = 46341, chunks = 46341, micro_batches = 1})
  refused(most, schedule.search, {ranks = 46341, chunks = 46341, micro_batches = 1, costs = {F = 1, I = 1, W = 1}})
  refused(most, schedule.interleaved, {ranks = 46341, chunks = 46341, micro_batches = 1})
  refused("a pipeline schedule of 10000000000 stages", schedule.from_text,
          "ztoolkit schedule 2\nranks 100000 chunks 100000 micro_batches 1\nplacement loop\n")
  local tasks = "1048576 stages and 1048576 micro-batches has 1099511627776 forwards: at most 67108864 are allowed"
  refused(tasks, schedule.empty, {ranks = 2 ^ 20, micro_batches = 2 ^ 20})
  refused("a pipeline schedule of 2147483648 micro-batches: give a number from 1 to 1048576", schedule.from_csv, "0F2147483647\n")
  lu.assertEquals(schedule.empty{ranks = 2 ^ 10, chunks = 2 ^ 10, micro_batches = 2 ^ 6}.chunks, 2 ^ 10)
end

function TestSchedules:test_options_that_contradict()
  local empty = pipe.schedule.empty
  lu.assertErrorMsgContains("a schedule of placement \"v\" has 2 chunks, got 3", empty,
                            {ranks = 2, micro_batches = 1, chunks = 3, placement = "v"})
  lu.assertEquals(empty{ranks = 2, micro_batches = 1, chunks = 2, placement = "v"}.chunks, 2)
  lu.assertEquals(empty{ranks = 2, micro_batches = 1, placement = "v"}.chunks, 2)
  lu.assertErrorMsgContains("rank_of_stage places every stage, so chunks has no effect", empty,
                            {ranks = 2, micro_batches = 1, chunks = 2, rank_of_stage = {0, 1}})
  lu.assertErrorMsgContains("placement has an effect only without rank_of_stage", empty,
                            {ranks = 2, micro_batches = 1, placement = "loop", rank_of_stage = {0, 1}})
end

function TestSchedules:test_mistakes()
  lu.assertErrorMsgContains("did you mean 'ranks'?", pipe.schedule.gpipe, {rank = 2, micro_batches = 2})
  lu.assertErrorMsgContains("pipe.schedule.gpipe: the option 'stages' is now called 'ranks'", pipe.schedule.gpipe,
                            {stages = 2, micro_batches = 2})
  lu.assertErrorMsgContains("option 'micro_batches' is missing", pipe.schedule.gpipe, {ranks = 2})
  lu.assertErrorMsgContains("the schedule 'zb_v' has 2 chunks per rank, got 4", pipe.schedule.zb_v,
                            {ranks = 2, micro_batches = 2, chunks = 4})
  local schedule = pipe.schedule.gpipe{ranks = 2, micro_batches = 2}
  lu.assertErrorMsgContains("there is no rank 2: the schedule has 2", schedule.rank, schedule, 2)
  local list = schedule:rank(0)
  lu.assertErrorMsgContains("there is no place 9: give one from 1 to 5", list.insert, list, 9, pipe.F(0, 0))
  lu.assertErrorMsgContains("counted from 0, got -1", pipe.F, 0, -1)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestSchedules", TestSchedules}})
