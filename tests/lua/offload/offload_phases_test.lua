-- Tests trainers whose data are out of memory between two phases of a run. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt = require "zt.ckpt"
local nn, optim, zero = require "zt.nn", require "zt.optim", require "zt.zero"
local assert_same = require("support.small_trainer").assert_same
local small = require "offload.moved_trainers"
local program_of, moved, trainer_of, batch = small.program_of, small.moved, small.trainer_of, small.batch
local ranks, mesh = zt.world.size, small.mesh

local FILES = {to = "nvme", folder = small.folder}
local ALL = {"optimizer", "gradients", "parameters"}

local TestOffloadPhases = {}

-- All that was away comes back with its bits, whatever it was.
function TestOffloadPhases:test_bits()
  local cases = {
    {stage = 0}, {stage = 1, precision = "bf16"}, {stage = 2, every = "micro_batch"}, {stage = 3, precision = "bf16"},
    {stage = 3, moved = true, precision = "bf16"}, {stage = 1, moved = true}, {stage = 1, optimizer = optim.muon{lr = 0.01}},
  }
  for i, options in ipairs(cases) do
    local a = trainer_of(program_of(options), options)
    local b = trainer_of(options.moved and moved(options, {ratio = 0.5}) or program_of(options), options)
    for step, what in ipairs{{"optimizer"}, {"gradients", "optimizer"}, {"parameters"}, ALL} do
      a:step(batch(step))
      b:step(batch(step))
      b:evict(what, FILES)
      b:fetch()
      assert_same(a, b, (" of case %d after %s"):format(i, table.concat(what, " and ")))
      lu.assertEquals(b:gradient(b:parameters()[1]), a:gradient(a:parameters()[1]))
    end
    lu.assertEquals(b:step(batch(5)).loss, a:step(batch(5)).loss)
  end
end

-- zero.shard's own default of parameters that ranks of a machine share.
function TestOffloadPhases:test_shared_parameters()
  local function trainer()
    local model = nn.gpt{layers = 1, hidden = 48, heads = 2, vocab = small.VOCAB, seq = small.SEQ, seed = 5}
    return zt.trainer(zt.program(model):apply(zero.shard{axis = mesh.dp, stage = 3}), {optimizer = optim.adamw{lr = 1e-2}})
  end
  local a, b = trainer(), trainer()
  for step = 1, 2 do
    a:step(batch(step))
    b:step(batch(step))
    b:evict(ALL, FILES)
    b:fetch()
    assert_same(a, b, " that ranks share")
  end
end

-- One after the other, and a checkpoint between.
function TestOffloadPhases:test_phases()
  local options = {stage = 1}
  local a, b = trainer_of(program_of(options), options), trainer_of(program_of(options), options)
  b:step(batch(1))
  b:evict({"optimizer", "gradients"}, FILES)
  lu.assertEquals(b:evaluate(batch(1)).loss, b:evaluate(batch(1)).loss)
  lu.assertNotNil(b:parameter(b:parameters()[1]))
  a:step(batch(1)) -- another model takes the memory
  b:evict({"parameters"}, FILES)
  b:fetch()
  b:fetch() -- nothing is away
  assert_same(a, b, " after phases")
  ckpt.save(small.folder .. "/phases", {trainer = b}, {step = 1, async = false})
end

local function rss()
  local pages = io.open("/proc/self/statm"):read "*a":match "^%d+ (%d+)"
  return tonumber(pages) * 4096
end

-- The memory is the system's while data are away.
function TestOffloadPhases:test_memory()
  local model = nn.gpt{layers = 4, hidden = 256, heads = 4, vocab = 512, seq = small.SEQ}
  local program = zt.program(model):apply(zero.shard{axis = mesh.dp, stage = 1})
  local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 1e-3}})
  trainer:step(batch(1))
  local held = trainer:memory()
  local before = rss()
  trainer:evict(ALL, FILES)
  local away = trainer:memory()
  local bytes = held.optimizer.measured + held.gradients.measured + held.parameters.measured
  lu.assertTrue(bytes > 30e6 / ranks)
  lu.assertTrue(before - rss() > 0.8 * bytes, ("%d of %d bytes were given back"):format(before - rss(), bytes))
  lu.assertEquals({away.optimizer.measured, away.gradients.measured, away.parameters.measured}, {0, 0, 0})
  lu.assertTrue(away.files.measured >= bytes)
  trainer:fetch()
  lu.assertEquals(trainer:memory().optimizer.measured, held.optimizer.measured)
end

function TestOffloadPhases:test_what_is_away_is_not_used()
  local options = {stage = 2, precision = "bf16"}
  local trainer = trainer_of(program_of(options), options)
  local name = trainer:parameters()[1]
  trainer:step(batch(1))
  trainer:evict({"optimizer"}, FILES)
  for _, call in ipairs{
    function() trainer:step(batch(2)) end, function() trainer:forward(batch(2)) end, function() trainer:master(name) end,
    function() trainer:optimizer_state(name) end, function() trainer:set_parameter(name, trainer:parameter(name)) end,
    function() trainer:costs(batch(2), {steps = 1}) end,
    function() ckpt.save(small.folder .. "/away", {trainer = trainer}, {step = 1, async = false}) end,
  } do
    lu.assertErrorMsgContains("the optimizer's state, which trainer:evict has taken out of memory: call trainer:fetch", call)
  end
  trainer:evict({"parameters", "gradients"}, FILES)
  for _, call in ipairs{
    function() trainer:evaluate(batch(2)) end, function() trainer:infer(batch(2)) end, function() trainer:parameter(name) end,
  } do
    lu.assertErrorMsgContains("parameters, which trainer:evict has taken", call)
  end
  lu.assertErrorMsgContains("gradients, which trainer:evict has taken", trainer.gradient, trainer, name)
  lu.assertErrorMsgContains("optimizer is away already", trainer.evict, trainer, {"optimizer"}, FILES)
  lu.assertStrContains(trainer:report(), "away      optimizer, gradients, parameters, until trainer:fetch:")
  trainer:fetch{"parameters"}
  trainer:evaluate(batch(2))
  lu.assertErrorMsgContains("parameters is in memory", trainer.fetch, trainer, {"parameters"})
  lu.assertErrorMsgContains("the list names nothing", trainer.fetch, trainer, {})
  trainer:fetch()
  trainer:step(batch(2))
end

-- Where master parameters are those of the layers, they are here without the optimizer.
function TestOffloadPhases:test_master_parameters_in_fp32()
  local options = {stage = 1}
  local a, b = trainer_of(program_of(options), options), trainer_of(program_of(options), options)
  local name = a:parameters()[1]
  b:evict({"optimizer", "gradients"}, FILES)
  b:set_parameter(name, a:master(name) + 1)
  lu.assertTrue(b:master(name):equal(a:master(name) + 1))
  b:set_parameter(name, a:master(name))
  b:fetch()
  a:step(batch(1))
  b:step(batch(1))
  assert_same(a, b, " after a change while the optimizer was away")
end

-- An evaluation touches no gradient, whatever the step before it has left.
function TestOffloadPhases:test_evaluation_without_gradients()
  local options = {stage = 2}
  local a, b = trainer_of(program_of(options), options), trainer_of(program_of(options), options)
  for step = 1, 2 do
    b:evict({"gradients", "optimizer"}, FILES)
    lu.assertEquals(b:evaluate(batch(step)).loss, a:evaluate(batch(step)).loss)
    b:infer(batch(step))
    b:fetch()
    local wrong = batch(step)
    wrong.tokens = wrong.tokens + small.VOCAB
    lu.assertFalse(pcall(b.step, b, wrong))
    b:evict({"gradients"}, FILES)
    lu.assertEquals(b:evaluate(batch(step)).loss, a:evaluate(batch(step)).loss)
    b:fetch()
    a:step(batch(step))
    b:step(batch(step))
    assert_same(a, b, " after evaluations")
  end
end

-- An evaluation is refused while data are away with which an action of a script works.
function TestOffloadPhases:test_actions_of_scripts()
  local counts = zt.buffer{name = "counts", of = "run", shape = {1}}
  local add = zt.action{name = "COUNT_RUNS", target = "none", role = "update", buffers = {counts}, start = function(ctx)
    ctx.buffer.counts:add_(1)
  end}
  local pass = zt.pass{phase = "overlap", mesh = mesh, actions = {add}, buffers = {counts}, apply = function(program)
    program.actions[#program.actions + 1] = add()
    return program
  end}
  local trainer = trainer_of(program_of{stage = 1}:apply(pass), {})
  trainer:step(batch(1))
  trainer:evict({"optimizer"}, FILES)
  lu.assertErrorMsgContains("trainer:evaluate needs the optimizer's state", trainer.evaluate, trainer, batch(1))
  trainer:fetch()
  trainer:evaluate(batch(1))
  lu.assertEquals(trainer:buffer("counts"):item(), 2)
end

function TestOffloadPhases:test_refusals()
  local options = {stage = 1}
  local trainer = trainer_of(program_of(options), options)
  local function refuses(text, what, how) lu.assertErrorMsgContains(text, trainer.evict, trainer, what, how) end
  refuses("trainer:evict: option 'to' is missing", ALL)
  refuses("trainer:evict takes a list of data", "optimizer", FILES)
  refuses('unknown data \'optimiser\': did you mean \'optimizer\'?', {"optimiser"}, FILES)
  refuses("name some of them", {}, FILES)
  refuses("must be one of 'host', 'nvme', got 'disk'", ALL, {to = "disk"})
  refuses("this rank computes on the CPU, whose memory is the host's", ALL, {to = "host"})
  refuses('to = "nvme" needs a folder', ALL, {to = "nvme"})
  refuses("folder has an effect only with to", ALL, {to = "host", folder = "/tmp"})
  refuses("unknown option 'ratio'", ALL, {to = "nvme", folder = "/tmp", ratio = 0.5})
  refuses("/no/such", ALL, {to = "nvme", folder = "/no/such"})
  refuses("unknown option 'fodler'", ALL, {to = "nvme", fodler = "/tmp"})
  if ranks > 1 then
    local what = zt.world.rank == 0 and {"optimizer"} or {"gradients"}
    refuses("what trainer:evict takes is optimizer on rank 0 and gradients on rank 1", what, FILES)
    refuses("/no/such", ALL, {to = "nvme", folder = zt.world.rank == 0 and small.folder or "/no/such"})
    refuses("unknown data", zt.world.rank == 0 and ALL or {"weights"}, FILES)
  end
  local judge = zt.trainer(program_of(options), {})
  lu.assertErrorMsgContains("this trainer has no optimizer, so it has no gradients", judge.evict, judge, {"gradients"}, FILES)
  judge:evict({"parameters"}, FILES)
  judge:fetch()
  trainer:step(batch(1)) -- nothing has changed
end

small.run("TestOffloadPhases", TestOffloadPhases)
