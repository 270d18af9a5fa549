-- Tests actions and passes written in Lua: no mistake of a script in them is silently ignored.
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, optim = require "zt.comm", require "zt.nn", require "zt.optim"

local VOCAB, SEQ, SAMPLES = 11, 4, 4

local function batch()
  local tokens = zt.arange(SAMPLES * SEQ):remainder(VOCAB):view({SAMPLES, SEQ}):to "int64"
  return {tokens = tokens, labels = tokens}
end

local names = 0

-- Returns a trainer whose program calls `run` after NORM, for unit 0.
local function trainer_with(run, target)
  names = names + 1
  local action = zt.action{name = "TRY_" .. names, target = target, reads = {"scalars"}, start = run}
  local pass = zt.pass{name = "try", phase = "overlap", actions = {action}, apply = function(program)
    for place, each in ipairs(program.actions) do
      if each.kind == "NORM" then
        table.insert(program.actions, place + 1, action(target ~= "none" and 0 or nil))
        break
      end
    end
    return program
  end}
  local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3}
  return zt.trainer(zt.program(model):apply(pass), {optimizer = optim.sgd{lr = 0.1}})
end

local function assert_refused(message, run)
  local trainer = trainer_with(run)
  lu.assertErrorMsgContains(message, trainer.step, trainer, batch())
end

local TestAction = {}

function TestAction:test_fields_that_there_are()
  local seen
  trainer_with(function(ctx, action)
    local unit, params = ctx.unit, ctx.unit.params
    seen = {action.kind, unit.index, unit.name, unit.grad_shard:dim(), unit.grad:dim(), unit.full:dim(), unit.first, ctx.step,
      params[1].name, params[1].offset}
    for key in pairs(ctx) do seen[key] = true end
  end):step(batch())
  lu.assertEquals(seen, {"TRY_" .. names, 0, "embedding.weight", 1, 1, 1, 0, 0, "embedding.weight", 0, step = true, loss = true,
    grad_norm = true, grad_divisor = true, unit = true, buffer = true})
end

-- Returns a step whose action after STEP 1 calls `run`, with the resources `reads` and `writes`.
local function step_with(reads, writes, run, freeze)
  names = names + 1
  local action = zt.action{name = "TRY_" .. names, reads = reads, writes = writes, start = run}
  local pass = zt.pass{phase = "overlap", actions = {action}, apply = function(program)
    program.actions[#program.actions + 1] = action(1)
    return program
  end}
  local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3}
  if freeze then model:freeze "^embedding[.]position" end
  local trainer = zt.trainer(zt.program(model):apply(pass), {optimizer = optim.adamw{lr = 0.1}})
  return trainer:step(batch()), trainer
end

-- What an action declares it can reach: the optimizer's state, too.
function TestAction:test_the_state_of_the_optimizer()
  local keys, first = {}, nil
  local _, trainer = step_with({}, {"state"}, function(ctx)
    local unit = ctx.unit
    for name, tensor in pairs(unit.state) do keys[#keys + 1] = name .. tensor:dim() end
    first = unit.state.exp_avg[0]:item()
    unit.state.exp_avg:zero_()
    lu.assertErrorMsgContains("unit.state.exp_avgs does not exist: did you mean 'exp_avg'?",
                              function() return unit.state.exp_avgs end)
  end)
  table.sort(keys)
  lu.assertEquals(keys, {"exp_avg1", "exp_avg_sq1"})
  lu.assertTrue(first ~= 0)
  lu.assertEquals(trainer:optimizer_state(trainer:parameters()[2]).exp_avg:abs():sum():item(), 0)
  lu.assertErrorMsgContains("unit.state.mine is assigned", step_with, {}, {"state"}, function(ctx) ctx.unit.state.mine = 1 end)
  lu.assertErrorMsgContains("unit.state is assigned", step_with, {}, {"state"}, function(ctx) ctx.unit.state = {} end)
end

function TestAction:test_a_frozen_unit_has_no_state()
  local seen = {}
  step_with({"state", "grad"}, {}, function(ctx)
    seen = {ctx.unit.state == nil, ctx.unit.grad == nil, ctx.unit.grad_sum == nil}
  end, true)
  lu.assertEquals(seen, {true, true, true})
end

function TestAction:test_resources_of_another_target()
  for name, target in pairs{value = "position", buffers = "layer"} do
    lu.assertErrorMsgContains(("'%s' is data of a %s, and its target is \"unit\""):format(name, target), zt.action,
                              {name = "TRY", reads = {name}, start = print})
  end
  lu.assertErrorMsgContains("'value' is of one micro-batch: give micro_batch = true", zt.action,
                            {name = "TRY", target = "position", reads = {"value"}, start = print})
end

function TestAction:test_unknown_fields_are_errors()
  assert_refused("unit.masters does not exist: did you mean 'master'?", function(ctx) return ctx.unit.masters end)
  assert_refused("ctx.norm does not exist", function(ctx) return ctx.norm end)
end

function TestAction:test_assigned_fields_are_errors()
  assert_refused("unit.master is assigned", function(ctx) ctx.unit.master = ctx.unit.master * 2 end)
  assert_refused("unit.mine is assigned", function(ctx) ctx.unit.mine = 1 end)
  assert_refused("ctx.loss is assigned", function(ctx) ctx.loss = 0 end)
end

function TestAction:test_a_returned_value_is_an_error()
  assert_refused("returned a tensor", function(ctx) return ctx.unit.master * 2 end)
  assert_refused("returned a boolean", function() return nil, true end)
  trainer_with(function() return nil end):step(batch())
end

-- A script gets views: with another shape or memory, they would no longer be the unit's tensors.
function TestAction:test_another_shape_or_memory_is_an_error()
  for _, change in ipairs{
    function(unit) unit.master:resize_{1} end, function(unit) unit.master:set_(zt.zeros{3}) end,
    function(unit) unit.master:set_(unit.master:clone()) end,
  } do
    assert_refused("the action gave ctx.unit.master, which is float32[", function(ctx) change(ctx.unit) end)
  end
end

-- A step that fails after an action has changed the parameters is not undone.
function TestAction:test_a_failed_step_after_changed_parameters()
  local change = zt.action{name = "CHANGE_PARAM", reads = {"param"}, writes = {"param"}, start = function(ctx)
    ctx.unit.full:add_(0.5)
  end}
  local pass = zt.pass{phase = "overlap", actions = {change}, apply = function(program)
    if program.mode == "train" then table.insert(program.actions, 2, change(0)) end
    return program
  end}
  local failing = nn.layer{forward = function(_, h, ctx)
    if ctx.mode == "train" then error "bad data" end
    return h
  end}
  local model = nn.sequential{nn.embedding{vocab = VOCAB, hidden = 4}, failing, nn.lm_loss{vocab = VOCAB, hidden = 4}}
  local trainer = zt.trainer(zt.program(model):apply(pass), {optimizer = optim.sgd{lr = 0.1}})
  lu.assertErrorMsgContains("ranks may have changed parameters", trainer.step, trainer, batch())
  lu.assertErrorMsgContains("load a checkpoint", trainer.evaluate, trainer, batch())
end

-- An action of the role "update" is left out where STEP is, others are not.
function TestAction:test_a_skipped_step()
  for role, wanted in pairs{other = 2, update = 1} do
    names = names + 1
    local count = 0
    local action = zt.action{name = "TRY_" .. names, role = role, target = "none", start = function() count = count + 1 end}
    local pass = zt.pass{phase = "overlap", actions = {action}, apply = function(program)
      if program.mode == "train" then table.insert(program.actions, action()) end
      return program
    end}
    local loss = zt.loss(function(out, ctx) return out.logits:sum() * (ctx.step == 0 and 0 / 0 or 1) end)
    local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3, loss = false}:append(loss)
    local trainer = zt.trainer(zt.program(model):apply(pass), {optimizer = optim.sgd{lr = 0.1}, on_nonfinite = "skip"})
    lu.assertTrue(trainer:step(batch()).skipped)
    lu.assertFalse(trainer:step(batch()).skipped)
    lu.assertEquals(count, wanted, role)
  end
end

-- A gather in a script may write with any operator: autograd does not take it for a change of what layers have read.
function TestAction:test_a_gather_written_with_operators()
  local zero, mesh = require "zt.zero", comm.mesh{dp = -1}
  local gather = zt.action{replaces = "UNSHARD", start = function(ctx) ctx.out:copy_(ctx.unit.shard:clone()) end}
  local pass = zt.pass{phase = "overlap", mesh = mesh, actions = {gather}, apply = function(program) return program end}
  local own = nn.layer{params = {w = zt.ones{4}}, forward = function(layer, h) return h * layer.w:pow(2) end}
  local function losses(has_pass)
    local model = nn.sequential{nn.embedding{vocab = VOCAB, hidden = 4}, own, nn.lm_loss{vocab = VOCAB, hidden = 4}}
    local program = zt.program(model):apply(zero.shard{stage = 3, axis = mesh.dp, node_shared = false})
    local trainer = zt.trainer(has_pass and program:apply(pass) or program, {optimizer = optim.sgd{lr = 0.1}})
    return {trainer:step(batch()).loss, trainer:step(batch()).loss}
  end
  lu.assertEquals(losses(true), losses(false))
end

function TestAction:test_without_a_unit()
  local unit_seen, divisor = 1, nil
  trainer_with(function(ctx) unit_seen, divisor = ctx.unit, ctx.grad_divisor end, "none"):step(batch())
  lu.assertNil(unit_seen)
  lu.assertTrue(divisor > 0)
end

local ffi = require "ffi"
ffi.cdef "int setenv(const char *name, const char *value, int overwrite);"

local TestResourceCheck = {}

function TestResourceCheck:setUp() ffi.C.setenv("ZT_CHECK_RESOURCES", "1", 1) end
function TestResourceCheck:tearDown() ffi.C.setenv("ZT_CHECK_RESOURCES", "0", 1) end

function TestResourceCheck:test_undeclared_fields_are_errors()
  local undeclared = 'the action touches ctx.unit.master and does not declare it: add "master"'
  assert_refused(undeclared, function(ctx) return ctx.unit.master end)
  assert_refused('add "grad" to its reads or writes', function(ctx) return ctx.unit.grad_shard end)
  trainer_with(function(ctx) return nil, ctx.unit.name == "" or nil end):step(batch())
end

function TestResourceCheck:test_changes_of_what_is_only_read_are_errors()
  local try = step_with
  local function halve(ctx) ctx.unit.master:mul_(0.5) end
  lu.assertErrorMsgContains("changed the param of unit 'embedding'", try, {"master"}, {}, halve)
  try({}, {"master"}, halve)
  try({"master", "grad"}, {}, function() end)
  local function clear(ctx) ctx.unit.grad_shard:zero_() end
  lu.assertErrorMsgContains('add "grad" to its writes', try, {"grad"}, {"master"}, clear)
end

function TestResourceCheck:test_another_value_is_an_error()
  ffi.C.setenv("ZT_CHECK_RESOURCES", "yes", 1)
  lu.assertErrorMsgContains("ZT_CHECK_RESOURCES=yes: give 1", trainer_with, function() end)
end

local TestPass = {}

local function apply(change)
  local pass = zt.pass{name = "change", phase = "overlap", apply = function(program) return change(program) or program end}
  local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = VOCAB, seq = SEQ}
  return zt.program(model, {micro_batches = 2}):apply(pass):text()
end

function TestPass:test_only_actions_may_change()
  lu.assertStrContains(apply(function() end), "micro_batches=2")
  lu.assertErrorMsgContains("the pass change: it sets program.micro_batches", apply, function(p) p.micro_batches = 4 end)
  lu.assertErrorMsgContains("the pass change: it sets program.mode", apply, function(p) p.mode = "eval" end)
  lu.assertErrorMsgContains("it sets 0 unit plans for the ", apply, function(p) p.units = {} end)
  lu.assertErrorMsgContains("it sets program.unit, which would have no effect", apply, function(p) p.unit = 1 end)
  lu.assertStrContains(apply(function(p) p.precision.params = "bf16" end), "params=bf16")
  local function only_in_evaluation(program)
    if program.mode == "eval" then program.precision.params = "bf16" end
    return program
  end
  local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = VOCAB, seq = SEQ}
  local pass = zt.pass{phase = "overlap", apply = only_in_evaluation}
  lu.assertErrorMsgContains("the training program has parameters of", zt.trainer, zt.program(model):apply(pass),
                            {optimizer = optim.sgd{lr = 1}})
  lu.assertErrorMsgContains("it returned a program without 'units'", apply, function(p) return {actions = p.actions} end)
end

-- A pass that says along which axes it differs is called once for each place along them, and sees no other coordinate.
function TestPass:test_differs_along()
  local mesh = comm.mesh{dp = 1, pp = -1, order = {"pp", "dp"}}
  local seen = {}
  local function program_of(differs_along)
    local function apply_it(program, info)
      seen[#seen + 1] = info.coord
      return program
    end
    local pass = zt.pass{name = "look", phase = "overlap", mesh = mesh, differs_along = differs_along, apply = apply_it}
    return zt.program(nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = VOCAB, seq = SEQ}):apply(pass)
  end
  program_of(nil):text()
  lu.assertEquals(seen[1], {rank = 0, axes = {dp = {size = 1, coordinate = 0}, pp = {size = 1, coordinate = 0}}})
  program_of{"pp"}:text()
  lu.assertEquals(seen[2], {axes = {dp = {size = 1}, pp = {size = 1, coordinate = 0}}})
  lu.assertErrorMsgContains("differs_along = 'qq', which is no axis of the mesh", zt.trainer, program_of{"qq"},
                            {optimizer = optim.sgd{lr = 1}})
end

local SUITES = {{"TestAction", TestAction}, {"TestResourceCheck", TestResourceCheck}, {"TestPass", TestPass}}
os.exit(lu.LuaUnit.new():runSuiteByInstances(SUITES))
