--- Runs a random case. The first line of a printed case loads this file; it returns what such a script needs.
--
-- `random.case{...}` describes a case as plain data and a few functions. On the ranks of a test (main.lua) it returns a function
-- that runs one variant of the case and returns the outcome. In a script of its own it runs the case and prints the outcome: the
-- case itself on as many ranks as it is for, and its reference on one.
local here = debug.getinfo(1, "S").source:match "^@(.*)/[^/]*$" or "."
if not package.path:find(here .. "/?.lua", 1, true) then package.path = here .. "/?.lua;" .. package.path end
if not package.cpath:find("tests/modules", 1, true) then
  package.cpath = package.cpath:match("^[^;]*"):gsub("lib/%?%.so$", "tests/modules/?.so") .. ";" .. package.cpath
end

local zt = require "zt"
local comm, moe, optim, pipe = require "zt.comm", require "zt.moe", require "zt.optim", require "zt.pipe"
local ranks = require "zt.ranks"
local batches, faults, layers = require "batches", require "faults", require "layers"
local layouts, optimizer_of, outcomes = require "layouts", require "optimizers", require "outcomes"

local random = {}

function random.names() return zt, moe, faults.nn(), optim, pipe, layers end

-- A trainer of the case, laid out by `layout`, with the precision of the variant.
local function trainer_of(case, variant, layout, values)
  faults.active = variant.fault
  local mesh = layout.axes and comm.mesh(layouts.mesh_options(layout)) or {}
  local model = case.model(mesh, layout)
  layers.wake_adapters(model)
  for _, pattern in ipairs(case.frozen or {}) do model:freeze(pattern) end
  if values then model:initialise(values) end
  local program = zt.program(model, {
    micro_batches = layout.micro_batches, eval_micro_batches = layout.eval_micro_batches or 1, precision = variant.precision,
  })
  program = layouts.apply(program, model, mesh, layout, variant.precision)
  if variant.fault and not variant.reference then program = faults.plant(variant.fault, program, layout) end
  local options = {optimizer = optimizer_of(case.optimizer), clip = case.clip or 0}
  if variant.precision == "fp16" then options.fp16 = {loss_scale = 64} end
  return zt.trainer(program, options), model, mesh
end

-- The state of a run: a trainer and the pieces of the global batch that this rank gets.
local function start_run(case, variant, layout)
  local trainer, model, mesh = trainer_of(case, variant, layout)
  local of, rank = layouts.data_ranks(layout, mesh)
  local pieces = #case.rows * case.parts
  local run = {case = case, layout = layout, trainer = trainer, model = model, mesh = mesh, whole = layout.is_whole}
  run.first, run.count = rank * pieces / of, pieces / of
  assert(run.count % 1 == 0, "the pieces do not divide by the ranks")
  return run
end

local BEGIN_AGAIN, ONCE_MORE = "begin it again with its first trainer:forward", "call trainer:forward once more, on all ranks"

local function mine(run, step) return batches.pieces(run.case, step, run.first, run.count) end

-- The ranks that make the mistakes of a case: all, or those with the first part of the batch.
local function errs(run) return run.case.mistake.of_all or run.first == 0 end

-- `wrong`: the piece that is given with a wrong label first, or nil.
local function give_by_hand(run, pieces, wrong)
  for i, piece in ipairs(pieces) do
    if i == wrong then
      local is_taken, message = pcall(run.trainer.forward, run.trainer, batches.wrong(piece, run.case.vocab, "labels"))
      assert(not is_taken, "a wrong label was accepted")
      if message:find(BEGIN_AGAIN, 1, true) then error(message, 0) end
    end
    local is_taken, message = pcall(run.trainer.forward, run.trainer, piece)
    if not is_taken then
      if not message:find(ONCE_MORE, 1, true) then error(message, 0) end
      run.trainer:forward(piece)
    end
    run.trainer:backward()
  end
  return run.trainer:finish_step()
end

-- After a mistake a script does what the message says: it repeats the forward, or all ranks begin the step again.
local function step_by_hand(run, step, wrong)
  local pieces = mine(run, step)
  if not wrong then return give_by_hand(run, pieces) end
  local is_done, result = pcall(give_by_hand, run, pieces, errs(run) and wrong or nil)
  if is_done then return result end
  assert(result:find(BEGIN_AGAIN, 1, true), result)
  return give_by_hand(run, pieces)
end

local function make_step(run, step, wrong)
  if run.beside then run.beside.trainer:step(mine(run.beside, step + 50)) end
  if run.case.by_hand then return step_by_hand(run, step, wrong) end
  if run.whole then return run.trainer:step(batches.joined(mine(run, step))) end
  return run.trainer:step(mine(run, step))
end

-- What happens before a step. Each function gets the run, the outcome so far, the step and the variant.
local events = {}

-- Evaluation and inference take whole samples of full length, another batch than the steps.
function events.evaluate(run, outcome, step)
  local batch = batches.joined(batches.pieces(run.case, 100 + step, run.first, run.count, true))
  outcome.evaluations[#outcome.evaluations + 1] = run.trainer:evaluate(batch).loss
end

function events.infer(run, outcome, step)
  local batch = batches.joined(batches.pieces(run.case, 200 + step, run.first, run.count, true))
  local outputs = run.trainer:infer(batch)
  local logits = (outputs.logits or outputs.logprobs):to "float64":to "cpu" -- or what a policy says of the labels
  outcome.inferred[#outcome.inferred + 1] = {first = batches.samples(run.case, run.first), logits = logits}
end

-- Returns a stand-in that makes zt.generate read all tokens again for each new one.
local function reading_again(trainer)
  return setmetatable({program = trainer.program, infer = function(_, ...) return trainer:infer(...) end}, {__name = "Trainer"})
end

-- With a window of 4 tokens, the later ones do not see the prompt. Else all but the reference keep keys and values, where their
-- layers allow that.
function events.generate(run, outcome, step, variant)
  local prompt, options = {1, step % run.case.vocab, 3}, {seq = step % 4 == 3 and 4 or 8, max_tokens = 4, seed = step}
  local trainer = variant.reference and reading_again(run.trainer) or run.trainer
  outcome.generated[#outcome.generated + 1] = zt.generate(trainer, prompt, options)
end

-- A mistake that the script catches: a batch that the trainer cannot take. All ranks must learn of it, and no trace is left.
function events.mistake(run, _, step)
  local mistake = run.case.mistake
  local batch, at = batches.pieces(run.case, step, run.first, run.count, mistake.call ~= "step"), mistake.piece % run.count + 1
  if mistake.what == "fuse" then
    for i, piece in ipairs(batch) do batch[i] = batches.with_fuse(piece) end
  end
  if errs(run) and mistake.what ~= "samples" then batch[at] = batches.wrong(batch[at], run.case.vocab, mistake.what) end
  if mistake.call ~= "step" then batch = batches.joined(batch) end
  if errs(run) and mistake.what == "samples" then batch = {} end
  local is_taken = pcall(run.trainer[mistake.call], run.trainer, batch)
  -- Where the ranks exchange nothing, an inference concerns one rank alone.
  local is_alone = mistake.call == "infer" and not errs(run) and layouts.size(run.layout) == layouts.size(run.layout, true)
  assert(is_alone or not is_taken, "a wrong batch was accepted")
end

-- Gives the values of a trainer to one that is whole on each rank, and from that to another one of the first's layout. All must
-- have the bits that layers see.
local function move_values(run, variant, copy)
  local model = run.case.model({}, {})
  for _, pattern in ipairs(run.case.frozen or {}) do model:freeze(pattern) end
  local whole = zt.trainer(zt.program(model, {precision = variant.precision}), {separate = true})
  zt.transfer(run.trainer, whole)
  zt.transfer(whole, copy)
  for _, tensor in ipairs(run.trainer:tensors()) do
    local wanted = run.trainer:parameter(tensor.name):to "cpu"
    for _, trainer in ipairs{whole, copy} do
      local got = trainer:parameter(tensor.name):to "cpu"
      assert(zt.isclose(got, wanted, 0, 0, true):all():item(), "a transfer has changed " .. tensor.name)
    end
  end
end

-- Another trainer of the same model without an optimizer gets the values of the first, and must then evaluate as it does. A third
-- one trains from now on in turns with the first.
function events.beside(run, _, step, variant)
  if variant.reference or variant.fault then return end
  local program, options = run.trainer.program, {optimizer = optimizer_of(run.case.optimizer), on_nonfinite = "skip"}
  local copy = zt.trainer(program, {})
  move_values(run, variant, copy)
  local batch = batches.joined(batches.pieces(run.case, 300 + step, run.first, run.count, true))
  local wanted, got = run.trainer:evaluate(batch).loss, copy:evaluate(batch).loss
  assert(got == wanted or got ~= got and wanted ~= wanted,
    ("a trainer without an optimizer evaluates to %.17g, the first one to %.17g"):format(got, wanted))
  if variant.precision == "fp16" then options.fp16 = {loss_scale = 64} end
  run.beside = {case = run.case, first = run.first, count = run.count, trainer = zt.trainer(program, options)}
end

-- Some of the data leave the memory and come back.
function events.away(run, _, step)
  local what, trainer = {}, run.trainer
  for i, data in ipairs{"optimizer", "gradients", "parameters"} do
    if (run.case.seed + step + i) % 3 > 0 then what[#what + 1] = data end
  end
  local is_on_host = trainer:parameter(trainer:parameters()[1]):device() == "cpu"
  local to = (is_on_host or run.case.seed % 2 == 0) and "nvme" or "host"
  trainer:evict(what, {to = to, folder = to == "nvme" and (os.getenv "TMPDIR" or "/tmp") or nil})
  trainer:fetch()
end

-- Goes on from a checkpoint, with the case's second layout.
function events.checkpoint(run, outcome, step, variant)
  if variant.reference then return end
  local ckpt = require "zt.ckpt"
  local folder = outcomes.folder(run.mesh)
  ckpt.save(folder, {trainer = run.trainer}, {step = step, async = false})
  local layout = layouts.of_variant(run.case, variant, run.case.second)
  local loaded = start_run(run.case, variant, layout)
  ckpt.load(folder, {trainer = loaded.trainer})
  outcomes.remove_folder(folder, run.mesh)
  if variant.fault then faults.loaded(variant.fault, loaded.trainer) end
  outcome.differs_after_load = outcomes.first_difference(run.trainer, loaded.trainer)
  for key, value in pairs(loaded) do run[key] = value end
end

-- Runs a variant: {precision =, [reference = true], [plain = true], [fault = name], [steps =]}. Returns the outcome.
function random.run(case, variant)
  local run = start_run(case, variant, layouts.of_variant(case, variant, case.layout))
  local outcome = outcomes.new()
  outcomes.begin(outcome, run)
  for step = 0, math.min(case.steps, variant.steps or case.steps) - 1 do
    local wrong
    for _, name in ipairs(case.events and case.events[step + 1] or {}) do
      if events[name] and not (variant.without_mistakes and name == "mistake") then
        events[name](run, outcome, step, variant)
      end
      if name == "mistake_by_hand" and not variant.without_mistakes then wrong = case.mistake.piece % run.count + 1 end
    end
    outcomes.add_step(outcome, make_step(run, step, wrong), run)
  end
  return outcomes.finish(outcome, run)
end

-- The first step on one rank in fp64, from the given values of the parameters or those of the model.
local function first_step(case, values, fault)
  local variant = {precision = "fp64", reference = true, fault = fault}
  local layout = layouts.of_variant(case, variant, case.layout)
  local trainer, model = trainer_of(case, variant, layout, values)
  local run = {case = case, trainer = trainer, whole = layout.is_whole, first = 0, count = #case.rows * case.parts}
  return run, model
end

--- Returns the values of all parameters at the start, the names of the trainable ones, and their gradients.
function random.start_values(case, fault)
  local run, model = first_step(case, nil, fault)
  local start = {values = {}, trainable = {}, gradients = {}}
  for _, name in ipairs(run.trainer:parameters()) do start.values[name] = run.trainer:master(name) end
  make_step(run, 0)
  for _, parameter in ipairs(model:parameters()) do
    if parameter.trainable then
      start.trainable[#start.trainable + 1] = parameter.name
      start.gradients[parameter.name] = run.trainer:gradient(parameter.name)
    end
  end
  return start
end

--- Returns the loss of the first step with these values of the parameters.
function random.loss_at(case, values, fault)
  local run = first_step(case, values, fault)
  return make_step(run, 0).loss
end

function random.case(case)
  zt.set_log_level "error"
  case.parts = case.parts or layouts.size(case.layout)
  local is_for_oracle = ranks.task() or package.loaded.oracle
  if is_for_oracle then return function(variant) return random.run(case, variant) end, case end
  local wanted = layouts.size(case.layout, true)
  local alone = zt.world.size == 1
  assert(alone or zt.world.size == wanted, ("run it on %d ranks, or on 1 for the reference"):format(wanted))
  local is_reference = alone and wanted > 1
  local fault = not is_reference and case.fault or nil
  local variant = {precision = case.precision, reference = is_reference, fault = fault, without_mistakes = is_reference}
  outcomes.print(random.run(case, variant))
end

return random
