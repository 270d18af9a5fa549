-- Tests zt.initialize: an engine trains exactly as its trainer does. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm = require "zt.comm"
local optim = require "zt.optim"
local zero = require "zt.zero"
local small = require "support.small_engine"

local batch, engine_of, gpt, micro_batch = small.batch, small.engine_of, small.gpt, small.micro_batch
local assert_same, three_calls, weights = small.assert_same, small.three_calls, small.weights
local MICRO, PARTS, ROWS, SEQ, WORLD = small.micro, small.parts, small.rows, small.seq, zt.world.size

local TestEngine = {}

-- All ways to run a step give the same bits. The numbers of tokens, micro-batches and ranks are powers of two, so that dividing
-- by them does not round.
function TestEngine:test_all_ways_to_step_are_one()
  for stage = 0, 3 do
    local more = {zero_optimization = {stage = stage}}
    local by_calls, whole, iterated = engine_of(more), engine_of(more), engine_of(more)
    local mesh = comm.mesh{dp = -1}
    local trainer = zt.trainer(zt.program(gpt(), {micro_batches = PARTS}):apply(zero.shard{stage = stage, axis = mesh.dp}),
                               {optimizer = optim.sgd{lr = 0.5}, clip = 1})
    for step = 0, 2 do
      local expected = trainer:step(batch(step))
      lu.assertEquals(whole:train_batch(batch(step)), expected.loss)
      lu.assertEquals(whole:get_global_grad_norm(), expected.grad_norm)
      local part = -1
      lu.assertEquals(iterated:train_batch(function() part = part + 1 return micro_batch(step, part) end), expected.loss)
      local losses = three_calls(by_calls, step)
      lu.assertEquals(by_calls.result.loss, expected.loss)
      lu.assertEquals(by_calls:get_global_grad_norm(), expected.grad_norm)
      local sums = mesh.dp:gather_values(losses[1] + losses[2])
      local sum = 0
      for _, one in ipairs(sums) do sum = sum + one end
      lu.assertAlmostEquals(sum / (PARTS * WORLD), expected.loss, 4 * 2^-52 * expected.loss)
    end
    assert_same(by_calls, whole)
    assert_same(iterated, whole)
  end
end

function TestEngine:test_a_dot_in_place_of_a_colon()
  local engine = engine_of{}
  for _, name in ipairs{"forward", "backward", "step", "train_batch", "save_checkpoint"} do
    lu.assertErrorMsgContains(("'%s' is a method: write engine:%s(...) with ':', not engine.%s(...)"):format(name, name, name),
                              function() engine[name](2.5) end)
  end
end

function TestEngine:test_counters_and_boundaries()
  local engine = engine_of{zero_optimization = {stage = 1}}
  local function counters()
    return {engine.global_steps, engine.micro_steps, engine.global_samples, engine:is_gradient_accumulation_boundary(),
            engine:was_step_applied()}
  end
  lu.assertEquals(counters(), {0, 0, 0, false, false})
  local before = weights(engine)
  for part = 0, 1 do
    local loss = engine:forward(micro_batch(0, part))
    lu.assertEquals(engine:backward(loss), loss / PARTS)
    lu.assertEquals(engine:is_gradient_accumulation_boundary(), part == 1)
    engine:step()
    lu.assertEquals(weights(engine):equal(before), part == 0)
  end
  lu.assertEquals(counters(), {1, 2, ROWS * WORLD, false, true})
  engine:train_batch(batch(1))
  lu.assertEquals(counters(), {2, 4, 2 * ROWS * WORLD, false, true})
  engine:backward(engine(micro_batch(2, 0)))
  engine:step()
  lu.assertEquals(counters(), {2, 5, 2 * ROWS * WORLD, true, false})
end

function TestEngine:test_what_it_is_made_of()
  local engine = engine_of{zero_optimization = {stage = 2}, gradient_clipping = 0.25}
  lu.assertEquals({engine:train_batch_size(), engine:train_micro_batch_size_per_gpu(), engine:gradient_accumulation_steps(),
                   engine:zero_optimization_stage(), engine:loss_scale(), engine:get_lr()},
                  {ROWS * WORLD, MICRO, PARTS, 2, 1, 0.5})
  lu.assertEquals({engine.optimizer.kind, engine.mesh.dp.size, engine.axis.name, engine.config.clip}, {"sgd", WORLD, "dp", 0.25})
  lu.assertNil(engine.schedule)
  lu.assertNil(engine:get_global_grad_norm())
  lu.assertStrContains(engine.trainer:text(), "REDUCE_GRAD")
end

function TestEngine:test_recompute_changes_no_bit()
  local plain, again = engine_of(), engine_of{pipeline = {activation_checkpoint_interval = 2}}
  lu.assertStrContains(again.trainer:text(), "R 1 0")
  lu.assertEquals(again:train_batch(batch(0)), plain:train_batch(batch(0)))
  assert_same(again, plain)
end

function TestEngine:test_eval_leaves_weights_and_counters()
  local engine = engine_of{zero_optimization = {stage = 3}}
  local before = weights(engine)
  engine:eval()
  local loss = engine(batch(0))
  lu.assertEquals(engine:eval_batch(batch(0)), loss)
  local part = -1
  lu.assertEquals(engine:eval_batch(function() part = part + 1 return micro_batch(0, part) end), loss)
  engine(micro_batch(0, 1)) -- any number of samples
  lu.assertEquals({engine.global_steps, engine.micro_steps}, {0, 0})
  lu.assertTrue(weights(engine):equal(before))
  engine:train()
  -- Both are the mean of the same fp32 numbers, added in another order: the bound is one rounding per addition.
  lu.assertAlmostEquals(engine:train_batch(batch(0)), loss, ROWS * SEQ * WORLD * 2^-24 * loss)
end

function TestEngine:test_a_stream_of_batches()
  local asked = {}
  local stream = {batch = function(_, step)
    asked[#asked + 1] = step
    return batch(step)
  end}
  local engine, other = engine_of({}, {data = stream}), engine_of()
  for step = 0, 1 do lu.assertEquals(engine:train_batch(), other:train_batch(batch(step))) end
  lu.assertEquals(asked, {0, 1})
end

function TestEngine:test_its_own_mesh()
  local mesh = comm.mesh{tp = 1, dp = -1, order = {"tp", "dp"}}
  local engine, other = engine_of({}, {mesh = mesh}), engine_of({}, {mesh = mesh, axis = mesh.dp})
  lu.assertEquals(engine:train_batch(batch(0)), other:train_batch(batch(0)))
  lu.assertEquals({engine.mesh, engine:train_batch_size()}, {mesh, ROWS * WORLD})
end

local TestMistakes = {}

local function assert_fails(expected, engine, method, ...) lu.assertErrorMsgContains(expected, engine[method], engine, ...) end

function TestMistakes:test_calls_in_the_wrong_order()
  local engine, other = engine_of(), engine_of()
  assert_fails("engine:backward: there is no engine:forward(batch) in training mode before it", engine, "backward", 1)
  assert_fails("engine:step: there is no engine:forward and engine:backward before it", engine, "step")
  local loss = engine(micro_batch(0, 0))
  assert_fails("its loss is not yet given to engine:backward", engine, "forward", micro_batch(0, 0))
  assert_fails("engine:step: engine:backward(loss) is missing", engine, "step")
  assert_fails("engine:backward takes the loss that engine:forward returned", engine, "backward", loss * 2)
  assert_fails("got nil", engine, "backward")
  engine:backward(loss)
  assert_fails("the gradient of this micro-batch is there already", engine, "backward", loss)
  assert_fails("engine:step() is missing", engine, "forward", micro_batch(0, 1))
  engine:step()
  for _, method in ipairs {"train_batch", "eval_batch"} do
    assert_fails(("engine:%s: a step is under way, with 1 of 2 micro-batches"):format(method), engine, method, batch(0))
  end
  engine:backward(engine(micro_batch(0, 1)))
  engine:step()
  three_calls(other, 0)
  assert_same(engine, other) -- the mistakes changed nothing
end

function TestMistakes:test_unknown_members()
  local engine = engine_of()
  lu.assertErrorMsgContains("an Engine has no member 'gloabl_steps': did you mean 'global_steps'?",
                            function() return engine.gloabl_steps end)
  lu.assertErrorMsgContains("'train_bach': did you mean 'train_batch'?", function() engine:train_bach{} end)
  lu.assertEquals({engine.data, engine.schedule, engine.result}, {})
end

function TestMistakes:test_arguments()
  local engine = engine_of()
  assert_fails("engine:save_checkpoint: the folder must be a string, got nil", engine, "save_checkpoint")
  assert_fails("engine:load_checkpoint: the folder must be a string, got nil", engine, "load_checkpoint")
  assert_fails("engine:save_16bit_model: the folder must be a string, got nil", engine, "save_16bit_model")
  assert_fails("engine:save_checkpoint: the client state must be a table, got an integer", engine, "save_checkpoint", "x", "t", 5)
  assert_fails("engine:set_lr takes a rate of at least 0, or nil, got a string", engine, "set_lr", "x")
  assert_fails("engine:train: the argument must be true or false, got an integer", engine, "train", 0)
  assert_fails("the iterator returned an integer, where a micro-batch", engine, "train_batch", function() return 5 end)
  assert_fails("the field 'tokens' of a micro-batch must be a tensor", engine, "train_batch", function() return {tokens = 5} end)
  lu.assertErrorMsgContains("zt.initialize.optimizer must be an Optimizer, such as optim.adamw{...}, got an integer",
                            engine_of, nil, {optimizer = 5})
  lu.assertErrorMsgContains("zt.initialize.schedule must be a Schedule, such as optim.warmup_cosine{...}, or function(updates) "
    .. "that returns the rate, got a table", engine_of, nil, {schedule = {}})
  lu.assertErrorMsgContains("zt.initialize.data must be a stream with the method batch(step)", engine_of, nil, {data = {}})
  lu.assertErrorMsgContains("returns one, and the function returned nil", engine_of, nil, {model = function() end})
end

function TestMistakes:test_batches()
  local engine = engine_of()
  assert_fails(("engine:forward got %d samples, but this rank's part is %d, train_micro_batch"):format(ROWS, MICRO), engine,
               "forward", batch(0))
  assert_fails(("engine:train_batch got %d samples, but this rank's part is %d"):format(MICRO, ROWS), engine, "train_batch",
               micro_batch(0, 0))
  assert_fails("the iterator ended after 0 of 2 micro-batches", engine, "train_batch", function() end)
  assert_fails("without either zt.initialize needs data", engine, "train_batch")
  assert_fails("engine:eval_batch takes this rank's batch", engine, "eval_batch")
  for missing = 0, 1 do
    local part = -1
    assert_fails("1 of 2 micro-batches have no field 'labels'", engine, "train_batch", function()
      part = part + 1
      return part == missing and {tokens = micro_batch(0, 0).tokens} or micro_batch(0, 0)
    end)
  end
  assert_fails("the batch field 'tokens' must be a tensor", engine, "forward", {tokens = 3})
  lu.assertEquals(engine:train_batch(batch(0)), engine_of():train_batch(batch(0)))
end

function TestMistakes:test_options()
  lu.assertErrorMsgContains("zt.initialize: option 'config' is missing", zt.initialize, {model = gpt()})
  lu.assertErrorMsgContains("did you mean 'optimizer'?", engine_of, {}, {optimiser = 1})
  lu.assertErrorMsgContains("unknown key 'train_batch'", engine_of, {train_batch = 1})
  lu.assertErrorMsgContains("there is no optimizer", zt.initialize, {model = gpt(), config = "{train_batch_size: 4}"})
  lu.assertErrorMsgContains("zt.initialize.axis is an axis of a mesh", engine_of, {}, {axis = comm.mesh{dp = -1}.dp})
  local global = ROWS * WORLD + 1
  lu.assertErrorMsgContains(("train_batch_size = %d, but"):format(global), engine_of, {train_batch_size = global})
end

function TestMistakes:test_what_it_has_not()
  local engine = engine_of()
  assert_fails("leave the call out", engine, "zero_grad")
  assert_fails("engine:set_lr takes a rate of at least 0", engine, "set_lr", -1)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestEngine", TestEngine}, {"TestMistakes", TestMistakes}})
