-- Tests simulated steps and lists of micro-batches in Lua.
local lu = require "luaunit"
local zt = require "zt"
local comm, moe, nn, optim = require "zt.comm", require "zt.moe", require "zt.nn", require "zt.optim"

local VOCAB, SEQ = 11, 4

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  os.remove(path)
  return text
end

local function batch(samples, seq)
  local tokens = zt.arange(samples * (seq or SEQ)):remainder(VOCAB):view({samples, seq or SEQ}):to "int64"
  return {tokens = tokens, labels = tokens}
end

local function program_of(micro_batches)
  local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3}
  return zt.program(model, {micro_batches = micro_batches})
end

local function trainer_of(micro_batches) return zt.trainer(program_of(micro_batches), {optimizer = optim.adamw{lr = 0.1}}) end

local TestSimulate = {}

function TestSimulate:test_a_program_before_there_is_a_trainer()
  local simulation = program_of(2):simulate{costs = "h200", batch = batch(4), optimizer = optim.sgd{lr = 1}}
  lu.assertTrue(simulation.seconds > 0)
  lu.assertEquals(#simulation.ranks, 1)
  local rank = simulation.ranks[1]
  lu.assertEquals({rank.ranks, rank.count}, {"0", 1})
  lu.assertTrue(rank.peak_bytes > rank.constant_bytes)
  lu.assertStrContains(rank.peak_action, "B ")
  local forward = 0
  for _, action in ipairs(rank.actions) do
    lu.assertTrue(action.stop >= action.begin)
    if action.kind == "F" then forward = forward + 1 end
  end
  lu.assertEquals(forward, 2 * 3)
  lu.assertStrContains(tostring(simulation), "costs 'h200'")
end

function TestSimulate:test_measured_costs()
  local trainer = trainer_of(2)
  local costs = trainer:costs(batch(4), {steps = 1})
  lu.assertEquals(trainer.global_step, 1)
  lu.assertTrue(costs.measured["F head"].compute > 0)
  local path = os.tmpname() .. ".json"
  zt.write_file(path, zt.json.encode(costs))
  lu.assertAlmostEquals(trainer:simulate(batch(4), path).seconds, trainer:simulate(batch(4), costs).seconds, 1e-9)
  os.remove(path)
end

-- A measured time grows with the work: a batch of twice the samples takes twice the operations.
function TestSimulate:test_measured_costs_of_another_batch()
  local trainer = trainer_of(2)
  local costs = trainer:costs(batch(4), {steps = 1})
  lu.assertTrue(costs.measured["F head"].flops > 0)
  lu.assertTrue(costs.measured["STEP head"].memory_bytes > 0)
  for name in pairs(costs.measured) do costs.measured[name].compute = name:match "^[FB] " and 1 or 0 end
  local function seconds(samples) return trainer:simulate(batch(samples), costs).seconds end
  lu.assertAlmostEquals(seconds(4), 2 * 2 * 3, 1e-9)
  local more = seconds(8) - seconds(4)
  local ratio = seconds(8) / seconds(4) -- the embedding, which has no operations, reads its parameters once
  lu.assertTrue(ratio > 1.7 and ratio <= 2, ratio)
  local simulation = trainer:simulate(batch(4), costs)
  lu.assertNil(simulation.work.mfu)
  lu.assertNotStrContains(tostring(simulation), "assumes")
  costs.measured["F head"] = nil
  lu.assertStrContains(tostring(trainer:simulate(batch(4), costs)), "assumes   for what was not measured: ")
  costs.measured["F head"] = {compute = 1} -- as it is: its work is not known
  lu.assertAlmostEquals(seconds(8) - seconds(4), more - 2, 1e-9)
end

function TestSimulate:test_another_program_with_the_same_trainer()
  local trainer = trainer_of(2)
  local other = trainer.program:apply(zt.recompute())
  local longer = trainer:simulate(batch(4), "h200", other)
  lu.assertTrue(longer.seconds > trainer:simulate(batch(4), "h200").seconds)
  lu.assertErrorMsgContains("of another model", trainer.simulate, trainer, batch(4), "h200", program_of(2))
end

-- Experts of the cost of a dense MLP take longer than it: they also route tokens, and read more parameters.
function TestSimulate:test_experts_of_equal_cost()
  local function seconds(mlp)
    local model = nn.gpt{layers = 2, hidden = 256, heads = 2, vocab = VOCAB, seq = 64, ffn = 1024, seed = 3, mlp = mlp}
    local program = zt.program(model, {precision = "bf16"})
    return program:simulate{costs = "h100", batch = batch(4, 64), optimizer = optim.sgd{lr = 1}}.seconds
  end
  local experts = seconds(function()
    return moe.layers{experts = 8, hidden = 256, ffn = 512, top_k = 2, axis = comm.mesh{ep = 1}.ep}
  end)
  lu.assertTrue(experts > 1.02 * seconds(nil))
end

function TestSimulate:test_files()
  local simulation = program_of(1):simulate{costs = "a100", batch = batch(2)}
  local picture, trace = os.tmpname(), os.tmpname()
  simulation:write_picture(picture)
  simulation:write_trace(trace)
  lu.assertStrContains(read(picture), "<svg")
  lu.assertTrue(#zt.json.decode(read(trace)).traceEvents > 5)
  lu.assertErrorMsgContains("cannot be written", simulation.write_picture, simulation, "/no/such/folder/x.svg")
end

function TestSimulate:test_mistakes()
  local program = program_of(1)
  local function refused(message, options) lu.assertErrorMsgContains(message, program.simulate, program, options) end
  refused("did you mean 'h100'?", {costs = "h10", batch = batch(2)})
  refused("option 'costs' is missing", {batch = batch(2)})
  refused("option 'batch' is missing", {costs = "h200"})
  refused("there is no rank 3", {costs = "h200", batch = batch(2), ranks = {3}})
  refused("did you mean 'ranks'?", {costs = "h200", batch = batch(2), rank = {0}})
end

local TestMicroBatches = {}

function TestMicroBatches:test_a_list()
  local trainer, whole = trainer_of(2), trainer_of(2)
  local four = batch(4)
  local function part(first) return {tokens = four.tokens:narrow(0, first, 2), labels = four.labels:narrow(0, first, 2)} end
  lu.assertEquals(trainer:step{part(0), part(2)}.loss, whole:step(four).loss)
  local result = trainer:step{batch(1), batch(3, 2)}
  lu.assertEquals({result.samples, result.tokens}, {4, 1 * SEQ + 3 * 2})
end

function TestMicroBatches:test_mistakes()
  local trainer = trainer_of(2)
  local function refused(message, list) lu.assertErrorMsgContains(message, trainer.step, trainer, list) end
  refused("the list has 1 micro-batch, but a step of this program has 2", {batch(2)})
  refused("argument 1, micro-batch 1: a batch (a table of tensors", {batch(2), 3})
  refused("the batch is empty", {batch(2), {}})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestSimulate", TestSimulate}, {"TestMicroBatches", TestMicroBatches}})
