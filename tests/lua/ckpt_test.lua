-- zt.ckpt and `ztoolkit ckpt`: what scripts and people do with checkpoints. (On two ranks as well.)
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt = require "zt.ckpt"
local command = require "support.command"
local comm = require "zt.comm"
local nn = require "zt.nn"
local optim = require "zt.optim"
local temporary = require "support.temporary"
local zero = require "zt.zero"

local IS_FIRST = zt.world.rank == 0
local mesh = comm.mesh{dp = -1}

local function trainer_of(stage, seed)
  local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = 11, seq = 4, seed = seed or 1}
  local program = zt.program(model):apply(zero.shard{stage = stage, axis = mesh.dp})
  return zt.trainer(program, {optimizer = optim.adamw{lr = 0.1}})
end

local function batch(step)
  local tokens = (zt.arange(8) * 3 + step + 5 * zt.world.rank):remainder(11):view{2, 4}:to "int64"
  return {tokens = tokens, labels = tokens}
end

local function trained(stage, steps)
  local trainer = trainer_of(stage)
  for step = 0, steps - 1 do trainer:step(batch(step)) end
  return trainer
end

local function assert_same(a, b)
  for _, name in ipairs(a:parameters()) do
    lu.assertTrue(a:master(name):equal(b:master(name)), name)
    local left, right = a:optimizer_state(name), b:optimizer_state(name)
    for _, state in ipairs {"exp_avg", "exp_avg_sq"} do lu.assertTrue(left[state]:equal(right[state]), name) end
  end
end

local TestCkpt = {}

function TestCkpt:setUp()
  zt.log.set_level "error"
  self.folder = temporary()
end

function TestCkpt:test_objects_and_plain_values()
  local actor, critic = trained(1, 2), trained(3, 1)
  local counter = {count = 3, state = function(it) return {count = it.count} end}
  local note = {loss = 2.5, tags = {"a", "b"}, is_good = true, empty = "", nested = {x = {1, 2.5}}}
  local path = ckpt.save(self.folder, {actor = actor, critic = critic, counter = counter, note = note}, {step = 7})
  lu.assertEquals(path, self.folder .. "/step_00000007")
  ckpt.save(self.folder, {actor = actor, critic = critic}, {step = 3, async = false}) -- waits for the first

  local a, c = trainer_of(0, 2), trainer_of(2, 2)
  local loaded = {restore = function(it, value) it.count = value.count end, state = function() return {} end}
  local values = ckpt.load(path, {actor = a, critic = c, counter = loaded, note = 0})
  assert_same(a, actor)
  assert_same(c, critic)
  lu.assertEquals(loaded.count, 3)
  lu.assertEquals(values.note, note)
  lu.assertErrorMsgContains("not in the checkpoint", ckpt.load, self.folder, {actor = a, critic = c, note = 0})
  lu.assertErrorMsgContains("has no state to save", ckpt.save, self.folder, {mesh = mesh})
  lu.assertErrorMsgContains("got 'a/b'", ckpt.save, self.folder, {["a/b"] = 1})
end

function TestCkpt:test_parts_of_a_checkpoint()
  local trainer = trained(1, 2)
  ckpt.save(self.folder, {trainer = trainer}, {async = false})
  local other = trainer_of(2, 3)
  ckpt.load(self.folder, {model = other})
  lu.assertEquals(other.global_step, 0)
  lu.assertTrue(other:master("embedding.weight"):equal(trainer:master "embedding.weight"))

  local third = trainer_of(0, 4)
  local before = third:master "embedding.weight"
  ckpt.load(self.folder, {trainer = third}, {only = {"^model/blocks"}})
  lu.assertTrue(third:master("blocks.0.mlp.up.weight"):equal(trainer:master "blocks.0.mlp.up.weight"))
  lu.assertTrue(third:master("embedding.weight"):equal(before))

  ckpt.load(self.folder, {actor = third}, {map = {["^model/"] = "actor/model/"}, only = {"^actor/model/embedding[.]weight"}})
  lu.assertTrue(third:master("embedding.weight"):equal(trainer:master "embedding.weight"))
end

function TestCkpt:test_mistakes()
  lu.assertErrorMsgContains("there is no checkpoint in", ckpt.load, self.folder, {})
  lu.assertErrorMsgContains("ckpt.save takes a run", ckpt.save, 3)
  lu.assertErrorMsgContains("did you mean 'keep'?", ckpt.save, self.folder, {}, {kep = 3})
  lu.assertErrorMsgContains("ckpt.resume takes a run", ckpt.resume, {})
  lu.assertErrorMsgContains("must be at least 0", ckpt.save, self.folder, {}, {keep = -1})
end

function TestCkpt:test_random_numbers_go_on()
  zt.manual_seed(zt.world.rank)
  zt.randn{3}
  local trainer = trained(0, 1)
  ckpt.save(self.folder, {trainer = trainer}, {async = false})
  local wanted = zt.randn{4}
  zt.manual_seed(99)
  ckpt.load(self.folder, {trainer = trainer})
  lu.assertTrue(zt.randn{4}:equal(wanted))
end

function TestCkpt:test_a_run_goes_on()
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
  run:finish() -- behind step 5, of which nothing is saved
  local again, other = open(7, true)
  lu.assertEquals((ckpt.resume(again)), 4)
  train(again, other, 4, 7)
  again:finish()
  if IS_FIRST then
    local steps = {}
    for line in io.lines(run.path .. "/metrics.jsonl") do steps[#steps + 1] = zt.json.decode(line).step end
    lu.assertEquals(steps, {0, 1, 2, 3, 4, 5, 6})
    lu.assertEquals(zt.fs.read(run.path .. "/latest"), "step_00000007\n")
  end
  mesh:world():barrier()
  assert_same(other, trained(1, 7))
  lu.assertErrorMsgContains("either resume or overwrite", zt.run, {name = "r", resume = true, overwrite = true})
end

-- The rest is one process's work.
local TestCommand = {}

function TestCommand:setUp()
  zt.log.set_level "error"
  self.folder = temporary()
  self.trainer = trained(1, 2)
  ckpt.save(self.folder .. "/a", {trainer = self.trainer}, {step = 1, async = false})
  self.trainer:step(batch(2))
  ckpt.save(self.folder .. "/a", {trainer = self.trainer}, {step = 2, async = false})
  mesh:world():barrier()
end

function TestCommand:test_ls_and_show()
  if not IS_FIRST then return end
  local text, status = command("ls", self.folder)
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, self.folder .. "/a/step_00000002")
  lu.assertStrContains(text, "latest")
  text, status = command("show", self.folder .. "/a", "--statistics", "--only", "embedding.weight")
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, "optimizer/exp_avg_sq/embedding.weight")
  lu.assertStrContains(text, "[11, 8]")
  text = command("show", self.folder .. "/a", "--json")
  lu.assertEquals(zt.json.decode(text).values["trainer/step"], 3)
  text, status = command("show", self.folder)
  lu.assertEquals(status, 2)
  lu.assertStrContains(text, "there is no checkpoint in")
  text, status = command "lss"
  lu.assertEquals(status, 2)
  lu.assertStrContains(text, "did you mean 'ls'?")
  text, status = command "--help"
  lu.assertEquals(status, 0)
  lu.assertStrContains(text, "verify")
end

function TestCommand:test_diff()
  if not IS_FIRST then return end
  local a = self.folder .. "/a/step_0000000"
  local text, status = command("diff", a .. "1", a .. "1")
  lu.assertEquals(status, 0, text)
  text, status = command("diff", a .. "1", self.folder .. "/a")
  lu.assertEquals(status, 1, text)
  local line = text:match "model/embedding.weight[^\n]*"
  lu.assertStrMatches(line, "model/embedding.weight +largest difference .* of %d+ in 88 elements")
  lu.assertStrContains(text, "trainer/step")
end

function TestCommand:test_verify_and_gc()
  if not IS_FIRST then return end
  local shard = self.folder .. "/a/step_00000002/shards/rank_00000.h5"
  local text, status = command("verify", self.folder .. "/a")
  lu.assertEquals(status, 0, text)
  local file = io.open(shard, "r+b")
  file:seek("end", -5)
  file:write "\171"
  file:close()
  text, status = command("verify", self.folder .. "/a")
  lu.assertEquals(status, 1)
  lu.assertStrContains(text, "rank_00000.h5")
  zt.mkdir_p(self.folder .. "/a/step_00000009.partial-12ab/shards")
  lu.assertStrContains(command("ls", self.folder), "incomplete")
  text, status = command("gc", self.folder .. "/a")
  lu.assertEquals(status, 0)
  lu.assertStrContains(text, "step_00000009.partial-12ab")
  lu.assertFalse(zt.exists(self.folder .. "/a/step_00000009.partial-12ab"))
end

function TestCommand:test_export_and_import()
  local to, back = self.folder .. "/out.safetensors", self.folder .. "/back"
  if IS_FIRST then
    local text, status = command("export", self.folder .. "/a", to)
    lu.assertEquals(status, 0, text)
    text, status = command("export", self.folder .. "/a", to)
    lu.assertEquals(status, 1)
    lu.assertStrContains(text, "is there already")
    local many = self.folder .. "/many"
    text, status = command("export", self.folder .. "/a", many, "--dtype", "bf16", "--shard-bytes", "300")
    lu.assertEquals(status, 0, text)
    lu.assertTrue(zt.exists(many .. "/model.safetensors.index.json"))
    for _, from in ipairs {to, many} do
      text, status = command("import", from, back)
      lu.assertEquals(status, 0, text)
    end
    lu.assertEquals(#ckpt.list(back), 1)
    command("import", to, back, "--step", "5")
  end
  mesh:world():barrier()
  local other = trainer_of(3, 9)
  ckpt.load(back, {model = other})
  for _, name in ipairs(other:parameters()) do lu.assertTrue(other:master(name):equal(self.trainer:master(name)), name) end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCkpt", TestCkpt}, {"TestCommand", TestCommand}})
