-- Tests that ckpt.save, load and resume refuse wrong arguments and incomplete checkpoints, on all ranks alike. Also runs on two
-- ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, nn, optim, zero = require "zt.ckpt", require "zt.nn", require "zt.optim", require "zt.zero"
local small = require "support.small_trainer"
local temporary = require "support.temporary"

local mesh, trainer_of, trained, batch = small.mesh, small.trainer_of, small.trained, small.batch

local function refused(message, call, ...)
  local is_done, text = pcall(call, ...)
  lu.assertFalse(is_done)
  lu.assertStrContains(text, message)
  return text
end

local TestMistakes = {}

function TestMistakes:setUp()
  zt.log.set_level "error"
  self.folder = temporary()
end

function TestMistakes:open(more)
  local options = {name = "r", folder = self.folder, mesh = mesh, trainer = trainer_of(1), steps = 4, trace = false}
  for key, value in pairs(more or {}) do options[key] = value end
  return zt.run(options)
end

-- Trains a run to its end, with a checkpoint after each step. Returns its folder.
function TestMistakes:train()
  local run = self:open()
  for step = 0, 3 do
    run:log(step, run.trainer:step(batch(step)))
    ckpt.save(run, step + 1, {async = false})
  end
  run:finish()
  return run.path
end

-- The names of the parameters, once for their values and the optimizer's.
function TestMistakes:test_another_vocabulary()
  local function of_vocabulary(vocab, columns)
    local model = nn.gpt{layers = 1, hidden = columns or 8, heads = 2, vocab = vocab, seq = 4, tied = false}
    local program = zt.program(model):apply(zero.shard{axis = mesh.dp, stage = 1})
    return zt.trainer(program, {optimizer = optim.adamw{lr = 1e-3}})
  end
  ckpt.save(self.folder, {trainer = of_vocabulary(12)}, {step = 1, async = false})
  local message = "of another vocabulary (2): embedding.weight has 11 tokens, saved with 12, head.weight has 11 tokens, saved"
  for _, key in ipairs{"model", "trainer"} do
    local text = refused(message, ckpt.load, self.folder, {[key] = of_vocabulary(11)})
    lu.assertStrContains(text, "make the model with the checkpoint's `vocab`, or leave these parameters out")
    lu.assertNil(text:find("of another shape", 1, true))
  end
  local other = of_vocabulary(11)
  ckpt.load(self.folder, {model = other}, {only = {"^model/blocks"}})
  refused("model/embedding.weight is [11, 16], saved as [12, 8]", ckpt.load, self.folder, {model = of_vocabulary(11, 16)})
end

-- An expression that is found in no name would load nothing.
function TestMistakes:test_only_and_map()
  ckpt.save(self.folder, {trainer = trained(1, 1)}, {step = 1, async = false})
  local model = trainer_of(1, 2)
  local before = model:master("embedding.weight"):clone()
  local function load_refused(message, options) return refused(message, ckpt.load, self.folder, {model = model}, options) end
  local text = load_refused("ckpt.load.only: '^modle/' is found in no name of the checkpoint '", {only = {"^modle/"}})
  lu.assertStrContains(text, "so it has no effect. Names begin with model/, optimizer/, rng and 2 more: did you mean 'model'?")
  load_refused("'^model/blcks.0' is found in no name", {only = {"^model/head", "^model/blcks.0"}})
  load_refused(": without '^' it would be found in 'model/blocks.0.", {only = {"^blocks"}})
  load_refused("ckpt.load.map: '^model/h[.]' is found in no name", {map = {["^model/h[.]"] = "model/blocks."}, strict = false})
  load_refused("ckpt.load.only: '(' is not a regular expression", {only = {"("}})
  load_refused("ckpt.load.map: '(' is not a regular expression", {map = {["("] = "x"}})
  load_refused("ckpt.load.only has no regular expression: leave it out to load all names", {only = {}})
  load_refused("ckpt.load.only[1] must be a string, got an integer", {only = {5}})
  load_refused("ckpt.load.map must have strings, {[regular expression] = replacement}, got 1 = 5", {map = {5}})
  lu.assertTrue(model:master("embedding.weight"):equal(before))
  -- An expression may be found after another one's replacement, or in the objects only, which is an error of its own.
  ckpt.load(self.folder, {model = model}, {only = {"^model/"}, map = {["^model/"] = "other/", ["^other/"] = "model/"}})
  lu.assertFalse(model:master("embedding.weight"):equal(before))
  refused("not in the checkpoint (1): note", ckpt.load, self.folder, {note = {}}, {only = {"^note$"}})
end

function TestMistakes:test_types()
  local trainer = trainer_of(1)
  refused("ckpt.save: 'model' must be a Trainer, from zt.trainer, got an integer", ckpt.save, self.folder, {model = 5})
  refused("ckpt.save: 'trainer' must be a Trainer, from zt.trainer, got a Mesh", ckpt.save, self.folder, {trainer = mesh})
  refused("ckpt.save takes a table {trainer = ..., data = ..., name = value}, got a Trainer", ckpt.save, self.folder, trainer)
  refused("ckpt.save.mesh must be a Mesh, from comm.mesh, got an Axis", ckpt.save, self.folder, {}, {mesh = mesh.dp})
  refused("ckpt.save takes a run (zt.run) or the name of a folder, got a Trainer", ckpt.save, trainer, 1)
  refused("ckpt.load: the folder of a checkpoint or of a run must be a string, got nil", ckpt.load)
  refused("ckpt.resume: the first argument must be a Run, from zt.run, got a string", ckpt.resume, self.folder)
  refused("ckpt.save_safetensors: the first argument must be a Trainer", ckpt.save_safetensors, 5, self.folder)
  local run = self:open()
  refused("ckpt.load: 'trainer' must be a Trainer, from zt.trainer, got a Run", ckpt.load, self.folder, {trainer = run})
  refused("ckpt.save(run, step): the number of steps done must be an integer, got nil", ckpt.save, run)
  refused("ckpt.save(run, step): the number of steps done must be an integer, got 1.5", ckpt.save, run, 1.5)
  refused("ckpt.save(run, step): the number of steps done must be at least 0, got -1", ckpt.save, run, -1)
  refused("ckpt.save: 5 steps are more than the run has: zt.run has steps = 4", ckpt.save, run, 5)
  run:finish()
end

-- Counts the warnings of ckpt.save in a run of `steps` steps whose checkpoints have the number step + `more`.
-- updates: of the trainer, for each step.
local function warnings_of(run, more, before, updates)
  local count, warn = 0, zt.log.warn
  zt.log.warn = function(text) count = count + (text:find "give step %+ 1" and 1 or 0) end
  for step = 0, 3 do
    for _ = 1, updates or 1 do run:log(step, run.trainer:step(batch(step + before))) end
    ckpt.save(run, step + more, {async = false})
  end
  zt.log.warn = warn
  run:finish()
  return count
end

function TestMistakes:test_the_number_of_a_checkpoint()
  local expected = zt.world.rank == 0 and 1 or 0
  lu.assertEquals(warnings_of(self:open(), 0, 0), expected)
  lu.assertEquals(warnings_of(self:open{overwrite = true}, 1, 0), 0)
  lu.assertEquals(warnings_of(self:open{overwrite = true, trainer = trained(1, 1)}, 1, 1), 0) -- a step before the run
  lu.assertEquals(warnings_of(self:open{overwrite = true, trainer = trainer_of(1)}, 0, 0, 2), expected)
  lu.assertEquals(warnings_of(self:open{overwrite = true, trainer = trainer_of(1)}, 1, 0, 2), 0)
end

function TestMistakes:test_a_resume_that_does_not_fit()
  self:train()
  local run = self:open{resume = true, trainer = trainer_of(1)}
  local text = refused("not in the checkpoint (1): note", ckpt.resume, run, {objects = {note = {}}})
  lu.assertStrContains(text, "give in `objects` what was saved besides them, or take what fits with ckpt.resume(run, {strict = "
    .. "false}). To use a part of it, begin a new run, and load that part by ckpt.load(folder, {model = trainer}")
  lu.assertNotStrContains(text, "rename with map")
  lu.assertEquals((ckpt.resume(run, {objects = {note = {}}, strict = false})), 4)
  run:finish()
end

-- An object under a name of the run's own would take its place.
function TestMistakes:test_names_of_the_run()
  local run = self:open()
  local other = run.trainer
  local why = "the run saves its own 'trainer' under that name: give this object another one in `objects`"
  refused(why, ckpt.save, run, 1, {objects = {trainer = other}})
  refused(why, ckpt.resume, run, {objects = {trainer = other}})
  refused("every checkpoint has the script's random numbers under the name 'rng'", ckpt.save, run, 1, {objects = {rng = 1}})
  run:finish()
  refused("every checkpoint has the script under the name 'script'", ckpt.save, run.path, {trainer = other, script = "mine"})
end

-- Only the run saves into its folder until it ends.
function TestMistakes:test_the_folder_of_a_run()
  local run = self:open()
  local save = {run.path, {trainer = trainer_of(2)}, {step = 9, async = false, keep = 1}}
  ckpt.save(run, 1, {async = false})
  refused("belongs to a run that has not ended (process", ckpt.save, unpack(save))
  lu.assertEquals(ckpt.find(run.path, mesh), run.path .. "/step_00000001")
  run:finish()
  lu.assertEquals(ckpt.save(unpack(save)), run.path .. "/step_00000009")
end

-- Removes a file of the last checkpoint. The message says how to go on, and that works.
function TestMistakes:assert_incomplete(file)
  local path = self:train()
  local last = path .. "/step_00000004"
  if zt.world.rank == 0 then os.remove(last .. "/" .. file) end
  mesh:world():barrier()
  local expected = ("the checkpoint '%s' is incomplete: it lacks the file '%s'. Put the file back, or remove the folder '%s': "
    .. "then the newest one in '%s' is step_00000003, and that run resumes from it"):format(last, file, last, path)
  local run = self:open{resume = true}
  refused(expected, ckpt.resume, run)
  refused(expected, ckpt.load, last, {model = trainer_of(1)})
  mesh:world():barrier()
  if zt.world.rank == 0 then os.execute("rm -r " .. last) end
  mesh:world():barrier()
  lu.assertEquals((ckpt.resume(run)), 3)
  run:finish()
end

function TestMistakes:test_a_missing_master_file() self:assert_incomplete "checkpoint.h5" end
function TestMistakes:test_a_missing_shard() self:assert_incomplete "shards/rank_00000.h5" end

function TestMistakes:test_a_damaged_checkpoint()
  local path = self:train()
  local last = path .. "/step_00000004"
  if zt.world.rank == 0 then
    local master = last .. "/checkpoint.h5"
    local bytes = zt.fs.read(master)
    zt.write_file(master, bytes:sub(1, 5000) .. "xxx" .. bytes:sub(5004))
  end
  mesh:world():barrier()
  local run = self:open{resume = true}
  local text = refused("its bytes do not fit its checksum", ckpt.resume, run)
  lu.assertStrContains(text, ("\nIf the checkpoint stays unreadable, remove the folder '%s': then the newest one in '%s' is "
    .. "step_00000003, and that run resumes from it"):format(last, path))
  run:finish()
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestMistakes", TestMistakes}})
