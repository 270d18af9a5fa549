-- Tests zt.initialize{pipeline = ...}. On one rank the pipeline has one stage; ctest runs the file on two ranks, too.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, optim = require "zt.comm", require "zt.optim"
local small = require "support.small_engine"

local SIZE = zt.world.size

-- All ranks of a pipeline read the same samples.
local function batch(step)
  local tokens = (zt.arange(small.rows * small.seq) + step):remainder(small.vocab):view({small.rows, small.seq}):to "int64"
  return {tokens = tokens, labels = (tokens * 3 + step):remainder(small.vocab)}
end

-- The same training without an engine, on each rank for itself.
local function alone()
  local trainer = zt.trainer(zt.program(small.gpt(), {micro_batches = small.parts}), {optimizer = optim.sgd{lr = 0.5}, clip = 1})
  local losses = {}
  for step = 1, 3 do losses[step] = trainer:step(batch(step)).loss end
  losses[4] = trainer:evaluate(batch(4)).loss
  return losses
end

local function losses_of(engine)
  local losses = {}
  for step = 1, 3 do losses[step] = engine:train_batch(batch(step)) end
  losses[4] = engine:eval_batch(batch(4))
  return losses
end

local TestPipeline = {}

function TestPipeline:test_trains_as_one_rank()
  for stage = 0, 3 do
    local engine = small.engine_of({zero_optimization = {stage = stage, reduce_bucket_size = 100}},
                                   {pipeline = {stages = SIZE, schedule = "zb_h1"}})
    -- From stage 2 on, each micro-batch's gradient is reduced by itself, which rounds in another order.
    for step, loss in ipairs(losses_of(engine)) do lu.assertAlmostEquals(loss, alone()[step], stage < 2 and 0 or 1e-6) end
    lu.assertEquals(engine:train_batch_size(), small.rows)
  end
end

function TestPipeline:test_a_mesh_of_the_script()
  local mesh = comm.mesh{pp = SIZE, dp = 1}
  lu.assertEquals(losses_of(small.engine_of({}, {mesh = mesh, pipeline = {partition = "uniform"}})), alone())
  lu.assertErrorMsgContains("does not fit the axis pp of the mesh", small.engine_of, {}, {mesh = mesh, pipeline = {stages = 7}})
end

function TestPipeline:test_keys_of_the_configuration()
  local block = {stages = SIZE, partition = "uniform"}
  lu.assertEquals(losses_of(small.engine_of({pipeline = block})), alone())
  local engine = small.engine_of({pipeline = block}, {pipeline = {stages = SIZE, schedule = "gpipe", partition = "parameters"}})
  lu.assertEquals(losses_of(engine), alone())
  for _, partition in ipairs{"best", "parameters"} do
    local named = small.engine_of({pipeline = {stages = SIZE, partition = partition}}, {pipeline = {schedule = "gpipe"}})
    lu.assertEquals(named.trainer:text(), engine.trainer:text())
  end
  if SIZE == 1 then return end
  lu.assertErrorMsgContains("pipeline.stages = 7 does not fit 2 ranks", small.engine_of, {pipeline = {stages = 7}})
  lu.assertErrorMsgContains("unknown value 'even'", small.engine_of, {pipeline = {stages = SIZE, partition = "even"}})
end

function TestPipeline:test_mistakes()
  lu.assertErrorMsgContains("give stages, the number of ranks of a pipeline", small.engine_of, {}, {pipeline = {}})
  lu.assertErrorMsgContains("stages = 7 does not fit", small.engine_of, {}, {pipeline = {stages = 7}})
  lu.assertErrorMsgContains("did you mean 'stages'?", small.engine_of, {}, {pipeline = {stage = 1}})
  if SIZE == 1 then return end
  local engine = small.engine_of({}, {pipeline = {stages = SIZE}})
  lu.assertErrorMsgContains("engine:forward: the stages of a pipeline run all micro-batches of a step together", engine.forward,
                            engine, small.micro_batch(0, 0))
  lu.assertErrorMsgContains("call engine:train_batch(batch)", engine, small.micro_batch(0, 0))
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestPipeline", TestPipeline}})
