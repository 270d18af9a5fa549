-- Tests what an engine of zt.initialize writes for csv_monitor, tensorboard, flops_profiler and comms_logger. It runs on one rank
-- and on two.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local decode = require "support.decode"
local flops = require "zt.deepspeed.engine.flops"
local new_comms = require "zt.deepspeed.engine.comms"
local nn = require "zt.nn"
local temporary = require "support.temporary"

local lines
local info = zt.log.info
local is_first = zt.world.rank == 0
local RANKS = zt.world.size

local function batch(samples)
  return {tokens = zt.zeros({samples, 4}, {dtype = "int64"}), labels = zt.ones({samples, 4}, {dtype = "int64"})}
end

local function engine_of(config)
  config.train_micro_batch_size_per_gpu, config.gradient_accumulation_steps = 1, 2
  config.optimizer = {type = "SGD", params = {lr = 0.5}}
  config.zero_optimization = {stage = 2}
  return zt.initialize{model = nn.gpt{layers = 2, hidden = 8, heads = 2, vocab = 11, seq = 4, seed = 3}, config = config}
end

-- Returns the lines of a file without its last line break.
local function rows(path)
  local out = {}
  for line in io.lines(path) do out[#out + 1] = line end
  return out
end

local TestMonitors = {}

function TestMonitors:setUp()
  lines = {}
  zt.log.info = function(message, ...) lines[#lines + 1] = message:format(...) end
  self.folder = temporary()
end

function TestMonitors:tearDown() zt.log.info = info end

function TestMonitors:test_csv_files_are_continued()
  local config = {csv_monitor = {enabled = true, output_path = self.folder, job_name = "job"}}
  local losses, folder = {}, self.folder .. "/job/"
  for start = 1, 2 do
    local engine = engine_of(config)
    for _ = 1, 2 do losses[#losses + 1] = engine:train_batch(batch(2)) end
    if start == 2 then losses[#losses + 1] = engine:eval_batch(batch(2)) end
  end
  if not is_first then return end
  lu.assertEquals(zt.fs.list(folder), {"Train_Samples_eval_loss.csv", "Train_Samples_lr.csv", "Train_Samples_train_loss.csv"})
  local expected, samples = {"step,train_loss"}, 2 * RANKS
  for place, count in ipairs{1, 2, 1, 2} do expected[place + 1] = ("%d,%.17g"):format(count * samples, losses[place]) end
  for place, line in ipairs(rows(folder .. "Train_Samples_train_loss.csv")) do
    local step, value = line:match "^(%d+),(.*)$"
    if place > 1 then line = ("%d,%.17g"):format(step, tonumber(value)) end -- 0.5 may be written in several ways
    lu.assertEquals(line, expected[place])
  end
  lu.assertEquals(rows(folder .. "Train_Samples_lr.csv")[2], ("%d,0.5"):format(samples))
  lu.assertEquals(#rows(folder .. "Train_Samples_eval_loss.csv"), 2)
end

function TestMonitors:test_times_and_the_loss_scale()
  local engine = engine_of{wall_clock_breakdown = true, fp16 = {enabled = true, loss_scale = 4},
                           csv_monitor = {enabled = true, output_path = self.folder}}
  engine:train_batch(batch(2))
  if not is_first then return end
  local folder, time = self.folder .. "/DeepSpeedJobName/", {}
  lu.assertEquals(#zt.fs.list(folder), 8)
  lu.assertEquals(rows(folder .. "Train_Samples_loss_scale.csv"), {"step,loss_scale", 2 * RANKS .. ",4"})
  for _, part in ipairs{"forward", "backward", "backward_inner", "backward_allreduce", "step"} do
    time[part] = tonumber(rows(folder .. "Train_Samples_elapsed_time_ms_" .. part .. ".csv")[2]:match ",(.*)")
  end
  lu.assertTrue(time.forward > 0 and time.step > 0)
  lu.assertAlmostEquals(time.backward, time.backward_inner + time.backward_allreduce, 1e-9)
end

function TestMonitors:test_tensorboard_restarts_at_a_checkpoint()
  local config = {tensorboard = {enabled = true, output_path = self.folder, job_name = "job"}}
  local engine = engine_of(config)
  engine:train_batch(batch(2))
  engine:save_checkpoint(self.folder .. "/saved", "a")
  engine:train_batch(batch(2))
  engine = engine_of(config)
  engine:load_checkpoint(self.folder .. "/saved", "a")
  engine:train_batch(batch(2))
  if not is_first then return end
  local names, samples = zt.fs.list(self.folder .. "/job"), 2 * RANKS
  lu.assertEquals(#names, 2)
  local steps = {}
  for _, data in ipairs(decode.tfrecords(zt.fs.read(self.folder .. "/job/" .. names[2]))) do
    local fields = decode.message(data)
    steps[#steps + 1] = {fields[2][1] == 2 and fields[2][2], fields[#fields][1]}
    if fields[#fields][1] == 5 then lu.assertStrContains(fields[#fields][2], "Train/Samples/train_loss") end
  end
  lu.assertEquals(steps, {{false, 3}, {samples + 1, 7}, {2 * samples, 5}})
end

function TestMonitors:test_a_folder_that_cannot_be_made_is_an_error_of_all_ranks()
  lu.assertErrorMsgContains("/dev/null", engine_of, {csv_monitor = {enabled = true, output_path = "/dev/null"}})
end

-- By hand: a block has 768 weights in matrices, each of which makes 2 operations per token forwards and 4 backwards. Attention
-- makes 2 x 2 x 4 x 4 x 8 operations per sample. The head has 8 x 11 weights.
function TestMonitors:test_operations_are_counted()
  local path = self.folder .. "/flops/report.txt"
  local engine = engine_of{flops_profiler = {enabled = true, profile_step = 1, output_file = path}}
  engine:train_batch(batch(2))
  if is_first then lu.assertEquals(zt.fs.read(path), "") end
  for part = 0, 1 do -- a step by forward, backward and step is counted alike
    engine:backward(engine{tokens = batch(2).tokens[{{part, part + 1}}], labels = batch(2).labels[{{part, part + 1}}]})
    engine:step()
  end
  engine:train_batch(batch(2))
  engine.trainer:trace_start()
  engine:train_batch(batch(2))
  if not is_first then return end
  local text = zt.fs.read(path)
  lu.assertStrContains(text, "operations of matmuls and layers at step 1\n")
  lu.assertStrContains(text, "\nposition 1 ")
  lu.assertStrContains(text, "\nposition 3 ")
  local counted = flops.count(engine.trainer, batch(2), engine.trainer:trace_events())
  local matmuls, attention, head = 2 * 4 * 768, 2 * 2 * 4 * 4 * 8 / 2, 2 * 4 * 88
  lu.assertEquals(counted.passes.F.flops, 2 * (2 * (matmuls + attention) + head))
  lu.assertTrue(counted.passes.B.flops >= 4 * (2 * matmuls + head) and counted.passes.F.seconds > 0)
  lu.assertEquals(counted.layers[1].flops, counted.layers[2].flops)
  local short = flops.text(counted, {detailed = false, top = 1}, 7, 0.5)
  lu.assertStrContains(short, "at step 7\n")
  lu.assertStrContains(short, "\nposition 1 ")
  lu.assertNil(short:find("position 2", 1, true))
end

function TestMonitors:test_communication()
  local engine = engine_of{steps_per_print = 2, comms_logger = {enabled = true, verbose = true}}
  for _ = 1, 2 do engine:train_batch(batch(2)) end
  engine:log_summary()
  local silent = engine_of{}
  lu.assertErrorMsgContains('engine:log_summary: nothing was recorded: give "comms_logger"', silent.log_summary, silent)
  if not is_first then return end
  lu.assertEquals(#lines, 5) -- two steps, progress and table, and the table again
  lu.assertStrMatches(lines[1], "step 1: .*REDUCE_GRAD %d+ x, thread [%d.]+ ms, transfer [%d.]+ ms.*")
  lu.assertStrContains(lines[4], "communication of rank 0 in 2 steps\naction ")
  lu.assertEquals(lines[5], lines[4])
  local sent = lines[4]:match "REDUCE_GRAD[^\n]- (%S+ %S*B)\n"
  lu.assertEquals(sent ~= "0 B", RANKS > 1, lines[4])
end

function TestMonitors:test_events_are_counted_by_their_kind()
  local events = {}
  for index, event in ipairs{{"REDUCE_GRAD 4 sum=first", 0}, {"REDUCE_GRAD 4 sum=first", 1}, {"wait REDUCE_GRAD 4", 0},
                             {"COUNT axes=[]", 0}, {"F 2 0", 0}} do
    events[index] = ('{"name":"%s","cat":"communication","tid":%d,"ts":0,"dur":%d}'):format(event[1], event[2], 1000 * 2^index)
  end
  events[#events + 1] = '{"name":"F 1 0","cat":"compute","tid":0,"ts":0,"dur":7000}'
  local comms = new_comms()
  local step = comms:add(table.concat(events, ","))
  lu.assertEquals(step, {REDUCE_GRAD = {calls = 1, thread = 2 + 8, transfer = 4}, COUNT = {calls = 1, thread = 16, transfer = 0},
                         layers = {calls = 1, thread = 32, transfer = 0}})
  comms:add(table.concat(events, ","))
  local text = comms:text{REDUCE_GRAD = 2048, moe = 1024}
  lu.assertStrMatches(text, ".*\nREDUCE_GRAD +2 +20%.00 +8%.00 +10%.000 +2%.0 KiB\n.*")
  lu.assertStrMatches(text, ".*\nlayers +2 +64%.00 +0%.00 +32%.000 +1%.0 KiB.*")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestMonitors", TestMonitors}})
