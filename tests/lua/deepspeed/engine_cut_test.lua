-- Tests the keys of DeepSpeed's JSON that share matrices and tokens among ranks: tensor_parallel (AutoTP), sequence_parallel_size
-- (Ulysses) and those that mean sequence parallelism. An engine has the bits of the same program made by hand. Runs on one rank,
-- on two and on four.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, moe, nn, optim = require "zt.comm", require "zt.moe", require "zt.nn", require "zt.optim"
local pipe, zero = require "zt.pipe", require "zt.zero"
local small = require "support.small_engine"

local ranks = zt.world.size
local shared = ranks == 4 and 2 or ranks -- ranks along tp or cp; of four, two read other samples

local function gpt(more)
  local options = {layers = 2, hidden = 8, heads = 4, vocab = small.vocab, seq = small.seq, seed = 3}
  for key, value in pairs(more or {}) do options[key] = value end
  return nn.gpt(options)
end

-- The function that makes the model. Records its last argument.
local last_cut
local function model(_, _, cut)
  last_cut = cut
  return gpt{tensor = cut.tensor, sequence_parallel = cut.sequence_parallel, overlap = cut.overlap, context = cut.context}
end

-- Returns an engine for the text of a configuration. `options` replace those of zt.initialize.
local function engine_of(text, options)
  local all = {model = model, config = ([[{
    train_micro_batch_size_per_gpu: %d, gradient_accumulation_steps: %d, log_level: "error",
    optimizer: {type: "SGD", params: {lr: 0.5}}, %s}]]):format(small.micro, small.parts, text)}
  for key, value in pairs(options or {}) do all[key] = value end
  return zt.initialize(all)
end

-- Returns the samples of a place along the data-parallel axis.
local function batch(step, axis)
  local from = step + axis.rank * small.rows * small.seq
  local tokens = (zt.arange(small.rows * small.seq) + from):remainder(small.vocab):view({small.rows, small.seq}):to "int64"
  return {tokens = tokens, labels = (tokens * 3 + step):remainder(small.vocab)}
end

-- Fails unless the engine has the losses, norms and weights of a program made by hand over `mesh`. `how`: {cut = options of
-- nn.gpt, or model =, stage =, precision =, stages = the axis of a pipeline}.
local function assert_trains_as(engine, mesh, how)
  local program = zt.program(how.model or gpt(how.cut), {micro_batches = small.parts, precision = how.precision})
  if how.stages then program = program:apply(pipe.split{axis = how.stages, schedule = "one_f_one_b"}) end
  program = program:apply(zero.shard{axis = mesh.dp, stage = how.stage or 0})
  local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.5}, clip = 1})
  for step = 0, 2 do
    local expected = trainer:step(batch(step, mesh.dp))
    lu.assertEquals(engine:train_batch(batch(step, engine.axis)), expected.loss)
    lu.assertEquals(engine:get_global_grad_norm(), expected.grad_norm)
  end
  lu.assertEquals(engine:eval_batch(batch(3, engine.axis)), trainer:evaluate(batch(3, mesh.dp)).loss)
  for _, name in ipairs(trainer:parameters()) do
    lu.assertTrue(engine.trainer:parameter(name):equal(trainer:parameter(name)), name)
  end
end

local TestCut = {}

function TestCut:test_autotp()
  local mesh = comm.mesh{dp = -1, tp = shared}
  for stage = 0, 2 do
    for _, size in ipairs{"autotp_size: %d", "tp: {tp_size: %d, tp_grain_size: 8}", "autotp_size: %d, tp: {tp_size: 1}"} do
      local engine = engine_of(([[zero_optimization: {stage: %d}, tensor_parallel: {%s, dtype: "float32",
        vocab_parallel_lm_head: true, tp_overlap_comm: true, keep_module_on_host: true, vocab_parallel_ce_backend: "torch",
        preset_model: null}]]):format(stage, size:format(shared)))
      lu.assertEquals(engine.mesh.tp.size, shared)
      lu.assertEquals(engine:train_batch_size(), small.rows * ranks / shared)
      assert_trains_as(engine, mesh, {cut = {tensor = mesh.tp, overlap = true}, stage = stage}) -- pieces may round otherwise
    end
  end
end

-- Keys that depend on ranks which share matrices or tokens also count with the script's own mesh.
function TestCut:test_keys_with_an_own_mesh()
  if shared == 1 then return end
  local mesh = comm.mesh{dp = -1, tp = shared}
  engine_of([[activation_checkpointing: {partition_activations: true}, tensor_parallel: {tp_overlap_comm: false}]], {mesh = mesh})
  lu.assertTrue(last_cut.sequence_parallel)
  lu.assertFalse(last_cut.overlap)
  lu.assertErrorMsgContains("sequence parallelism", engine_of, "pipeline: {pipe_partitioned: true}",
    {mesh = mesh, model = gpt{tensor = mesh.tp}})
  lu.assertErrorMsgContains("no layer of the model has it: give nn.gpt or its layers sequence_parallel", engine_of,
    "activation_checkpointing: {partition_activations: true}",
    {mesh = mesh, model = function(_, _, cut) return gpt{tensor = cut.tensor} end})
  lu.assertErrorMsgContains("along tp the model's layers share the work", engine_of, "zero_optimization: {stage: 1}",
    {mesh = mesh, axis = mesh.tp})
  lu.assertErrorMsgContains("has no axis of the name cp", engine_of, "sequence_parallel_size: 2", {mesh = mesh})
  local tokens = comm.mesh{dp = -1, cp = shared}
  local engine = engine_of([[seq_parallel_communication_data_type: "bf16", zero_optimization: {stage: 1}]], {mesh = tokens})
  lu.assertEquals(engine.config.zero.reduce_dtype, "bf16")
  lu.assertNil(engine.config.context)
end

function TestCut:test_sequence_parallelism()
  local mesh = comm.mesh{dp = -1, tp = shared}
  local cut = {tensor = mesh.tp, sequence_parallel = shared > 1 or nil}
  for _, keys in ipairs{"activation_checkpointing: {partition_activations: true}",
                        "pipeline: {pipe_partitioned: true, grad_partitioned: true}", "pipeline: {grad_partitioned: true}"} do
    local engine = engine_of(("%s, tensor_parallel: {autotp_size: %d}"):format(keys, shared))
    lu.assertEquals(last_cut.sequence_parallel, cut.sequence_parallel)
    assert_trains_as(engine, mesh, {cut = cut})
  end
end

function TestCut:test_ulysses()
  local mesh = comm.mesh{dp = -1, cp = shared}
  local context = {axis = mesh.cp, method = "ulysses"}
  local function keys_of(type)
    return ("sequence_parallel_size: %d, seq_parallel_communication_data_type: %s"):format(shared, type)
  end
  assert_trains_as(engine_of(keys_of "null"), mesh, {cut = {context = context}})
  local engine = engine_of(keys_of '"bf16"' .. ', communication_data_type: "fp32"')
  lu.assertEquals(engine.mesh.cp.size, shared)
  lu.assertEquals(last_cut.context.method, shared > 1 and "ulysses" or nil)
  local reduce = shared > 1 and "bf16" or "fp32" -- without sequence parallelism, the type of its key has no effect
  assert_trains_as(engine, mesh, {cut = {context = context}, precision = {params = "fp32", reduce = reduce}})
end

function TestCut:test_three_calls()
  local mesh = comm.mesh{dp = -1, cp = shared}
  local engine = engine_of(("sequence_parallel_size: %d"):format(shared))
  local whole = engine_of(("sequence_parallel_size: %d"):format(shared))
  for part = 0, small.parts - 1 do
    local micro = {}
    for name, field in pairs(batch(0, mesh.dp)) do micro[name] = field:narrow(0, part * small.micro, small.micro):contiguous() end
    engine:backward(engine(micro))
    engine:step()
  end
  whole:train_batch(batch(0, mesh.dp))
  -- All labels are valid, so both steps are means over the same tokens; sizes are powers of two, so divisions do not round.
  lu.assertEquals(engine:get_global_grad_norm(), whole:get_global_grad_norm())
end

function TestCut:test_both_beside_each_other()
  if ranks < 4 then return end
  local mesh = comm.mesh{dp = 1, cp = 2, tp = 2, order = {"dp", "cp", "tp"}}
  local engine = engine_of "tensor_parallel: {autotp_size: 2}, sequence_parallel_size: 2, zero_optimization: {stage: 3}"
  lu.assertStrContains(tostring(engine.mesh), "dp=1 x cp=2 x tp=2")
  assert_trains_as(engine, mesh, {cut = {tensor = mesh.tp, context = {axis = mesh.cp, method = "ulysses"}}, stage = 3})
end

function TestCut:test_messages_of_a_pipeline()
  if ranks < 4 then return end
  local mesh = comm.mesh{pp = 2, dp = 1, tp = 2, order = {"pp", "dp", "tp"}}
  local engine = engine_of "tensor_parallel: {autotp_size: 2}, pipeline: {stages: 2, pipe_partitioned: true}"
  lu.assertStrContains(tostring(engine.mesh), "pp=2 x dp=1 x cp=1 x tp=2")
  assert_trains_as(engine, mesh, {cut = {tensor = mesh.tp, sequence_parallel = true}, stages = mesh.pp})
end

function TestCut:test_a_mesh_of_the_script()
  local mesh = comm.mesh{dp = -1, tp = shared}
  local whole = gpt{tensor = mesh.tp}
  assert_trains_as(engine_of(("tensor_parallel: {autotp_size: %d}"):format(shared), {mesh = mesh, model = whole}), mesh,
                   {cut = {tensor = mesh.tp}})
  assert_trains_as(engine_of("", {mesh = mesh}), mesh, {cut = {tensor = mesh.tp}})
  lu.assertErrorMsgContains(("tensor_parallel.autotp_size = 7, but the axis tp of the mesh has %d ranks"):format(shared),
                            engine_of, "tensor_parallel: {autotp_size: 7}", {mesh = mesh})
  lu.assertErrorMsgContains("the mesh that the script gives has no axis of the name cp", engine_of,
                            "sequence_parallel_size: 2", {mesh = mesh})
  if shared == 1 then return end
  for keys, message in pairs{
    ["tp_overlap_comm: true}"] = "asks for tensor_parallel.tp_overlap_comm, which the model's layers must take",
    ["}, activation_checkpointing: {partition_activations: true}"] = "asks for sequence parallelism (partition_activations",
    ["}, expert_parallel: {enabled: true, expert_tensor_parallel_size: %d}"] = "the model's experts must be cut",
  } do
    lu.assertErrorMsgContains(message, engine_of, ("tensor_parallel: {autotp_size: %d, " .. keys):format(shared, shared),
                              {mesh = mesh, model = whole})
  end
end

-- Experts whose matrices the ranks share. With the key, each MLP is cut; without it, experts are whole on the ranks of tp.
function TestCut:test_experts()
  local mesh = comm.mesh{dp = -1, tp = shared}
  local function with_experts(options, tensor)
    return gpt{tensor = options.tensor, mlp = function()
      return moe.layers{experts = 4, hidden = 8, ffn = 12, axis = options.ep, tensor = tensor}
    end}
  end
  for _, size in ipairs{1, shared} do
    local engine = engine_of(([[tensor_parallel: {autotp_size: %d},
      expert_parallel: {enabled: true, expert_tensor_parallel_size: %d}]]):format(shared, size),
      {model = function(own, experts, cut)
        lu.assertEquals(experts.tensor ~= nil, size > 1)
        return with_experts({tensor = cut.tensor, ep = own.ep}, experts.tensor)
      end})
    assert_trains_as(engine, mesh, {model = with_experts({tensor = mesh.tp}, size > 1 and mesh.tp or nil)})
  end
end

function TestCut:test_options_for_the_model()
  engine_of("", {model = function(mesh, experts, cut)
    lu.assertEquals({mesh.tp.size, mesh.cp.size, experts}, {1, 1, {router = {}}})
    lu.assertEquals({cut.tensor, cut.context, cut.sequence_parallel, cut.overlap}, {mesh.tp, {axis = mesh.cp}})
    return gpt()
  end})
  if ranks == 1 then return end
  local keys = ("tensor_parallel: {autotp_size: %d, tp_overlap_comm: %%s}, "
    .. "expert_parallel: {enabled: true, expert_tensor_parallel_size: %%d}"):format(shared)
  for _, value in ipairs{true, false} do
    engine_of(keys:format(tostring(value), value and shared or 1), {model = function(mesh, experts, cut)
      lu.assertEquals({cut.overlap, experts.tensor == mesh.tp}, {value, value})
      return gpt{tensor = cut.tensor}
    end})
  end
end

function TestCut:test_mistakes()
  local function fails(text, keys, options) lu.assertErrorMsgContains(text, engine_of, keys, options) end
  fails(("tensor_parallel.autotp_size = 7 does not divide %d ranks: give a divisor"):format(ranks),
        "tensor_parallel: {autotp_size: 7}")
  fails(("sequence_parallel_size = 7 does not divide %d ranks"):format(ranks), "sequence_parallel_size: 7")
  if ranks == 1 then return end
  local tensors, tokens = ("tensor_parallel: {autotp_size: %d}"):format(ranks), ("sequence_parallel_size: %d"):format(ranks)
  fails(("sequence_parallel_size = %d does not divide 1 ranks of %d, which the axes before it leave"):format(ranks, ranks),
        tensors .. ", " .. tokens)
  fails(("autotp_size = %d: the layers say how they are cut: give model = function(mesh, experts, cut)"):format(ranks), tensors,
        {model = gpt()})
  fails(("sequence_parallel_size = %d: the layers say"):format(ranks), tokens, {model = gpt()})
  fails("but no layer of the model is cut over the axis tp: give nn.gpt or its layers tensor = cut.tensor", tensors,
        {model = function() return gpt() end})
  fails("but no layer of the model is cut over the axis cp: give nn.gpt or its layers context = cut.context", tokens,
        {model = function() return gpt() end})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCut", TestCut}})
