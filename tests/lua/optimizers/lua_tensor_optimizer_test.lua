-- Tests optimizers of whole tensors, in Lua (zt.optimizer with scope = "tensor") and in C++: the same bits at all stages,
-- checkpoints, what `step` gets, and mistakes. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, comm, nn, optim, zero = require "zt.ckpt", require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"
local assert_same = require("support.small_trainer").assert_same
local temporary = require "support.temporary"

local VOCAB, SEQ = 29, 8
local rank, ranks = zt.world.rank, zt.world.size
local mesh = comm.mesh{dp = -1}

local function merged(base, more)
  local out = {}
  for key, value in pairs(base) do out[key] = value end
  for key, value in pairs(more or {}) do out[key] = value end
  return out
end

-- As optim.lion, whose rule needs no whole tensors: in tensor scope it must give the same bits.
local function lion(options)
  local b1, b2 = 0.9, 0.99
  return zt.optimizer(merged({
    name = "lion", scope = "tensor", states = {exp_avg = "like"},
    step = function(info, p, g, state)
      local m = state.exp_avg
      local change = (g - m):mul_(1 - b1):add_(m):sign_():mul_(info.lr)
      p:sub_(change:add_(p * (info.lr * info.decay)))
      m:add_((g - m):mul_(1 - b2))
    end,
  }, options))
end

local function model(options)
  return nn.gpt(merged({layers = 2, hidden = 16, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3}, options))
end

local function batch(step)
  local all = (zt.arange(4 * SEQ) * 3 + step):remainder(VOCAB):view{4, SEQ}:to "int64"
  local tokens = all:narrow(0, rank * 4 / ranks, 4 / ranks):contiguous()
  return {tokens = tokens, labels = tokens}
end

local function trainer_of(optimizer, options)
  options = options or {}
  local program = zt.program(options.model or model(), {precision = options.precision})
    :apply(zero.shard{axis = mesh.dp, stage = options.stage or 1, sub_group_size = options.slices})
  return zt.trainer(program, {optimizer = optimizer, clip = options.clip or 0})
end

local function train(trainer, first, last)
  for step = first, last do trainer:step(batch(step)) end
  return trainer
end

local TestTensorOptimizer = {}

local OPTIONS = {lr = 3e-2, weight_decay = 0.1, groups = {{match = "^embedding", lr_scale = 0.5, weight_decay = 0.02}}}

function TestTensorOptimizer:test_bits_of_element_scope()
  local cases = {
    {precision = "bf16", clip = 0.1}, {precision = "fp16"}, {slices = 4096, model = model{hidden = 48}},
    {clip = 0.1, model = model{tied = true}},
    {precision = "fp64"},
  }
  local frozen = model{norm = "rmsnorm"}
  frozen:freeze "blocks\\.1\\.attention"
  cases[#cases + 1] = {model = frozen}
  for stage = 0, 3 do
    for i, case in ipairs(cases) do
      case.stage = stage
      assert_same(train(trainer_of(lion(OPTIONS), case), 1, 3), train(trainer_of(optim.lion(OPTIONS), case), 1, 3),
                  (" of case %d at stage %d"):format(i, stage))
    end
  end
end

-- All optimizers of whole tensors, with a state of each shape.
local MAKERS = {
  muon = function() return optim.muon{lr = 2e-2} end,
  lamb = function() return optim.lamb{lr = 1e-2, weight_decay = 0.1} end,
  adafactor = function() return optim.adafactor{lr = 2e-2} end,
  lua = function()
    return zt.optimizer{
      name = "shapes", lr = 1e-2, scope = "tensor",
      states = {
        average = "like", rows = "rows", columns = "columns", norm = "scalar",
        last = function(shape) return {2, #shape}, "float32" end,
      },
      step = function(info, p, g, state)
        state.norm:add_((g * g):sum())
        state.average:mul_(0.9):add_(g)
        if #info.shape == 2 then
          state.rows:add_(g:sum(1))
          state.columns:add_(g:sum(0))
        end
        state.last:fill_(info.step)
        p:sub_(state.average * (info.lr / (1 + state.norm:item() ^ 0.5)))
      end,
    }
  end,
}
local NAMES = {"muon", "lamb", "adafactor", "lua"}

function TestTensorOptimizer:test_stages_are_equal()
  for _, name in ipairs(NAMES) do
    local make = MAKERS[name]
    for _, precision in ipairs{"fp32", "bf16"} do
      local first = train(trainer_of(make(), {stage = 0, precision = precision, clip = 0.5}), 1, 3)
      for stage = 1, 3 do
        local other = train(trainer_of(make(), {stage = stage, precision = precision, clip = 0.5}), 1, 3)
        assert_same(first, other, (" of %s in %s at stage %d"):format(name, precision, stage))
      end
    end
  end
end

function TestTensorOptimizer:test_checkpoints()
  for _, name in ipairs(NAMES) do
    local make = MAKERS[name]
    local folder = temporary()
    local whole = train(trainer_of(make()), 1, 4)
    ckpt.save(folder, {trainer = train(trainer_of(make()), 1, 2)}, {step = 2, async = false})
    for stage = 0, 3 do
      local resumed = trainer_of(make(), {stage = stage})
      ckpt.load(folder, {trainer = resumed})
      assert_same(whole, train(resumed, 3, 4), (" of %s at stage %d"):format(name, stage))
    end
  end
end

function TestTensorOptimizer:test_what_a_step_gets()
  local seen = {}
  local optimizer = zt.optimizer{
    name = "seen", lr = 0.5, weight_decay = 0.25, scope = "tensor", states = {rows = "rows", one = "scalar"},
    groups = {{match = "^head", lr_scale = 0.5}},
    step = function(info, p, g, state)
      lu.assertEquals(p:size(), info.shape)
      lu.assertEquals(g:size(), info.shape)
      lu.assertEquals(#state.one:size(), 0)
      seen[info.name] = {info.lr, info.step, info.decay, info.is_matrix, state.rows:size()}
    end,
  }
  local trainer = train(trainer_of(optimizer, {stage = 3, model = model{tied = false}}), 1, 1)
  if ranks == 1 then
    for _, name in ipairs(trainer:parameters()) do lu.assertNotNil(seen[name], name) end
  end
  if seen["head.weight"] then lu.assertEquals(seen["head.weight"], {0.25, 1, 0.25, true, {VOCAB}}) end
  lu.assertEquals(trainer:optimizer_state("head.weight").rows:size(), {VOCAB})
  trainer:set_optimizer_state("head.weight", "rows", zt.arange(VOCAB))
  lu.assertTrue(trainer:optimizer_state("head.weight").rows:equal(zt.arange(VOCAB)))
  lu.assertErrorMsgContains("state 'rows' of parameter 'head.weight' is [29], the values are", trainer.set_optimizer_state,
                            trainer, "head.weight", "rows", zt.zeros{3})
end

-- Each tensor has one owner, and the bytes are those of the plan.
function TestTensorOptimizer:test_memory()
  for stage = 0, 3 do
    local trainer = train(trainer_of(MAKERS.lua(), {stage = stage}), 1, 1)
    local memory = trainer:memory()
    for _, kind in ipairs{"optimizer", "staging"} do
      lu.assertEquals(memory[kind].measured, memory[kind].predicted, kind .. " at stage " .. stage)
    end
  end
end

local function mistake(step, options)
  return function()
    local base = {name = "wrong", lr = 1, scope = "tensor", states = {m = "like"}, step = step}
    train(trainer_of(zt.optimizer(merged(base, options))), 1, 1)
  end
end

-- A rank of a pipeline that does not hold a unit knows as its holder does that a frozen tensor has no state.
function TestTensorOptimizer:test_frozen_parameters_of_a_pipeline()
  local pipeline = comm.mesh{dp = 1, pp = ranks, order = {"dp", "pp"}, timeout = 20}
  local own = model{layers = 2}
  own:freeze "norm"
  local program = zt.program(own, {micro_batches = 2})
    :apply(require("zt.pipe").split{axis = pipeline.pp, schedule = "one_f_one_b"})
    :apply(zero.shard{axis = pipeline.dp, stage = 0})
  local trainer = zt.trainer(program, {optimizer = optim.adafactor{lr = 1e-2}})
  for _, name in ipairs(trainer:parameters()) do
    local state = trainer:optimizer_state(name)
    lu.assertEquals(next(state) == nil, name:find "norm" ~= nil, name)
  end
end

function TestTensorOptimizer:test_mistakes()
  if ranks > 1 then return end -- the owner's error ends the run on the others
  lu.assertErrorMsgContains("it made element 0 of", mistake(function(_, p) p:fill_(0 / 0) end))
  lu.assertErrorMsgContains("it returned a number", mistake(function() return 1 end))
  lu.assertErrorMsgContains("another shape or memory", mistake(function(_, _, _, state) state.m:unsqueeze_(0) end))
  local nothing = function() end
  lu.assertErrorMsgContains("give \"like\"", mistake(nothing, {states = {m = "square"}}))
  lu.assertErrorMsgContains("needs whole tensors", mistake(nothing, {scope = "element", states = {m = "rows"}}))
  lu.assertErrorMsgContains("zt.optimizer.scope", mistake(nothing, {scope = "layer"}))
  lu.assertErrorMsgContains("it returned a shape with a string", mistake(nothing, {states = {m = function() return {"a"} end}}))
  lu.assertErrorMsgContains("it returned nil for the shape", mistake(nothing, {states = {m = nothing}}))
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestTensorOptimizer", TestTensorOptimizer}})
