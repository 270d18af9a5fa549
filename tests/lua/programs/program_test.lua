-- Tests programs as data, and trainers that scripts step by hand, from Lua.
local lu, zt = require "luaunit", require "zt"
local nn, optim = require "zt.nn", require "zt.optim"

local VOCAB, SEQ, SAMPLES = 11, 4, 4

local function model() return nn.gpt{layers = 2, hidden = 8, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3} end

local function program_of(micro_batches) return zt.program(model(), {micro_batches = micro_batches, precision = "fp64"}) end

local function trainer_of(program) return zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}}) end

local function batch(first, count)
  local tokens = zt.arange(SAMPLES * SEQ):remainder(VOCAB):view({SAMPLES, SEQ}):to "int64":narrow(0, first or 0, count or SAMPLES)
  return {tokens = tokens, labels = (tokens * 3 + 1):remainder(VOCAB)}
end

local function losses_of(trainer)
  local losses = {}
  for step = 1, 3 do losses[step] = trainer:step(batch()).loss end
  return losses
end

local TestProgram = {}

function TestProgram:test_text_reads_back()
  local program = program_of(2):apply(zt.recompute{every = 1})
  local again = program_of(2):with_actions(program:text())
  lu.assertEquals(again:text(), program:text())
  lu.assertStrContains(program:text(), "R 1 0")
  lu.assertEquals(losses_of(trainer_of(again)), losses_of(trainer_of(program_of(2))))
end

function TestProgram:test_actions_are_tables_to_edit()
  local program = program_of(1)
  local actions = program:actions()
  lu.assertEquals({actions[1].kind, actions[2].kind, actions[2].target, actions[2].micro_batch}, {"COUNT", "F", 0, 0})
  -- The order of the updates does not change the result.
  local last = #actions
  actions[last], actions[last - 1] = actions[last - 1], actions[last]
  local edited = program:with_actions(actions)
  lu.assertEquals(edited:verify(), {})
  lu.assertEquals(losses_of(trainer_of(edited)), losses_of(trainer_of(program_of(1))))
end

-- A program given as text keeps exactly its actions: the earlier passes do not change them again.
function TestProgram:test_text_with_passes_reads_back()
  local zero, mesh = require "zt.zero", require("zt.comm").mesh{dp = -1}
  for stage = 0, 3 do
    for _, precision in ipairs{"fp32", "bf16"} do
      local function sharded()
        return zt.program(model(), {micro_batches = 2, precision = precision})
          :apply(zero.shard{stage = stage, axis = mesh.dp, bucket_bytes = 0, max_live = stage == 3 and 2 ^ 20 or nil})
          :apply(zt.recompute{every = 1})
      end
      local program = sharded()
      local again = program:with_actions(program:text())
      lu.assertEquals(again:text(), program:text())
      lu.assertEquals(again:verify(), {})
      lu.assertEquals(sharded():with_actions(program:actions()):text(), program:text())
      lu.assertEquals(losses_of(trainer_of(again)), losses_of(trainer_of(sharded())))
    end
  end
end

function TestProgram:test_an_edited_text_runs_as_it_is()
  local mesh = require("zt.comm").mesh{dp = -1}
  local program = zt.program(model(), {micro_batches = 2, precision = "fp64"})
    :apply(require("zt.zero").shard{stage = 1, axis = mesh.dp, bucket_bytes = 0})
  local swapped, count = program:text():gsub("(STEP 1[^\n]*\n)(UNSHARD 1[^\n]*\n)(STEP 2[^\n]*\n)", "%1%3%2")
  lu.assertEquals(count, 1)
  local edited = program:with_actions(swapped)
  lu.assertEquals(edited:text(), swapped)
  lu.assertEquals(losses_of(trainer_of(edited)), losses_of(trainer_of(program_of(2))))
  local fewer = program:with_actions(program:text():gsub("micro_batches=2", "micro_batches=1"):gsub("\n[FB] %d 1[^\n]*", ""))
  lu.assertStrContains(fewer:text(), "micro_batches=1")
end

function TestProgram:test_passes_applied_later_apply_to_what_was_given()
  local text = program_of(2):text()
  local later = program_of(2):with_actions(text):apply(zt.recompute{every = 1})
  lu.assertEquals(later:text(), program_of(2):apply(zt.recompute{every = 1}):text())
  lu.assertErrorMsgContains("apply this pass once", later.text, later:apply(zt.recompute{every = 1}))
end

function TestProgram:test_what_cannot_be_given()
  local program = program_of(2)
  local function give(pattern, with)
    local text = program:text():gsub(pattern, with)
    return program:with_actions(text)
  end
  lu.assertErrorMsgContains("is not a training program", give, "mode=train", "mode=eval")
  lu.assertErrorMsgContains("it was made for another model", give, "units=%d+", "units=2")
  lu.assertErrorMsgContains("micro_batches=0 is out of range", give, "micro_batches=2", "micro_batches=0")
  local cut = give("\nCOUNT", "\nunit 0 shard_axes=[\"dp\"] sum_axes=[\"dp\"] state=sharded\nCOUNT")
  lu.assertErrorMsgContains("the program", trainer_of, cut)
end

function TestProgram:test_units_are_held_alike_in_all_modes()
  local mesh = require("zt.comm").mesh{dp = -1}
  local program = zt.program(model()):apply(require("zt.zero").shard{stage = 1, axis = mesh.dp, node_shared = false})
  local other = program:text():gsub("unit 0 ([^\n]*)", "unit 0 %1 grads=sharded")
  lu.assertErrorMsgContains("holds unit 'embedding.weight' in another way", trainer_of, program:with_actions(other))
end

function TestProgram:test_a_program_without_the_pass_that_runs_its_actions()
  local mesh = require("zt.comm").mesh{dp = -1}
  local text = zt.program(model()):apply(require("zt.zero").shard{stage = 0, axis = mesh.dp}):text()
  lu.assertErrorMsgContains("no pass gave the program a mesh", trainer_of, zt.program(model()):with_actions(text))
  local bare = zt.program(model()):text():gsub("\nNORM", "\nRESHARD 0\nNORM")
  lu.assertErrorMsgContains("the program is refused", trainer_of, zt.program(model()):with_actions(bare))
end

function TestProgram:test_the_verifier_says_what_is_wrong()
  local actions = program_of(1):actions()
  table.remove(actions, 3) -- F 1 0
  local broken = program_of(1):with_actions(actions)
  lu.assertTrue(#broken:verify() > 0)
  lu.assertStrContains(broken:verify()[1], "rank 0")
  lu.assertErrorMsgContains("the program is refused", trainer_of, broken)
end

function TestProgram:test_split_backwards_change_no_loss()
  local split = program_of(2):apply(zt.split_backward())
  lu.assertStrContains(split:text(), "\nI 0 0\nW 0 0")
  lu.assertEquals(losses_of(trainer_of(split)), losses_of(trainer_of(program_of(2))))
  lu.assertErrorMsgContains("zt.split_backward", zt.split_backward, {every = 2})
end

function TestProgram:test_evaluation_in_micro_batches()
  local program = zt.program(model(), {eval_micro_batches = 2})
  lu.assertStrContains(program:text(), "micro_batches=1")
  lu.assertErrorMsgContains("zt.program.eval_micro_batches must be at least 1", zt.program, model(), {eval_micro_batches = 0})
  local trainer = trainer_of(program)
  local odd = zt.zeros({3, 8}, {dtype = "int64"})
  lu.assertErrorMsgContains("cannot be cut into 2 micro-batches evenly", trainer.evaluate, trainer, {tokens = odd, labels = odd})
end

function TestProgram:test_mistakes()
  lu.assertErrorMsgContains("did you mean 'micro_batches'?", zt.program, model(), {microbatches = 2})
  lu.assertErrorMsgContains("zt.program.micro_batches must be at least 1", zt.program, model(), {micro_batches = 0})
  lu.assertErrorMsgContains("argument 2", zt.program(model(), {}).apply, zt.program(model(), {}), "recompute")
  lu.assertErrorMsgContains("there is no rank 3", program_of(1).text, program_of(1), 3)
  lu.assertErrorMsgContains("unknown resource 'weights'", zt.action, {name = "A", reads = {"weights"}, start = print})
  local function declare(reads) return zt.action{name = "DECLARED_TWICE", reads = reads, start = function() end} end
  declare{"grad"}
  declare{"grad"}
  lu.assertErrorMsgContains("'DECLARED_TWICE' is registered already with other resources", declare, {"param"})
  lu.assertErrorMsgContains("zt.pass: option 'phase' is missing", zt.pass, {apply = print})
end

function TestProgram:test_a_pass_must_return_the_program()
  local forgetful = zt.pass{name = "forgetful", phase = "overlap", apply = function() end}
  local expected = "the pass forgetful: it must return the program (a table with 'actions'), it returned nil"
  lu.assertErrorMsgContains(expected, trainer_of, program_of(1):apply(forgetful))
end

local TestTrainer = {}

function TestTrainer:test_by_hand_equals_step()
  -- All labels are valid, so the mean of the micro-batches' means is the mean over all tokens.
  local whole, by_hand = trainer_of(program_of(2)), trainer_of(program_of(2))
  local expected, mean = whole:step(batch()).loss, 0
  for part = 0, 1 do
    mean = mean + by_hand:forward(batch(2 * part, 2)) / 2
    by_hand:backward()
  end
  lu.assertAlmostEquals(mean, expected, 1e-13)
  lu.assertAlmostEquals(by_hand:finish_step().loss, expected, 1e-13)
  lu.assertEquals({by_hand.global_step, whole.global_step}, {1, 1})
  lu.assertAlmostEquals(by_hand:evaluate(batch()).loss, whole:evaluate(batch()).loss, 1e-13)
end

function TestTrainer:test_an_evaluation_says_nothing_of_the_last_step()
  local trainer = trainer_of(program_of(1))
  local stepped, evaluated = trainer:step(batch()), trainer:evaluate(batch())
  lu.assertTrue(stepped.grad_norm > 0 and stepped.lr > 0)
  lu.assertNil(evaluated.grad_norm)
  lu.assertNil(evaluated.lr)
  lu.assertTrue(evaluated.loss > 0)
end

function TestTrainer:test_parameters_by_name()
  local trainer = trainer_of(program_of(1))
  local names = trainer:parameters()
  local shape = trainer:parameter(names[1]):size()
  trainer:set_parameter(names[1], zt.zeros(shape, {dtype = "float64"}))
  lu.assertEquals(trainer:parameter(names[1]):abs():sum():item(), 0)
  trainer:step(batch())
  lu.assertEquals(trainer:gradient(names[1]):size(), shape)
  lu.assertErrorMsgContains("did you mean '" .. names[1] .. "'?", trainer.parameter, trainer, names[1] .. "s")
end

function TestTrainer:test_report_and_memory()
  local trainer = trainer_of(program_of(1))
  lu.assertStrContains(trainer:report(), "4 F")
  lu.assertNil(trainer:memory().activations.measured) -- no step has run
  trainer:step(batch())
  local memory = trainer:memory()
  lu.assertEquals(memory.parameters.measured, memory.parameters.predicted)
  lu.assertTrue(memory.activations.measured > SAMPLES * SEQ * VOCAB * 8) -- the bytes of the logits
end

-- A layer returns its parameter as its value. The value must stay valid when the parameter is released.
function TestTrainer:test_a_layer_that_returns_its_parameter()
  local function losses(stage, prefetch)
    local mesh = require("zt.comm").mesh{dp = -1}
    local prompt = nn.layer{
      params = {p = zt.arange(12):view{4, 3}:to "float32" / 10}, io = {inputs = {}},
      forward = function(layer) return layer.p:view{4, 3} end,
    }
    local layers = {prompt}
    for _ = 1, 4 do layers[#layers + 1] = nn.linear{["in"] = 3, out = 3} end
    layers[#layers + 1] = zt.loss(function(out, ctx)
      return ((out.h - ctx:batch "x") ^ 2):sum() / 4
    end, {inputs = {"h"}, per = "sample"})
    layers.seed = 7
    local program = zt.program(nn.sequential(layers), {micro_batches = 1})
      :apply(require("zt.zero").shard{stage = stage, axis = mesh.dp, prefetch = prefetch})
    local trainer = trainer_of(program)
    local out = {}
    for step = 1, 4 do out[step] = trainer:step({x = zt.ones{4, 3}}).loss end
    return out
  end
  local expected = losses(0)
  for prefetch = 0, 2 do lu.assertEquals(losses(3, prefetch), expected) end
end

function TestTrainer:test_a_schedule_may_be_a_function()
  local asked = {}
  local function rate(updates)
    asked[#asked + 1] = updates
    return 0.1 / (updates + 1)
  end
  local trainer = zt.trainer(program_of(1), {optimizer = optim.sgd{lr = 7}, schedule = rate})
  local rates = {}
  for step = 1, 3 do rates[step] = trainer:step(batch()).lr end
  lu.assertEquals(rates, {0.1, 0.05, 0.1 / 3})
  lu.assertEquals(asked, {0, 1, 2})
  for _, wrong in ipairs{-1, 0 / 0, "fast", 1 / 0, {}} do
    local other = zt.trainer(program_of(1), {optimizer = optim.sgd{lr = 7}, schedule = function() return wrong end})
    lu.assertErrorMsgContains("zt.trainer.schedule: the function returned", other.step, other, batch())
  end
  lu.assertErrorMsgContains("zt.trainer.schedule must be a Schedule", zt.trainer, program_of(1),
    {optimizer = optim.sgd{lr = 1}, schedule = 3})
end

function TestTrainer:test_finish_step_ends_a_step_by_hand()
  local trainer = trainer_of(program_of(1))
  lu.assertErrorMsgContains("call trainer:finish_step()", trainer.step, trainer)
  lu.assertErrorMsgContains("0 of 1 micro-batches", trainer.finish_step, trainer)
  trainer:forward(batch())
  trainer:backward()
  lu.assertErrorMsgContains("trainer:finish_step.divisor must be above 0", trainer.finish_step, trainer, {divisor = -1})
  lu.assertErrorMsgContains("did you mean 'divisor'?", trainer.finish_step, trainer, {divisors = 1})
  lu.assertEquals(trainer:finish_step{divisor = 2}.step, 0)
end

function TestTrainer:test_messages_print_nan_without_a_sign()
  local trainer = trainer_of(program_of(1))
  local name = trainer:parameters()[1]
  trainer:set_parameter(name, trainer:parameter(name) * (0 / 0))
  local _, message = pcall(trainer.step, trainer, batch())
  lu.assertStrContains(message, "the loss is nan")
  lu.assertNotStrContains(message, "-nan")
  lu.assertErrorMsgContains("got nan", trainer.set_lr, trainer, 0 / 0)
end

function TestTrainer:test_mistakes()
  lu.assertErrorMsgContains("zt.trainer.optimizer", zt.trainer, program_of(1), {optimizer = 3})
  local sgd = optim.sgd{lr = 1}
  lu.assertErrorMsgContains("did you mean 'schedule'?", zt.trainer, program_of(1), {optimizer = sgd, scedule = 1})
  local trainer = trainer_of(program_of(1))
  lu.assertErrorMsgContains("the batch field 'tokens' must be a tensor", trainer.step, trainer, {tokens = 3})
  lu.assertErrorMsgContains("needs a trainer:forward", trainer.backward, trainer)
end

local TestOptim = {}

function TestOptim:test_kinds_and_rates()
  lu.assertEquals({optim.adamw{lr = 3e-4}.kind, optim.lion{lr = 1e-4}.lr}, {"adamw", 1e-4})
  local schedule = optim.warmup_cosine{warmup = 10, total = 100}
  lu.assertEquals(schedule.kind, "warmup_cosine")
  lu.assertAlmostEquals(schedule:lr(10, 2), 2, 1e-15)
  lu.assertAlmostEquals(schedule:lr(55), 0.5, 1e-15) -- half of the cosine
end

function TestOptim:test_mistakes()
  lu.assertErrorMsgContains("optim.adamw: option 'lr' is missing", optim.adamw, {})
  lu.assertErrorMsgContains("did you mean 'betas'?", optim.adamw, {lr = 1, beta = {0.9, 0.9}})
  lu.assertErrorMsgContains("optim.sgd.groups[1].match", optim.sgd, {lr = 1, groups = {{match = "a["}}})
  local unmatched = optim.sgd{lr = 1, groups = {{match = "^block\\."}}}
  lu.assertErrorMsgContains("optim.sgd.groups[1].match: no trainable parameter belongs to '^block\\.'",
    zt.trainer, program_of(1), {optimizer = unmatched})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{
  {"TestProgram", TestProgram}, {"TestTrainer", TestTrainer}, {"TestOptim", TestOptim},
})
