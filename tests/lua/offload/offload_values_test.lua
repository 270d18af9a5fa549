-- Tests activations that lie in files until their backward. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, offload = require "zt.comm", require "zt.nn", require "zt.offload"
local optim, pipe = require "zt.optim", require "zt.pipe"
local assert_same = require("support.small_trainer").assert_same
local small = require "offload.moved_trainers"
local program_of, trainer_of, batch, folder = small.program_of, small.trainer_of, small.batch, small.folder

local TestOffloadValues = {}

local function moves(more)
  local options = {activations = "nvme", activations_stay = 1, activation_bytes = 1, folder = {folder}}
  for key, value in pairs(more or {}) do options[key] = value end
  return offload.move(options)
end

local function compare(a, b, why)
  for step = 1, 3 do
    local x, y = a:step(batch(step)), b:step(batch(step))
    lu.assertEquals({y.loss, y.grad_norm}, {x.loss, x.grad_norm}, why)
  end
  lu.assertEquals(b:evaluate(batch(5)).loss, a:evaluate(batch(5)).loss)
  assert_same(a, b, why)
end

function TestOffloadValues:test_bits()
  local cases = {
    {stage = 1, layers = 4}, {stage = 0, layers = 4, recompute = 1}, {stage = 2, layers = 5, recompute = 2, precision = "bf16"},
    {stage = 3, layers = 3, recompute = 1, every = "micro_batch"}, {stage = 1, frozen = "blocks\\.[01]", layers = 3},
  }
  for i, options in ipairs(cases) do
    for stay = 0, 2, 2 do
      local a = trainer_of(program_of(options), options)
      local b = trainer_of(program_of(options):apply(moves{activations_stay = stay}), options)
      compare(a, b, (" of case %d, %d stay"):format(i, stay))
    end
  end
end

function TestOffloadValues:test_all_at_once()
  local options = {stage = 3, layers = 4, recompute = 1, precision = "bf16"}
  local all = {optimizer = "nvme", gradients = "nvme", parameters = "nvme", slice = 4096, checksum = true}
  compare(trainer_of(program_of(options), options), trainer_of(program_of(options):apply(moves(all)), options), " with all")
end

function TestOffloadValues:test_pipelines()
  if zt.world.size ~= 2 then return end
  local mesh = comm.mesh{pp = 2}
  local function trainer(schedule, recompute, is_moved)
    local model = nn.gpt{layers = 6, hidden = 32, heads = 2, vocab = small.VOCAB, seq = small.SEQ, seed = 3}
    local program = zt.program(model, {micro_batches = 4}):apply(pipe.split{axis = mesh.pp, schedule = schedule})
    if recompute then program = program:apply(zt.recompute{}) end
    if is_moved then program = program:apply(moves()) end
    return zt.trainer(program, {optimizer = optim.adamw{lr = 1e-2}})
  end
  local tokens = (zt.arange(8 * small.SEQ) * 5):remainder(small.VOCAB):view{8, small.SEQ}:to "int64"
  local samples = {tokens = tokens, labels = tokens}
  for _, schedule in ipairs{"one_f_one_b", "zb_v"} do
    for _, recompute in ipairs{false, true} do
      local a, b = trainer(schedule, recompute, false), trainer(schedule, recompute, true)
      for _ = 1, 2 do lu.assertEquals(b:step(samples).loss, a:step(samples).loss) end
      local plain, held = a:memory().activations, b:memory().activations
      if plain.measured == plain.predicted then lu.assertEquals(held.measured, held.predicted, schedule) end
      assert_same(a, b, " with " .. schedule)
    end
  end
end

-- What leaves is not held, as the plan says.
function TestOffloadValues:test_memory()
  if zt.world.size > 1 then return end
  for _, recompute in ipairs{0, 1} do
    local held = {}
    for i, is_moved in ipairs{false, true} do
      local options = {stage = 1, layers = 12, recompute = recompute == 1 and 1 or nil}
      local program = program_of(options)
      if is_moved then program = program:apply(moves()) end
      local trainer = trainer_of(program, options)
      trainer:step(batch(1))
      local memory = trainer:memory().activations
      lu.assertEquals(memory.measured, memory.predicted, "recompute " .. recompute .. ", moved " .. tostring(is_moved))
      local files = trainer:memory().files
      lu.assertEquals(files and files.measured, files and files.predicted)
      lu.assertEquals(files ~= nil, is_moved)
      held[i] = memory.measured
    end
    lu.assertTrue(held[2] < held[1], ("%d bytes, %d without"):format(held[2], held[1]))
  end
end

function TestOffloadValues:test_by_hand_and_mistakes()
  local options = {stage = 1, layers = 3}
  local a, b = trainer_of(program_of(options), options), trainer_of(program_of(options):apply(moves()), options)
  for _, trainer in ipairs{a, b} do small.step_by_hand(trainer, 1) end
  assert_same(a, b, " by hand")
  small.check_failing_steps(a, b)
end

-- The text has the movement, and the simulation knows its bytes.
function TestOffloadValues:test_text_and_simulation()
  local options = {stage = 1, layers = 3, recompute = 1}
  local program = program_of(options):apply(moves())
  lu.assertStrContains(program:text(), "EVICT_VALUE 0 0 home=file least=1 slot=1020 what=value")
  local again = trainer_of(program_of(options):apply(moves()):with_actions(program:text()), options)
  compare(trainer_of(program_of(options), options), again, " from text")
  local costs = again:costs(batch(1), {steps = 2})
  lu.assertTrue(costs.measured["EVICT_VALUE value embedding"].moved_bytes > 0)
  lu.assertTrue(again:simulate(batch(1), costs).seconds > 0)
end

-- A model of layers in Lua over samples [8, width].
local function chain(layers, is_moved, width)
  local read = nn.layer{io = {inputs = {}, outputs = {"h"}}, forward = function(_, ctx) return ctx:batch "x" end}
  local loss = zt.loss(function(out) return out.h:pow(2):mean(1):sum() end, {name = "squares", per = "sample", inputs = {"h"}})
  local list = {seed = 4, {"read", read}}
  for i, layer in ipairs(layers) do list[#list + 1] = {"layer" .. i, layer} end
  list[#list + 1] = {"loss", loss}
  local program = zt.program(nn.sequential(list))
  if is_moved then program = program:apply(moves{activations_stay = 0}) end
  local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
  local function step() return trainer:step{x = zt.ones{8, width}:mul(0.3)} end
  return step, trainer
end

local function linear(width) return nn.linear{["in"] = width, out = width} end

-- Autograd leaves the check of what it has saved to those who keep it.
function TestOffloadValues:test_changes_in_place()
  if zt.world.size > 1 then return end
  for _, is_moved in ipairs{false, true} do
    local changed = nn.layer{forward = function(_, h)
      local y = h:exp()
      y:add_(1)
      return y
    end}
    lu.assertErrorMsgContains("modified by an inplace operation", chain({linear(6), changed, linear(6)}, is_moved, 6))
  end
end

-- A layer that goes back through the graph of another one finds it in memory, or learns why not.
function TestOffloadValues:test_graphs_of_other_layers()
  if zt.world.size > 1 then return end
  local stash
  local first = nn.layer{forward = function(_, h, ctx)
    if ctx.mode ~= "train" then return h end
    local q = zt.ones{6}:requires_grad_(true)
    stash = {q = q, y = (q * 0.7):exp():tanh()}
    return h
  end}
  local second = nn.layer{forward = function(_, h, ctx)
    if ctx.mode ~= "train" then return h end
    stash.y:sum():backward()
    return h + stash.q:grad()
  end}
  local layers = {first, linear(6), linear(6), second, linear(6)}
  lu.assertTrue(chain(layers, false, 6)().loss > 0)
  lu.assertErrorMsgContains("the backward of another layer, or of a script, needs it", chain(layers, true, 6))
end

-- The handles of a script's tensors do not keep them in memory.
function TestOffloadValues:test_memory_of_layers_in_lua()
  if zt.world.size > 1 then return end
  local held = {}
  for i, is_moved in ipairs{false, true} do
    local layers = {}
    layers[1] = linear(512)
    for k = 2, 41 do
      layers[k] = nn.layer{forward = function(_, h)
        local a = h:sin()
        local b = a:exp()
        return (b * a):sigmoid()
      end}
    end
    local step, trainer = chain(layers, is_moved, 512)
    step()
    held[i] = trainer:memory().activations.measured
  end
  lu.assertTrue(held[2] < held[1] / 2, ("%d bytes, %d without"):format(held[2], held[1]))
end

function TestOffloadValues:test_programs_without_files()
  local options = {stage = 1, layers = 3, recompute = 1}
  local text = program_of(options):apply(moves()):text()
  lu.assertErrorMsgContains("no pass has a place for them", trainer_of, program_of(options):with_actions(text), options)
  lu.assertErrorMsgContains("has an effect only with activations", offload.move,
                            {optimizer = "nvme", activations_stay = 2, folder = folder})
end

small.run("TestOffloadValues", TestOffloadValues)
