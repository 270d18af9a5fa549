-- Tests zt.ckpt as scripts use it. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt = require "zt.ckpt"
local nn = require "zt.nn"
local optim = require "zt.optim"
local zero = require "zt.zero"
local small = require "support.small_trainer"
local temporary = require "support.temporary"

local mesh, trainer_of, trained, batch, assert_same = small.mesh, small.trainer_of, small.trained, small.batch, small.assert_same

local TestCkpt = {}

function TestCkpt:setUp()
  zt.log.set_level "error"
  self.folder = temporary()
end

function TestCkpt:test_objects_and_plain_values()
  local actor, critic = trained(1, 2), trained(3, 1)
  local counter = {count = 3, state = function(it) return {count = it.count} end, restore = function() end}
  local note = {loss = 2.5, tags = {"a", "b"}, is_good = true, empty = "", nested = {x = {1, 2.5}}}
  local path = ckpt.save(self.folder, {actor = actor, critic = critic, counter = counter, note = note}, {step = 7})
  lu.assertEquals(path, self.folder .. "/step_00000007")
  ckpt.save(self.folder, {actor = actor, critic = critic}, {step = 3, async = false}) -- waits for the first save

  local a, c = trainer_of(0, 2), trainer_of(2, 2)
  local loaded = {restore = function(it, value) it.count = value.count end, state = function() return {} end}
  local values = ckpt.load(path, {actor = a, critic = c, counter = loaded, note = 0})
  assert_same(a, actor)
  assert_same(c, critic)
  lu.assertEquals(loaded.count, 3)
  lu.assertEquals(values.note, note)
  lu.assertErrorMsgContains("not in the checkpoint", ckpt.load, self.folder, {actor = a, critic = c, note = 0})
  lu.assertErrorMsgContains("unknown option 'asinc'", ckpt.save, self.folder, {note = 1}, {asinc = true})
  lu.assertErrorMsgContains("Saver:save: keep and keep_every must be at least 0, got -1 and 0", function()
    ckpt.saver():save(self.folder, 0, {{"note", 1}}, true, false, -1, 0)
  end)
  for place, wrong in pairs{
    ["note has the key 0,"] = {[0] = 1}, ["note.list[2] has the key 0.5,"] = {list = {1, {[0.5] = 2}}},
    ["note.x mixes"] = {x = {1, y = 2}},
  } do
    local _, text = pcall(function() ckpt.save(self.folder, {note = wrong}) end)
    lu.assertStrContains(text, place)
    lu.assertStrMatches(text, ".*ckpt_test%.lua:%d+: ckpt%.save: .*")
  end
  lu.assertErrorMsgContains("has no state to save", ckpt.save, self.folder, {mesh = mesh})
  lu.assertErrorMsgContains("got 'a/b'", ckpt.save, self.folder, {["a/b"] = 1})
  local _, message = pcall(function() ckpt.save(self.folder, {["a/b"] = 1}) end)
  lu.assertStrMatches(message, ".*ckpt_test%.lua:%d+: ckpt%.save: .*")
  lu.assertErrorMsgContains("no method 'restore'", ckpt.save, self.folder, {x = {state = function() return 1 end}})
  local folder = self.folder .. "/x"
  lu.assertErrorMsgContains("a Trainer cannot be saved as a value", ckpt.save, folder, {note = {trainer = actor}})
  lu.assertFalse(zt.exists(folder))
end

function TestCkpt:test_a_load_waits_for_the_save_before_it()
  for step = 1, 3 do
    ckpt.save(self.folder, {weights = {values = zt.full({100000}, step)}}, {step = step})
    local loaded = ckpt.load(self.folder, {weights = 0}).weights
    lu.assertEquals(loaded.values:max():item(), step)
  end
end

function TestCkpt:test_numbers_come_back_as_they_were()
  local values = {zero = -0.0, whole = 3, large = 2 ^ 53 + 2, infinite = -1 / 0, none = 0 / 0, small = 2 ^ -1074}
  ckpt.save(self.folder, {values = values}, {async = false, step = 1})
  local back = ckpt.load(self.folder, {values = 0}).values
  lu.assertEquals(1 / back.zero, -1 / 0)
  lu.assertTrue(back.none ~= back.none)
  values.none, back.none = nil, nil
  lu.assertEquals(back, values)
end

-- Tensors of any dtype and shape are restored on every rank with the bits of rank 0's.
function TestCkpt:test_values_may_hold_tensors()
  local tensors = {
    weights = zt.randn({3, 5}, {seed = 4}), ids = zt.arange(7):to "int64", mask = zt.tensor{1, 0, 1}:gt(0),
    scalar = zt.tensor(2.5):to "float64", none = zt.zeros{0, 4}, half = zt.randn({6}, {seed = 5}):to "bfloat16",
    columns = zt.arange(6):view{2, 3}:t(),
  }
  local function fresh()
    local object = {taken = {}}
    function object.state() return {} end
    function object.restore(_, values) object.taken = values end
    return object
  end
  local function holder(values)
    local object = fresh()
    function object.state() return values end
    return object
  end
  local mine = holder{count = 3, nested = {list = {tensors.weights, "text", {deep = tensors.ids}}}, all = tensors}
  ckpt.save(self.folder, {object = mine, alone = tensors.half, plain = {1, 2}}, {step = 1, async = false})
  local other = fresh()
  local values = ckpt.load(self.folder, {object = other, alone = 0})
  local function assert_equal(got, wanted)
    lu.assertEquals({got:dtype(), got:size()}, {wanted:dtype(), wanted:size()})
    lu.assertTrue(got:equal(wanted))
  end
  for name, tensor in pairs(tensors) do assert_equal(other.taken.all[name], tensor) end
  assert_equal(values.alone, tensors.half)
  lu.assertEquals({other.taken.count, other.taken.nested.list[2]}, {3, "text"})
  assert_equal(other.taken.nested.list[1], tensors.weights)
  assert_equal(other.taken.nested.list[3].deep, tensors.ids)
  -- A load may leave the tensors out, and a later save replaces the object's state.
  lu.assertEquals(ckpt.load(self.folder, {plain = 0}), {plain = {1, 2}})
  ckpt.save(self.folder, {object = holder{count = 4}, alone = zt.ones{2}}, {step = 2, async = false})
  lu.assertEquals(ckpt.load(self.folder, {alone = 0}).alone:tolist(), {1, 1})
  lu.assertErrorMsgContains("stands for a tensor", ckpt.save, self.folder, {x = {["zt.tensor"] = 1}}, {step = 3})
end

function TestCkpt:test_the_optimizer_of_another_kind()
  local function with(optimizer)
    local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = 11, seq = 4, seed = 3}
    return zt.trainer(zt.program(model):apply(zero.shard{stage = 1, axis = mesh.dp}), {optimizer = optimizer})
  end
  local function step(trainer)
    local tokens = zt.arange(8):to("int64"):view{2, 4}
    trainer:step{tokens = tokens, labels = tokens}
    return trainer
  end
  local saved = step(with(optim.adamw{lr = 1e-2}))
  ckpt.save(self.folder, {trainer = saved}, {step = 1, async = false})
  local lion = with(optim.lion{lr = 1e-2})
  lu.assertErrorMsgContains("of another kind (1): trainer/optimizer is lion, saved as adamw", ckpt.load, self.folder,
    {trainer = lion})
  ckpt.load(self.folder, {trainer = lion}, {strict = false})
  lu.assertTrue(lion:master("embedding.weight"):equal(saved:master "embedding.weight"))
  lu.assertEquals(lion:optimizer_state("embedding.weight").exp_avg:abs():sum():item(), 0)
  lu.assertEquals(lion.global_step, 1)
  ckpt.load(self.folder, {model = with(optim.lion{lr = 1e-2})})
  ckpt.load(self.folder, {trainer = with(optim.adamw{lr = 1e-3})})
end

-- Saves as one file, and as a folder in which the new model has other files than the old one.
function TestCkpt:test_safetensors_are_replaced_only_when_asked()
  local old, new = trained(1, 1), trained(2, 3)
  local names = {}
  local function saved(path)
    local file = ckpt.safetensors(path)
    for _, tensor in ipairs(file:tensors()) do names[tensor.name] = true end
    return file:read "embedding.weight"
  end
  for _, path in ipairs{self.folder .. "/one.safetensors", self.folder .. "/many"} do
    ckpt.save_safetensors(old, path)
    lu.assertErrorMsgContains("is there already", ckpt.save_safetensors, new, path)
    lu.assertErrorMsgContains("is there already", ckpt.save_safetensors, new, path, {overwrite = false})
    lu.assertTrue(saved(path):equal(old:parameter "embedding.weight"))
    mesh.dp:barrier() -- rank 0 must not replace what others still read
    ckpt.save_safetensors(new, path, {overwrite = true})
    lu.assertTrue(saved(path):equal(new:parameter "embedding.weight"))
  end
  lu.assertTrue(names["embedding.weight"])
  lu.assertErrorMsgContains("did you mean 'overwrite'?", ckpt.save_safetensors, new, "x.safetensors", {overwritten = true})
end

-- `model` loads parameters only; the other names load whole objects.
function TestCkpt:test_a_model_and_others()
  local trainer, critic = trained(1, 2), trained(0, 1)
  ckpt.save(self.folder, {trainer = trainer, critic = critic, ["note.1"] = 5}, {async = false})
  local a, c = trainer_of(3, 2), trainer_of(2, 2)
  local values = ckpt.load(self.folder, {model = a, critic = c, ["note.1"] = 0})
  lu.assertEquals(a.global_step, 0)
  lu.assertTrue(a:master("embedding.weight"):equal(trainer:master "embedding.weight"))
  assert_same(c, critic)
  lu.assertEquals(values, {["note.1"] = 5})
  lu.assertErrorMsgContains("not in the checkpoint (1): other", ckpt.load, self.folder, {model = a, other = 0})
end

function TestCkpt:test_what_does_not_fit()
  local trainer = trained(1, 1)
  ckpt.save(self.folder, {trainer = trainer, note = 2}, {async = false})
  local other = trainer_of(0, 5)
  lu.assertErrorMsgContains("not in the checkpoint (1): more", ckpt.load, self.folder, {trainer = other, more = 1})
  lu.assertEquals(ckpt.load(self.folder, {trainer = other, more = 1}, {strict = false}), {})
  assert_same(other, trainer)
  lu.assertEquals(ckpt.load(self.folder, {other = 0}, {map = {["^note$"] = "other"}, only = {"^other$"}}), {other = 2})
end

function TestCkpt:test_a_load_waits_for_saves_of_other_meshes()
  local trainer = trained(1, 1)
  ckpt.save(self.folder, {trainer = trainer}, {step = 1, async = false})
  trainer:step(batch(1))
  ckpt.save(self.folder, {trainer = trainer}, {step = 2})
  local other = trainer_of(1)
  ckpt.load(self.folder, {trainer = other}, {mesh = require("zt.comm").mesh{dp = -1}})
  lu.assertEquals(other.global_step, 2)
  assert_same(other, trainer)
end

-- A damaged shard is found when other tensors have been read.
function TestCkpt:test_a_load_that_fails_halfway()
  local trainer = trained(2, 1)
  for step = 1, 2 do ckpt.save(self.folder, {trainer = trainer}, {step = step, async = false}) end
  mesh:world():barrier()
  if zt.world.rank == 0 then
    local shard = assert(io.open(("%s/step_00000002/shards/rank_%05d.h5"):format(self.folder, zt.world.size - 1), "r+b"))
    local size = shard:seek "end"
    shard:seek("set", size - 1 - (size - 1) % 4096) -- the last piece: pieces begin at multiples of 4096 bytes
    shard:write(("x"):rep(16))
    shard:close()
  end
  mesh:world():barrier()
  local other = trainer_of(2)
  lu.assertError(ckpt.load, self.folder .. "/step_00000002", {trainer = other})
  for _, name in ipairs{"step", "evaluate"} do
    lu.assertErrorMsgContains("a load has failed and may have changed a part of the parameters", other[name], other, batch(1))
  end
  lu.assertErrorMsgContains("load a complete checkpoint before anything else", other.master, other, "embedding.weight")
  ckpt.load(self.folder .. "/step_00000001", {trainer = other})
  assert_same(other, trainer)
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
  lu.assertErrorMsgContains("has a NUL character", ckpt.save, self.folder .. "/a\0b", {note = 1}, {async = false})
  lu.assertErrorMsgContains("has a NUL character", ckpt.load, self.folder .. "/a\0b", {note = 1})
  lu.assertErrorMsgContains("there is no checkpoint in", ckpt.load, self.folder, {})
  lu.assertErrorMsgContains("ckpt.save takes a run", ckpt.save, 3)
  lu.assertErrorMsgContains("did you mean 'keep'?", ckpt.save, self.folder, {}, {kep = 3})
  lu.assertErrorMsgContains("ckpt.resume: the first argument must be a Run", ckpt.resume, {})
  lu.assertErrorMsgContains("must be at least 0", ckpt.save, self.folder, {}, {keep = -1})
  lu.assertErrorMsgContains("takes no option 'objects'", ckpt.save, self.folder, {}, {objects = {}})
  lu.assertErrorMsgContains("takes no option 'step'", ckpt.save, setmetatable({}, {__name = "Run"}), 3, {step = 3})
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

function TestCkpt:test_what_is_kept()
  local trainer = trained(0, 1)
  for step = 1, 7 do
    ckpt.save(self.folder, {trainer = trainer}, {step = step, async = step % 2 == 0, keep = 2, keep_every = 3})
  end
  mesh:world():barrier()
  local kept = {}
  for index, entry in ipairs(ckpt.list(self.folder)) do kept[index] = entry.step end
  lu.assertEquals(kept, {3, 6, 7})
end

-- After a load, fp16's loss scale and the schedule continue as without the load.
function TestCkpt:test_loss_scale_and_schedule_go_on()
  local function fp16_trainer(seed)
    local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = 11, seq = 4, seed = seed}
    local program = zt.program(model, {precision = "fp16"}):apply(zero.shard{stage = 2, axis = mesh.dp})
    return zt.trainer(program, {
      optimizer = optim.adamw{lr = 0.1}, schedule = optim.warmup_cosine{warmup = 3, total = 12},
      fp16 = {initial_scale_power = 40, loss_scale_window = 3, hysteresis = 1}, -- overflows at first
    })
  end
  local trainer, other = fp16_trainer(1), fp16_trainer(2)
  for step = 0, 29 do trainer:step(batch(step)) end
  ckpt.save(self.folder, {trainer = trainer}, {async = false})
  ckpt.load(self.folder, {trainer = other})
  for step = 30, 37 do
    local left, right = trainer:step(batch(step)), other:step(batch(step))
    lu.assertEquals({right.loss, right.lr, right.loss_scale, right.skipped}, {left.loss, left.lr, left.loss_scale, left.skipped})
  end
  assert_same(other, trainer)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCkpt", TestCkpt}})
