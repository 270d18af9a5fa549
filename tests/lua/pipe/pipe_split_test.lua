-- Tests pipe.split in Lua. On one rank the pipeline has one stage; ctest runs the file on two ranks, too.
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, optim, pipe, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.pipe", require "zt.zero"

local VOCAB, SEQ = 11, 4
local mesh = comm.mesh{pp = zt.world.size, dp = 1}

local function batch(samples)
  local tokens = zt.arange(samples * SEQ):remainder(VOCAB):view({samples, SEQ}):to "int64"
  return {tokens = tokens, labels = tokens}
end

local function model_of() return nn.gpt{layers = 3, hidden = 8, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3} end

local function program_of(options)
  options.axis = mesh.pp
  return zt.program(model_of(), {micro_batches = 4, eval_micro_batches = 2})
    :apply(pipe.split(options))
    :apply(zero.shard{stage = 1, axis = mesh.dp})
end

local function losses(program)
  local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.1}})
  local list = {}
  for step = 1, 3 do list[step] = trainer:step(batch(8)).loss end
  list[4] = trainer:evaluate(batch(8)).loss
  return list, trainer
end

-- Returns what a method of the program returns for each rank.
local function by_rank(method, program)
  local list = {}
  for rank = 0, mesh.pp.size - 1 do list[rank + 1] = method(program, rank) end
  return list
end

local TestSplit = {}

function TestSplit:test_every_schedule_trains_alike()
  local alone = losses(zt.program(model_of(), {micro_batches = 4, eval_micro_batches = 2}))
  for _, name in ipairs {"gpipe", "one_f_one_b", "interleaved", "zb_h1", "zb_v", "dualpipe_v"} do
    lu.assertEquals(losses(program_of{schedule = name}), alone, name)
  end
  local schedule = pipe.schedule.zb_h2{ranks = mesh.pp.size, micro_batches = 4}
  lu.assertEquals(losses(program_of{schedule = schedule, partition = "uniform"}), alone)
end

function TestSplit:test_inference_gives_outputs_on_every_rank()
  local _, trainer = losses(program_of{schedule = "zb_v"})
  local _, alone = losses(zt.program(model_of(), {micro_batches = 4, eval_micro_batches = 2}))
  local tokens = {tokens = batch(4).tokens}
  lu.assertEquals(trainer:infer(tokens).logits, alone:infer(tokens).logits)
end

function TestSplit:test_inference_reduced_to_a_plain_value()
  local _, trainer = losses(program_of{schedule = "zb_v"})
  local tokens, calls = {tokens = batch(4).tokens}, 0
  local function largest(outputs)
    calls = calls + 1
    return {largest = outputs.logits:max():item()}
  end
  lu.assertEquals(trainer:infer(tokens, largest), {largest = trainer:infer(tokens).logits:max():item()})
  lu.assertEquals(calls, mesh.pp.coordinate == 0 and 1 or 0)  -- zb_v: rank 0 runs the last stage
  lu.assertErrorMsgContains("no such output", trainer.infer, trainer, tokens, function() error "no such output" end)
  lu.assertEquals(trainer:infer(tokens, largest).largest, trainer:infer(tokens).logits:max():item())
  lu.assertErrorMsgContains("a function of the outputs, got a number", trainer.infer, trainer, tokens, 7)
end

function TestSplit:test_generation()
  local options = {max_tokens = 5, seq = SEQ, seed = 3}
  local function generate(program)
    return zt.generate(zt.trainer(program, {optimizer = optim.adamw{lr = 0.1}}), {1, 2}, options)
  end
  local alone = generate(zt.program(model_of()))
  for micro_batches = 1, 2 do
    local program = zt.program(model_of(), {eval_micro_batches = micro_batches})
    lu.assertEquals(program.eval_micro_batches, micro_batches)
    lu.assertEquals(generate(program:apply(pipe.split{schedule = "zb_v", axis = mesh.pp})), alone)
  end
end

function TestSplit:test_partition_by_measured_cost()
  local _, trainer = losses(program_of{})
  local costs = trainer:costs(batch(8), {steps = 1})
  lu.assertTrue(#losses(program_of{partition = "cost", costs = costs}) == 4)
end

function TestSplit:test_another_schedule()
  local program = program_of{schedule = "gpipe"}
  lu.assertEquals(pipe.with_schedule(program, "zb_v"):text(), program_of{schedule = "zb_v"}:text())
  lu.assertEquals(program:text(), program_of{schedule = "gpipe"}:text())
  local schedule = pipe.schedule.zb_h1{ranks = mesh.pp.size, micro_batches = 4}
  lu.assertEquals(pipe.with_schedule(program, schedule):text(), program_of{schedule = "zb_h1"}:text())
  lu.assertErrorMsgContains("did you mean 'gpipe'?", pipe.with_schedule, program, "gpip")
  lu.assertErrorMsgContains("the program has no pipeline", pipe.with_schedule, zt.program(model_of()), "gpipe")
  local given = program:with_actions(by_rank(program.text, program))
  lu.assertErrorMsgContains("was given by with_actions", pipe.with_schedule, given, "gpipe")
end

-- The ranks of a pipeline have different programs, so a text of one rank is not enough.
function TestSplit:test_programs_come_back_as_one_text_per_rank()
  for _, name in ipairs{"gpipe", "zb_v"} do
    local program = program_of{schedule = name}
    for _, method in ipairs{program.text, program.actions} do
      local again = program_of{schedule = name}:with_actions(by_rank(method, program))
      lu.assertEquals(again:verify(), {})
      lu.assertEquals(by_rank(again.text, again), by_rank(program.text, program))
      lu.assertEquals(losses(again), losses(program_of{schedule = name}))
    end
  end
  local program = program_of{}
  local texts = by_rank(program.text, program)
  table.insert(texts, texts[1])
  local message = ("%d texts for a mesh of %d ranks: give one per rank"):format(#texts, mesh.pp.size)
  lu.assertErrorMsgContains(message, program.with_actions, program, texts)
  texts[#texts] = nil
  texts[1] = texts[1]:gsub("mode=train", "mode=eval")
  message = "the text of rank 0: the given program is not a training program"
  lu.assertErrorMsgContains(message, program.with_actions, program, texts)
  if mesh.pp.size == 1 then return end
  for what, given in pairs{["this text"] = program:text(), ["this list of actions"] = program:actions()} do
    message = "with_actions: " .. what .. " is that of one rank, and the ranks along 'pp' run different positions"
    lu.assertErrorMsgContains(message, program.with_actions, program, given)
  end
end

function TestSplit:test_the_verifier_names_the_missing_message()
  if mesh.pp.size == 1 then return end
  local program = program_of{schedule = "gpipe"}
  local function without(kind)
    local lists = by_rank(program.actions, program)
    for _, list in ipairs(lists) do
      for place = #list, 1, -1 do
        if list[place].kind == kind then table.remove(list, place) end
      end
    end
    return program:with_actions(lists):verify()[1]
  end
  lu.assertStrContains(without "RECV_GRAD", "and has not received it: put a RECV_GRAD before")
  lu.assertStrContains(without "RECV", "which this rank neither runs nor has received: put a RECV before")
end

-- A cut between any two layers of a mixture: some stages read only outputs without a gradient.
function TestSplit:test_mixtures_may_be_cut_anywhere()
  local moe = require "zt.moe"
  local function mixture()
    local mlp = function(i) return i == 1 and moe.layers{experts = 4, hidden = 8, ffn = 8, top_k = 2} or nil end
    return nn.gpt{layers = 2, hidden = 8, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3, mlp = mlp}
  end
  local function losses_of(partition)
    local program = zt.program(mixture(), {micro_batches = 2, precision = "fp64"})
    if partition then program = program:apply(pipe.split{axis = mesh.pp, partition = partition, schedule = "zb_h1"}) end
    local trainer, list = zt.trainer(program, {optimizer = optim.sgd{lr = 0.5}}), {}
    for step = 1, 2 do
      local result = trainer:step(batch(4))
      list[2 * step - 1], list[2 * step] = result.loss, result.grad_norm
    end
    return list
  end
  local alone, positions = losses_of(nil), 9
  for first = 1, positions - 1 do
    local partition = {first, positions - first}
    if mesh.pp.size ~= 2 then partition = {positions} end
    lu.assertEquals(losses_of(partition), alone, first)
  end
end

-- breadth_first gathers each chunk once per direction if zero.shard keeps it whole as long as there is room.
function TestSplit:test_gathers_of_breadth_first()
  local function gathers(schedule, keep, max_live)
    local model = nn.gpt{layers = 6, hidden = 16, heads = 2, vocab = VOCAB, seq = SEQ, seed = 1}
    local program = zt.program(model, {micro_batches = 6}):apply(pipe.split{axis = mesh.pp, schedule = schedule})
      :apply(zero.shard{stage = 3, axis = mesh.dp, reduce_every = "step", keep = keep, max_live = max_live, node_shared = false})
    local count, units, distinct = 0, {}, 0
    for _, action in ipairs(program:actions(0)) do
      for _, unit in ipairs(action.kind == "UNSHARD" and {action.target, unpack(action.units or {})} or {}) do
        count = count + 1
        if not units[unit] then distinct = distinct + 1 end
        units[unit] = true
      end
    end
    return count, distinct
  end
  local count, units = gathers("breadth_first", "max_live", 14000 / mesh.pp.size)
  lu.assertTrue(count <= 2 * units)
  lu.assertTrue(gathers("breadth_first") > 2 * units)
  lu.assertTrue(gathers("interleaved", "max_live", 14000 / mesh.pp.size) > 2 * units)
end

function TestSplit:test_the_axis_of_a_pipeline_is_named_pp()
  if mesh.pp.size == 1 then return end
  local other = comm.mesh{stages = mesh.pp.size, dp = 1, order = {"stages", "dp"}}
  local program = zt.program(model_of(), {micro_batches = 4}):apply(pipe.split{axis = other.stages})
  lu.assertEquals(program:verify(), {})
  local refusal = program:apply(zero.shard{axis = other.dp, stage = 1}):verify()[1]
  lu.assertStrContains(refusal, "the model is split along 'stages', whose ranks see the same data")
  lu.assertStrContains(refusal, "name the pipeline's axis pp in the mesh, and join it with no other")
end

function TestSplit:test_mistakes()
  local function refused(message, options)
    lu.assertErrorMsgContains(message, function() zt.trainer(program_of(options), {optimizer = optim.adamw{lr = 0.1}}) end)
  end
  refused("there is no pipeline schedule '1f1b'", {schedule = "1f1b"})
  refused("did you mean 'zb_h1'?", {schedule = "zbh1"})
  refused("did you mean 'schedule'?", {schedul = "gpipe"})
  refused("needs measured times: give costs = trainer:costs(batch)", {partition = "cost"})
  refused("unknown value 'params'", {partition = "params"})
  refused("lists 3 stages, and the schedule has " .. mesh.pp.size, {partition = {1, 2, 2}})
  refused("no layer's name or kind matches 'moe'", {partition = "type:moe"})
  refused("the schedule is for 6 micro-batches, and the program has 4",
          {schedule = pipe.schedule.gpipe{ranks = mesh.pp.size, micro_batches = 6}})
  refused("the schedule is for 5 ranks", {schedule = pipe.schedule.gpipe{ranks = 5, micro_batches = 4}})
  local broken = pipe.schedule.gpipe{ranks = mesh.pp.size, micro_batches = 4}
  broken:rank(0):remove(1)
  refused("pipe.split: the schedule is refused:", {schedule = broken})
  lu.assertErrorMsgContains("apply it once", function()
    zt.trainer(program_of{}:apply(pipe.split{axis = mesh.pp}), {optimizer = optim.adamw{lr = 0.1}})
  end)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestSplit", TestSplit}})
