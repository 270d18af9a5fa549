-- Tests the reports of an engine of zt.initialize.
local lu = require "luaunit"
local zt = require "zt"
local nn = require "zt.nn"
local reports = require "zt.deepspeed.engine.reports"

local lines
local info = zt.log.info

local function batch() return {tokens = zt.zeros({2, 4}, {dtype = "int64"}), labels = zt.ones({2, 4}, {dtype = "int64"})} end

-- Runs `steps` steps of an engine with this configuration. Returns the logged lines and the engine.
local function lines_of(config, steps)
  config.train_micro_batch_size_per_gpu, config.gradient_accumulation_steps = 1, 2
  config.optimizer = {type = "SGD", params = {lr = 0.5}}
  local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = 11, seq = 4, seed = 3}
  local engine = zt.initialize{model = model, config = config}
  for _ = 1, steps do engine:train_batch(batch()) end
  return table.concat(lines, "\n"), engine
end

local TestReports = {}

function TestReports:setUp()
  lines = {}
  zt.log.info = function(message, ...) lines[#lines + 1] = message:format(...) end
end

function TestReports:tearDown() zt.log.info = info end

function TestReports:test_nothing_unless_asked() lu.assertEquals(lines_of({}, 2), "") end

function TestReports:test_progress()
  local text, engine = lines_of({steps_per_print = 2}, 5)
  lu.assertEquals(#lines, 2)
  lu.assertStrContains(text, "step 4, skipped 0, loss ")
  lu.assertStrContains(text, ", lr 0.5, loss scale 1, ")
  lu.assertTrue(tonumber(text:match "([%d.]+) k? ?samples/s") > 0)
  lu.assertEquals(engine.global_steps, 5)
end

function TestReports:test_where_time_goes()
  local text, engine = lines_of({wall_clock_breakdown = true}, 2)
  lu.assertEquals(#lines, 2)
  local step, rest = lines[2]:match "^step (%d+): (.+) ms in all$"
  lu.assertEquals(step, "2")
  local sum, all = 0, tonumber(rest:match "; ([%d.]+)$")
  for _, part in ipairs {"forward", "backward", "communication", "step"} do
    local time = tonumber(rest:match(part .. " ([%d.]+)"))
    lu.assertNotNil(time, text)
    sum = sum + time
  end
  lu.assertTrue(sum > 0 and sum <= all + 5 * 0.0051, lines[2]) -- five numbers rounded to two decimals
  for _ = 1, 2 do -- a step by forward, backward and step gives the same line
    engine:backward(engine{tokens = batch().tokens[{{0, 1}}], labels = batch().labels[{{0, 1}}]})
    engine:step()
  end
  lu.assertStrContains(lines[3], "step 3: forward ")
end

function TestReports:test_actions_are_counted_by_their_kind()
  local function event(name, category, dur, lane)
    return ('{"name":"%s","cat":"%s","tid":%d,"ts":%d,"dur":%d}'):format(name, category, lane, 1000 * dur, 1000 * dur)
  end
  local events = {'{"name":"process_name","ph":"M"}'}
  for index, name in ipairs {"F 0 0", "B 0 0", "R 0 0", "REDUCE_GRAD 0 units=[1]", "wait REDUCE_GRAD 0",
                             "COUNT axes=[\\\"dp\\\"]", "NORM", "STEP 1", "AVERAGE 1", "UNSHARD 1",
                             "FETCH 1 what=state"} do
    events[#events + 1] = event(name, index <= 3 and "compute" or "communication", 2^index, 0)
    events[#events + 1] = event(name, "communication", 7, 1)
  end
  events[#events + 1] = event("F 5 0", "communication", 2^5, 0) -- tokens on their way to experts
  lu.assertEquals(reports.times(table.concat(events, ",\n")), {
    forward = 2, backward = 4 + 8, communication = 16 + 32 + 64 + 1024 + 32, step = 128 + 256, other = 512,
    movement = 2048, all = 2048 + 2048 - 2,
  })
end

function TestReports:test_memory()
  local text = lines_of({memory_breakdown = true, steps_per_print = 3}, 3)
  lu.assertStrContains(text, "memory at step 1\nkind")
  lu.assertStrContains(text, "memory at step 3\n")
  lu.assertNil(text:find("memory at step 2", 1, true))
  lu.assertStrContains(text, "parameters")
end

function TestReports:test_settings()
  local text, engine = lines_of({dump_state = true, zero_optimization = {stage = 1, reduce_scatter = true},
                                 scheduler = {type = "WarmupLR"}}, 0)
  lu.assertStrContains(text, "the engine's settings, on mesh dp=")
  lu.assertStrContains(text, "  batch = {accumulation = 2, global = ")
  lu.assertStrContains(text, "  optimizer = {name = sgd, options = {dampening = 0, ")
  lu.assertStrContains(text, "rate = a function")
  lu.assertStrContains(text, "  zero_optimization.reduce_scatter (always): each rank receives")
  lines = {}
  engine:dump_state()
  lu.assertEquals(lines[1], text)
end

function TestReports:test_keys_of_no_effect_are_said()
  local text = lines_of({zero_optimization = {stage = 1, stage3_max_live_parameters = 5}}, 0)
  lu.assertEquals(text, "zero_optimization.stage3_max_live_parameters: no effect at stage 1: it is for stage 3")
end

function TestReports:test_what_is_noted_is_said_once()
  local warn, warnings = zt.log.warn, {}
  zt.log.warn = function(message, ...) warnings[#warnings + 1] = message:format(...) end
  local is_done, text = pcall(lines_of, {wandb = {enabled = true, team = "t"}}, 2)
  zt.log.warn = warn
  lu.assertEquals({is_done, text, #warnings}, {true, "", 1})
  lu.assertStrContains(warnings[1], "wandb: nothing is sent to Weights & Biases")
  lu.assertErrorMsgContains("wandb is not done, and strict = true refuses that", zt.initialize,
                            {model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = 11, seq = 4, seed = 3}, strict = true,
                             config = {train_micro_batch_size_per_gpu = 1, wandb = {enabled = true}}})
end

function TestReports:test_the_level_of_messages()
  local before = zt.log.set_level "info"
  lines_of({log_level = "warning"}, 0)
  lu.assertEquals(zt.log.set_level(before), "warn")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestReports", TestReports}})
