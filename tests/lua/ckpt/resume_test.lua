-- Tests ckpt.resume, and loading data streams with other options. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt = require "zt.ckpt"
local data = require "zt.data"
local nn = require "zt.nn"
local optim = require "zt.optim"
local zero = require "zt.zero"
local small = require "support.small_trainer"
local temporary = require "support.temporary"

local IS_FIRST = zt.world.rank == 0
local mesh, trainer_of, trained, batch, assert_same = small.mesh, small.trainer_of, small.trained, small.batch, small.assert_same

-- Returns a function that opens a stream of a new token file, which has the options below and more.
local function streams()
  local path = temporary() .. zt.world.rank
  zt.write_file(path .. ".txt", ("abcdefghijklmnopqrstuvwxyz"):rep(100))
  data.tokenize{input = path .. ".txt", output = path .. ".npy", tokenizer = data.tokenizer.bytes()}
  return function(more)
    local options = {path = path .. ".npy", seq = 8, batch = 4, seed = 5}
    for key, value in pairs(more or {}) do options[key] = value end
    return data.tokens(options)
  end
end

local TestResume = {}

function TestResume:setUp()
  zt.log.set_level "error"
  self.folder = temporary()
end

-- Saved after 20 steps of 4 samples. A stream with another batch size continues with sample 80; one with another order is refused
-- before the trainer is changed.
function TestResume:test_a_stream_with_other_options()
  local stream = streams()
  local saved = stream()
  saved:seek(20)
  ckpt.save(self.folder, {trainer = trained(1, 2), data = saved}, {step = 20, async = false})
  for _, size in ipairs {2, 4, 8} do
    local other = stream{batch = size}
    ckpt.load(self.folder, {data = other}, {only = {"^data/"}})
    lu.assertEquals({other.step, other:batch(20).sample:tolist()[1]}, {20, 80})
    lu.assertTrue(other:batch(20).tokens[0]:equal(saved:batch(20).tokens[0]))
  end
  local trainer = trainer_of(0, 2)
  local before = trainer:master("embedding.weight"):clone()
  lu.assertErrorMsgContains("seed = 5 (this stream: 6)", ckpt.load, self.folder, {trainer = trainer, data = stream{seed = 6}})
  lu.assertTrue(trainer:master("embedding.weight"):equal(before))
  local allowed = stream{seed = 6, allow = "other_order"}
  ckpt.load(self.folder, {data = allowed}, {only = {"^data/"}})
  lu.assertEquals({allowed.step, allowed:batch(20).sample:tolist()[1]}, {20, 80})
  -- A Lua object that holds a stream.
  local function holder(of) return {state = function() return of:state() end, restore = function(_, s) of:restore(s) end} end
  ckpt.save(self.folder, {held = holder(saved)}, {step = 21, async = false})
  lu.assertErrorMsgContains("seed = 5 (this stream: 6)", ckpt.load, self.folder, {held = holder(stream{seed = 6})})
end

function TestResume:test_a_run_goes_on()
  local function open(steps, resume)
    local trainer = trainer_of(1)
    local run = zt.run{name = "r", folder = self.folder, resume = resume, trainer = trainer, steps = steps, trace = false,
                       mesh = mesh}
    return run, trainer
  end
  local function train(run, trainer, from, to)
    for step = from, to - 1 do
      run:log(step, trainer:step(batch(step)))
      ckpt.save(run, step + 1, {every = 2, keep = 2})
    end
  end
  local run, trainer = open(7, false)
  lu.assertEquals((ckpt.resume(run)), 0)
  train(run, trainer, 0, 5)
  run:finish() -- after step 5, which no checkpoint holds
  if IS_FIRST then
    zt.mkdir_p(run.path .. "/step_00000006.partial-12ab/shards") -- the folder of an unfinished save
    local lines = zt.fs.read(run.path .. "/metrics.jsonl")
    zt.write_file(run.path .. "/metrics.jsonl", lines .. "\0\0\n")
  end
  mesh:world():barrier()
  local again, other = open(7, true)
  lu.assertEquals((ckpt.resume(again)), 4)
  train(again, other, 4, 7)
  again:finish()
  lu.assertFalse(zt.exists(run.path .. "/step_00000006.partial-12ab"))
  if IS_FIRST then
    local steps = {}
    for line in io.lines(run.path .. "/metrics.jsonl") do steps[#steps + 1] = zt.json.decode(line).step end
    lu.assertEquals(steps, {0, 1, 2, 3, 4, 5, 6})
    lu.assertEquals(zt.fs.read(run.path .. "/latest"), "step_00000007\n")
    local kept = {}
    for index, entry in ipairs(ckpt.list(run.path)) do kept[index] = entry.step end
    lu.assertEquals(kept, {6, 7})
  end
  mesh:world():barrier()
  assert_same(other, trained(1, 7))
  lu.assertErrorMsgContains("either resume or overwrite", zt.run, {name = "r", resume = true, overwrite = true})
end

-- A resume that is refused, by the model or by the data stream, leaves every file of the run as it was.
function TestResume:test_a_refused_resume_changes_nothing()
  local stream_of = streams()
  local function open(seed, batch_size, layers)
    local model = nn.gpt{layers = layers, hidden = 8, heads = 2, vocab = 11, seq = 4, seed = 1}
    local trainer = zt.trainer(zt.program(model):apply(zero.shard{axis = mesh.dp}), {optimizer = optim.adamw{lr = 0.1}})
    local options = {seed = seed, batch = batch_size, layers = layers}
    return zt.run{name = "r", folder = self.folder, resume = true, trainer = trainer, mesh = mesh, options = options, steps = 9,
                  data = stream_of{seed = seed, batch = batch_size}}
  end
  local run = open(1, 4, 1)
  for step = 0, 2 do run:log(step, run.trainer:step(batch(step))) end
  run.data:seek(2)
  ckpt.save(run, 2)
  run:finish()
  if IS_FIRST then zt.mkdir_p(run.path .. "/step_00000006.partial-12ab/shards") end
  mesh:world():barrier()
  local names = {"script.lua", "options.json", "metrics.jsonl", "loss.svg", "trace.json", "latest"}
  local function content()
    local texts = {}
    for index, name in ipairs(names) do texts[index] = zt.fs.read(run.path .. "/" .. name) end
    return texts
  end
  local before = content()
  for _, case in ipairs{{"seed = 1 (this stream: 2)", {2, 4, 1}}, {"does not fit", {1, 4, 2}}} do
    local expected, again = case[1], case[2]
    local refused = open(unpack(again))
    lu.assertErrorMsgContains(expected, ckpt.resume, refused)
    lu.assertEquals(content(), before)
    lu.assertTrue(zt.exists(run.path .. "/step_00000006.partial-12ab"))
    mesh:world():barrier()
    if refused.lock then refused.lock:release() end
    mesh:world():barrier()
  end
  local larger = open(1, 8, 1)
  lu.assertEquals((ckpt.resume(larger)), 2)
  lu.assertEquals({larger.data.step, larger.data:batch(2).sample:tolist()[1]}, {2, 8})
  lu.assertEquals(zt.json.decode(zt.fs.read(run.path .. "/options.json")).options, {seed = 1, batch = 8, layers = 1})
  lu.assertEquals(select(2, zt.fs.read(run.path .. "/metrics.jsonl"):gsub("\n", "")), 2)
  lu.assertFalse(zt.exists(run.path .. "/step_00000006.partial-12ab"))
  mesh:world():barrier()
  larger:finish()
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestResume", TestResume}})
