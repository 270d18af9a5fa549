-- Tests zt.deepspeed.config: the rates of DeepSpeed's schedules.
local lu = require "luaunit"
local ds = require "zt.deepspeed.config"

-- Rates by runtime/lr_schedules.py of DeepSpeed 0.19.8, for an optimizer with one group: the group's rate before each update.
-- Entries are {type, the optimizer's rate, params, updates done, rates}.
local GOLDEN = {
  {"WarmupLR", 0.001, {warmup_min_lr = 1e-05, warmup_max_lr = 0.0003, warmup_num_steps = 10},
   {0, 1, 2, 3, 8, 9, 10, 11, 12, 100},
   {1e-05, 1e-05, 9.729869874255451e-05, 0.00014836516386870208, 0.0002718960962276635, 0.0002867303277374042,
    0.0002999999999999999, 0.0003, 0.0003, 0.0003}},
  {"WarmupLR", 0.001, {warmup_num_steps = 4, warmup_type = "linear"},
   {0, 1, 2, 3, 4, 5, 20},
   {0.0, 0.0, 0.00025, 0.0005, 0.00075, 0.001, 0.001}},
  {"WarmupLR", 0.001, {warmup_num_steps = 1, warmup_type = "linear"},
   {0, 1, 2, 3, 4},
   {0.0, 0.0, 0.0005, 0.001, 0.001}},
  {"WarmupDecayLR", 0.001, {total_num_steps = 20, warmup_max_lr = 0.002, warmup_min_lr = 0.0001, warmup_num_steps = 5,
   warmup_type = "linear"},
   {0, 1, 2, 5, 6, 7, 12, 19, 20, 21, 22, 40},
   {0.0001, 0.0001, 0.00048, 0.0016200000000000001, 0.002, 0.0018733333333333334, 0.00124, 0.0003533333333333333,
    0.00022666666666666668, 0.0001, 0.0001, 0.0001}},
  {"WarmupDecayLR", 0.001, {total_num_steps = 20, warmup_num_steps = 5},
   {0, 1, 2, 5, 6, 7, 21},
   {0.0, 0.0, 0.00043067655807339306, 0.001, 0.001, 0.0009333333333333333, 0.0}},
  {"WarmupCosineLR", 0.0006, {total_num_steps = 20, warmup_min_ratio = 0.1, warmup_num_steps = 5, cos_min_ratio = 0.05},
   {0, 1, 2, 5, 6, 7, 12, 20, 21, 30},
   {0.0, 5.9999999999999995e-05, 0.00029256534135963224, 0.0006, 0.0005937720662091345, 0.0005753604554281412,
    0.0003447906120312812, 2.9999999999999997e-05, 2.9999999999999997e-05, 2.9999999999999997e-05}},
  {"WarmupCosineLR", 0.0006, {total_num_steps = 2, warmup_num_steps = 3, warmup_type = "linear"},
   {0, 1, 2, 3, 4, 5},
   {0.0, 0.0, 0.00019999999999999998, 0.00039999999999999996, 6e-08, 6e-08}},
  {"LRRangeTest", 0.001, {lr_range_test_min_lr = 0.0001, lr_range_test_step_size = 2, lr_range_test_step_rate = 5},
   {0, 1, 2, 3, 4, 9},
   {0.0001, 0.00035, 0.0006000000000000001, 0.0008500000000000001, 0.0011, 0.00235}},
  {"LRRangeTest", 0.001, {lr_range_test_min_lr = 0.0001, lr_range_test_step_size = 2, lr_range_test_step_rate = 5,
   lr_range_test_staircase = true},
   {0, 1, 2, 3, 4, 9},
   {0.0001, 0.0001, 0.0006000000000000001, 0.0006000000000000001, 0.0011, 0.0021000000000000003}},
  {"OneCycle", 0.001, {cycle_min_lr = 0.0001, cycle_max_lr = 0.001, cycle_first_step_size = 4, cycle_second_step_size = 6,
   decay_step_size = 5, decay_lr_rate = 0.5, cycle_momentum = false},
   {0, 1, 3, 4, 5, 7, 9, 10, 11, 15, 30},
   {0.0001, 0.0003250000000000002, 0.0007750000000000001, 0.0009999999999999998, 0.0008500000000000001,
    0.0005500000000000001, 0.00025000000000000017, 0.0001, 9.09090909090909e-05, 6.666666666666667e-05,
    3.3333333333333335e-05}},
  {"OneCycle", 0.001, {cycle_min_lr = 0.0001, cycle_max_lr = 0.001, cycle_first_step_size = 4, cycle_momentum = false},
   {0, 1, 2, 3, 4, 5, 7, 8, 9, 20},
   {0.0001, 0.000325, 0.00055, 0.0007750000000000001, 0.001, 0.0007750000000000001, 0.000325, 0.0001, 0.0001, 0.0001}},
  {"OneCycle", 0.001, {cycle_min_lr = 0.0001, cycle_max_lr = 0.001, cycle_first_step_size = 3, cycle_second_step_size = 7,
   cycle_first_stair_count = 2, cycle_second_stair_count = 3, cycle_momentum = false},
   {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13},
   {0.0001, 0.0001, 0.00055, 0.001, 0.0007, 0.0007, 0.00039999999999999996, 0.00039999999999999996, 0.0001, 0.0001, 0.0001,
    0.0001, 0.0001, 0.0001}},
}

local function read(type_name, params, lr)
  return ds.read({train_batch_size = 8, scheduler = {type = type_name, params = params}}, {world = 1, optimizer = {lr = lr}})
end

local TestSchedules = {}

-- The bound: both sides compute the same formula in doubles, in partly different orders. They differ by at most a dozen roundings
-- of terms that are up to ten times the result.
function TestSchedules:test_rates_are_deepspeeds()
  for _, case in ipairs(GOLDEN) do
    local type_name, lr, params, steps, rates = unpack(case)
    local schedule = read(type_name, params, lr).schedule
    lu.assertEquals(schedule.name, type_name)
    lu.assertEquals(#steps, #rates)
    for index, step in ipairs(steps) do
      local bound = 12 * 10 * 2^-53 * rates[index]
      lu.assertAlmostEquals(schedule.rate(step), rates[index], bound, ("%s after %d updates"):format(type_name, step))
    end
  end
end

function TestSchedules:test_options_with_deepspeeds_defaults()
  lu.assertEquals(read("WarmupLR", {warmup_num_steps = 1}, 0.5).schedule.options,
                  {warmup_min_lr = 0, warmup_max_lr = 0.5, warmup_num_steps = 2, warmup_type = "log"})
  lu.assertEquals(read("OneCycle", {cycle_min_lr = 0, cycle_max_lr = 1, cycle_momentum = false}).schedule.options, {
    cycle_min_lr = 0, cycle_max_lr = 1, cycle_first_step_size = 2000, cycle_second_step_size = 2000, cycle_first_stair_count = 0,
    cycle_second_stair_count = 0, decay_step_size = 0, decay_lr_rate = 0,
  })
end

-- A schedule starts from the rate of the optimizer in the same file, if there is one.
function TestSchedules:test_the_optimizers_rate()
  local config = {train_batch_size = 8, optimizer = {type = "SGD", params = {lr = 0.25}}, scheduler = {type = "WarmupLR"}}
  lu.assertEquals(ds.read(config, {world = 1, optimizer = {lr = 9}}).schedule.rate(1001), 0.25)
  config.scheduler = {type = "OneCycle", params = {cycle_min_lr = 0, cycle_max_lr = 1}} -- SGD has no betas to change
  lu.assertEquals(ds.read(config, {world = 1}).schedule.rate(2000), 1)
end

function TestSchedules:test_mistakes()
  lu.assertErrorMsgContains("scheduler.type = 'WarmupDecayLR' needs scheduler.params.total_num_steps: give it", read,
                            "WarmupDecayLR", {})
  lu.assertErrorMsgContains("scheduler.type = 'WarmupLR' needs scheduler.params.warmup_max_lr", read, "WarmupLR", {})
  lu.assertErrorMsgContains("needs the optimizer's learning rate: give optimizer = {lr = ...}", read, "WarmupCosineLR",
                            {total_num_steps = 10})
  lu.assertErrorMsgContains("scheduler.params.total_num_steps is no parameter of WarmupLR", read, "WarmupLR",
                            {total_num_steps = 10}, 1)
  lu.assertErrorMsgContains("scheduler.params.warmup_num_steps must be at least 1, got 0", read, "WarmupLR",
                            {warmup_num_steps = 0}, 1)
  lu.assertErrorMsgContains("scheduler.type = 'WarmupRL' is unknown: did you mean 'WarmupLR'?", read, "WarmupRL", {}, 1)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestSchedules", TestSchedules}})
