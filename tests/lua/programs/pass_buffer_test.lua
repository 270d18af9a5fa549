-- Tests what a pass of a script brings beside actions: buffers (zt.buffer), works that an action returns, and handlers that take
-- the place of those of known kinds. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, comm, nn, optim, zero = require "zt.ckpt", require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"
local assert_same = require("support.small_trainer").assert_same
local temporary = require "support.temporary"

local VOCAB, SEQ = 29, 8
local rank, ranks = zt.world.rank, zt.world.size
local mesh = comm.mesh{dp = -1}

local function batch(step)
  local all = (zt.arange(8 * SEQ) * 3 + step):remainder(VOCAB):view{8, SEQ}:to "int64"
  local tokens = all:narrow(0, rank * 8 / ranks, 8 / ranks):contiguous()
  return {tokens = tokens, labels = tokens}
end

local function trainer_of(pass, options)
  options = options or {}
  local model = nn.gpt{layers = 2, hidden = 16, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3}
  local program = zt.program(model, {micro_batches = 2, precision = options.precision})
    :apply(zero.shard{axis = mesh.dp, stage = options.stage or 1, reduce_every = "step"})
  if pass then program = program:apply(pass) end
  return zt.trainer(program, {optimizer = optim.adamw{lr = 1e-2}, clip = 1})
end

local function train(trainer, first, last)
  for step = first, last do trainer:step(batch(step)) end
  return trainer
end

-- Returns a pass that calls start(ctx, action) after each STEP, with these buffers and other options of the action.
local function after_steps(buffers, start, options)
  local given = {name = "AFTER_STEP", role = "update", reads = {"master", "scalars"}, buffers = buffers, start = start}
  for key, value in pairs(options or {}) do given[key] = value end
  local action = zt.action(given)
  return zt.pass{phase = "overlap", mesh = mesh, actions = {action}, buffers = buffers, apply = function(program)
    local list = {}
    for _, each in ipairs(program.actions) do
      list[#list + 1] = each
      if each.kind == "STEP" then list[#list + 1] = action(each.target) end
    end
    program.actions = list
    return program
  end}
end

local TestReplaced = {}

-- A reduction written in Lua gives the bits of the built-in one, at all stages, as a whole and by micro-batch.
function TestReplaced:test_an_exact_reduction()
  local seen = 0
  local reduce = zt.action{replaces = "REDUCE_GRAD", start = function(ctx)
    seen = seen + 1
    local grad, out = ctx.unit.grad, ctx.out
    if out:numel() == grad:numel() then return mesh.dp:all_reduce(out, grad, {async = true}) end
    lu.assertEquals(ctx.unit.first, rank * out:numel())
    local work = mesh.dp:reduce_scatter(out, grad, {async = true})
    return work:then_(function() seen = seen + 0.25 end)
  end}
  for stage = 0, 3 do
    for _, precision in ipairs{"fp32", "bf16"} do
      local options = {stage = stage, precision = precision}
      seen = 0
      local mine = train(trainer_of(zt.pass{phase = "reduction", mesh = mesh, actions = {reduce}}, options), 1, 3)
      lu.assertTrue(seen > 0)
      if stage == 3 and ranks > 1 then lu.assertEquals(seen % 1.25, 0) end
      assert_same(mine, train(trainer_of(nil, options), 1, 3), (" at stage %d in %s"):format(stage, precision))
    end
  end
end

-- Parameters that are gathered in Lua, as a gather that sends fewer bits would.
function TestReplaced:test_a_gather()
  local gather = zt.action{replaces = "UNSHARD", start = function(ctx)
    return mesh.dp:all_gather(ctx.out, ctx.unit.shard, {async = true})
  end}
  for _, stage in ipairs{1, 3} do
    local mine = train(trainer_of(zt.pass{phase = "reduction", mesh = mesh, actions = {gather}}, {stage = stage}), 1, 2)
    assert_same(mine, train(trainer_of(nil, {stage = stage}), 1, 2), " at stage " .. stage)
  end
end

-- Where layers read the master parameters, a gather that rounds would change them.
function TestReplaced:test_a_gather_that_rounds()
  if ranks == 1 then return end
  local gather = zt.action{replaces = "UNSHARD", start = function(ctx)
    return mesh.dp:all_gather(ctx.out, (ctx.unit.shard * 64):round() / 64, {async = true})
  end}
  local function rounded(options)
    return trainer_of(zt.pass{phase = "reduction", mesh = mesh, actions = {gather}}, options)
  end
  local wrong = rounded{stage = 1, precision = "fp32"}
  lu.assertErrorMsgContains("changed the master parameters of unit", train, wrong, 1, 1)
  lu.assertTrue(train(rounded{stage = 1, precision = "bf16"}, 1, 2):step(batch(3)).loss > 0)
end

-- A work is complete once what hangs on it has run.
function TestReplaced:test_works()
  local tensor, ran = zt.ones{4}, 0
  local work = mesh.dp:all_reduce(tensor, {async = true}):then_(function() ran = ran + 1 end)
  while not work:done() do end
  lu.assertEquals(ran, 1)
  work:wait()
  lu.assertEquals(ran, 1)
  lu.assertErrorMsgContains("function expected", work.then_, work, 3)
end

function TestReplaced:test_mistakes()
  local function reduce() return zt.action{replaces = "REDUCE_GRAD", start = print} end
  local function pass(actions) return zt.pass{name = "mine", phase = "reduction", mesh = mesh, actions = actions} end
  lu.assertErrorMsgContains("both replace what REDUCE_GRAD does", trainer_of, pass{reduce(), reduce()})
  lu.assertErrorMsgContains("replaces", zt.action, {replaces = "F", start = print})
  lu.assertErrorMsgContains("keeps the name, target, resources", zt.action,
                            {replaces = "REDUCE_GRAD", reads = {"grad"}, start = print})
  lu.assertErrorMsgContains("needs the name of a new kind", zt.action, {start = print})
  lu.assertErrorMsgContains("start", zt.action, {name = "OLD", run = print})
  local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = VOCAB, seq = SEQ}
  lu.assertErrorMsgContains("which no pass brings: apply the pass that inserts it", function()
    zt.trainer(zt.program(model):apply(pass{reduce()}), {optimizer = optim.sgd{lr = 1}, separate = true})
  end)
end

local TestBuffer = {}

local function ema_pass(counts)
  local ema = zt.buffer{name = "ema", residence = "sharded"}
  return after_steps({ema}, function(ctx)
    counts[ctx.unit.name] = (counts[ctx.unit.name] or 0) + 1
    ctx.buffer.ema:mul_(0.5):add_(ctx.unit.master * 0.5)
  end)
end

-- A sharded buffer is cut, saved and resharded as the optimizer's state.
function TestBuffer:test_an_average_of_parameters()
  local name, by_stage = "blocks.1.mlp.up.weight", {}
  for stage = 0, 3 do
    local counts = {}
    local trainer = trainer_of(ema_pass(counts), {stage = stage})
    lu.assertEquals(trainer:buffer("ema", name):abs():sum():item(), 0)
    train(trainer, 1, 1)
    lu.assertTrue(trainer:buffer("ema", name):equal(trainer:master(name) * 0.5))
    lu.assertEquals(counts["blocks.1"], 1)
    train(trainer, 2, 3)
    by_stage[stage] = trainer:buffer("ema", name)
    lu.assertTrue(by_stage[stage]:equal(by_stage[0]))
    local folder = temporary()
    ckpt.save(folder, {trainer = trainer}, {step = 2, async = false})
    local other = trainer_of(ema_pass({}), {stage = (stage + 1) % 4})
    ckpt.load(folder, {trainer = other})
    lu.assertTrue(other:buffer("ema", name):equal(by_stage[stage]))
    assert_same(train(other, 4, 4), train(trainer, 4, 4), " after a load")
    lu.assertTrue(other:buffer("ema", name):equal(trainer:buffer("ema", name)))
  end
  lu.assertErrorMsgContains("unknown resource 'emas': did you mean 'ema'?", function()
    trainer_of(ema_pass({})):buffer("emas", name)
  end)
  lu.assertErrorMsgContains("no pass gives this rank a buffer 'ema'", function() trainer_of():buffer("ema", name) end)
end

-- Buffers of the run, of units with a shape of their own, and with other values on each rank.
function TestBuffer:test_other_residences()
  local count = zt.buffer{name = "count", of = "run", shape = {1}, dtype = "int64"}
  local own = zt.buffer{name = "own", residence = "own"}
  local norms = zt.buffer{name = "norms", shape = function(unit, info)
    lu.assertEquals(info.units[unit.index + 1].name, unit.name)
    if unit.trainable then return {#unit.params, 2} end
  end}
  local seen = {}
  local function make()
    return trainer_of(after_steps({count, own, norms}, function(ctx)
      ctx.buffer.count:add_(1)
      ctx.buffer.own:add_(rank + 1)
      ctx.buffer.norms:add_(ctx.step)
      seen[ctx.unit.name] = {ctx.buffer.count:item(), ctx.buffer.own[0]:item(), ctx.buffer.norms:size(0), ctx.unit.params}
    end, {name = "COUNT_STEPS"}))
  end
  local trainer = train(make(), 1, 2)
  lu.assertEquals(seen["blocks.1"][2], 2 * (rank + 1))
  lu.assertEquals(seen["blocks.1"][3], #seen["blocks.1"][4])
  local counted = seen["head"][1]
  local folder = temporary()
  ckpt.save(folder, {trainer = trainer}, {step = 2, async = false})
  local other = make()
  ckpt.load(folder, {trainer = other})
  train(other, 3, 3)
  lu.assertEquals(seen["blocks.1"][2], 3 * (rank + 1))
  lu.assertEquals(seen["head"][1], counted * 3 / 2)
  lu.assertStrContains(tostring(other:report()), "buffers")
  lu.assertEquals(other:buffer("count"):item(), counted * 3 / 2)
  lu.assertEquals(other:buffer("own", "head"):max():item(), 3 * (rank + 1))
  lu.assertErrorMsgContains("no pass has a buffer 'own' of the run", other.buffer, other, "own")
end

-- Values of a position for a micro-batch, and the layers' own buffers.
function TestBuffer:test_values_of_positions()
  local sums = zt.buffer{name = "sums", of = "position", shape = {2}}
  local look = zt.action{name = "LOOK_AT_VALUE", target = "position", micro_batch = true, reads = {"value"}, buffers = {sums},
                         start = function(ctx, action)
    lu.assertEquals(ctx.position.index, action.target)
    ctx.buffer.sums[action.micro_batch]:copy_(ctx.position.value.h:sum())
  end}
  local seen = {}
  local show = zt.action{name = "SHOW_SUMS", target = "position", buffers = {sums}, start = function(ctx)
    seen[ctx.position.name] = ctx.buffer.sums:tolist()
  end}
  local pass = zt.pass{phase = "overlap", mesh = mesh, actions = {look, show}, buffers = {sums}, apply = function(program, info)
    local list = {}
    for _, each in ipairs(program.actions) do
      list[#list + 1] = each
      local position = each.kind == "F" and info.positions[each.target + 1]
      if position and position.name:find "^blocks" then list[#list + 1] = look(each.target, each.micro_batch) end
    end
    for index, position in ipairs(info.positions) do
      if position.name:find "^blocks" then list[#list + 1] = show(index - 1) end
    end
    program.actions = list
    return program
  end}
  train(trainer_of(pass), 1, 1)
  for _, name in ipairs{"blocks.0", "blocks.1"} do
    lu.assertTrue(seen[name][1] ~= 0 and seen[name][2] ~= 0 and seen[name][1] ~= seen[name][2])
  end
end

function TestBuffer:test_mistakes()
  local buffer, contains = zt.buffer, lu.assertErrorMsgContains
  contains("zt.buffer.of must be one of 'run', 'unit'", buffer, {name = "a", of = "units"})
  contains("give a list of sizes, a function", buffer, {name = "a", shape = "liked"})
  contains("is that of a unit's parameters", buffer, {name = "a", of = "run"})
  contains("no axis cuts others", buffer, {name = "a", of = "run", shape = {1}, residence = "sharded"})
  contains("no axis cuts others", buffer, {name = "a", shape = {1}, residence = "sharded"})
  contains("sizes are at least 0", buffer, {name = "a", of = "run", shape = {-1}})
  contains("is registered already", buffer, {name = "master"})
  local used = buffer{name = "used_alone", residence = "own"}
  local start = function(ctx) ctx.buffer.used_alone:zero_() end
  local action = zt.action{name = "USE_ALONE", buffers = {used}, start = start}
  local function add(program) table.insert(program.actions, action(0)) return program end
  contains("it uses the buffer 'used_alone' of unit 'embedding.weight', of which this rank has none", trainer_of,
           zt.pass{phase = "overlap", mesh = mesh, actions = {action}, apply = add})
  contains("the buffer 'used_alone' of unit 'embedding.weight' is declared twice", trainer_of,
           zt.pass{phase = "overlap", mesh = mesh, actions = {action}, buffers = {used, used}, apply = add})
  local of_ranks = buffer{name = "of_ranks", of = "run", shape = function(_, info) return {info.coord.rank + 1} end}
  local function make() return trainer_of(zt.pass{phase = "overlap", mesh = mesh, buffers = {of_ranks}}) end
  if ranks > 1 then contains("the buffer 'of_ranks' of the run has another shape", make) else make() end
  local wrong = buffer{name = "wrong_shape", of = "run", shape = function() return "three" end}
  contains("the buffer 'wrong_shape'", trainer_of, zt.pass{phase = "overlap", mesh = mesh, buffers = {wrong}})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestReplaced", TestReplaced}, {"TestBuffer", TestBuffer}})
