-- Tests optimizers written in Lua (zt.optimizer): the bits of those in C++, checkpoints, what `step` gets, and its mistakes. Also
-- runs on two ranks.
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

-- As optim.lion, an operation for each of its roundings.
local function lion(options)
  local b1, b2 = 0.9, 0.99
  return zt.optimizer(merged({
    name = "lion", states = {exp_avg = "like"},
    step = function(info, p, g, state)
      local m = state.exp_avg
      local change = (g - m):mul_(1 - b1):add_(m):sign_():mul_(info.lr)
      p:sub_(change:add_(p * (info.lr * info.decay)))
      m:add_((g - m):mul_(1 - b2))
    end,
  }, options))
end

-- As optim.adamw. Square roots of float32 are taken in float64: those of ATen are not always rounded correctly.
local function adamw(options)
  local b1, b2 = 0.9, 0.999
  return zt.optimizer(merged({
    name = "adamw", states = {exp_avg = "like", exp_avg_sq = "like"},
    step = function(info, p, g, state)
      local m, v = state.exp_avg, state.exp_avg_sq
      m:add_((g - m):mul_(1 - b1))
      v:add_((g * g):sub_(v):mul_(1 - b2))
      local root = v:to("float64"):sqrt_():to(v:dtype())
      local change = m / root:mul_(1 / math.sqrt(1 - b2 ^ info.step)):add_(1e-8)
      p:sub_(change:mul_(info.lr / (1 - b1 ^ info.step)):add_(p * (info.lr * info.decay)))
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

local TestLuaOptimizer = {}

local OPTIONS = {lr = 3e-2, weight_decay = 0.1, groups = {{match = "^embedding", lr_scale = 0.5, weight_decay = 0.02}}}
local PAIRS = {{optim.lion, lion}, {optim.adamw, adamw}}

function TestLuaOptimizer:test_bits_of_those_in_cpp()
  local cases = {
    {precision = "bf16", clip = 0.1}, {precision = "fp16"}, {slices = 4096, model = model{hidden = 48}},
    {clip = 0.1, model = model{tied = true}},
  }
  local frozen = model{norm = "rmsnorm"}
  frozen:freeze "blocks\\.1\\.attention"
  cases[#cases + 1] = {model = frozen}
  for stage = 0, 3 do
    for i, case in ipairs(cases) do
      case.stage = stage
      for _, pair in ipairs(PAIRS) do
        assert_same(train(trainer_of(pair[1](OPTIONS), case), 1, 3), train(trainer_of(pair[2](OPTIONS), case), 1, 3),
                    (" of case %d at stage %d"):format(i, stage))
      end
    end
  end
  local exact = {precision = "fp64", clip = 0.1}
  assert_same(train(trainer_of(optim.lion(OPTIONS), exact), 1, 3), train(trainer_of(lion(OPTIONS), exact), 1, 3), " in fp64")
end

function TestLuaOptimizer:test_checkpoints()
  local folder = temporary()
  local options = {lr = 1e-2, weight_decay = 0.1}
  local whole = train(trainer_of(adamw(options)), 1, 4)
  ckpt.save(folder, {trainer = train(trainer_of(adamw(options)), 1, 2)}, {step = 2, async = false})
  for stage = 1, 3, 2 do
    local resumed = trainer_of(adamw(options), {stage = stage})
    ckpt.load(folder, {trainer = resumed})
    assert_same(whole, train(resumed, 3, 4), " at stage " .. stage)
  end
  lu.assertErrorMsgContains("trainer/optimizer is lion, saved as adamw", ckpt.load, folder, {trainer = trainer_of(lion(options))})
end

function TestLuaOptimizer:test_what_a_step_gets()
  local seen = {}
  local optimizer = zt.optimizer{
    name = "watch", lr = 0.5, weight_decay = 0.25, groups = {{match = "norm1", lr_scale = 2}},
    step = function(info, p, g, state)
      lu.assertNil(next(state))
      lu.assertEquals({p:dtype(), g:dtype(), p:size(0)}, {"float32", "float32", g:size(0)})
      local count = 0
      for _, part in ipairs(info.parts) do
        lu.assertEquals(part.begin, count)
        count = count + part.count
        local own = seen[part.name] or {
          is_matrix = part.is_matrix, lr = info.lr, decay = info.decay, step = info.step, count = 0, first = part.first,
        }
        seen[part.name], own.count = own, own.count + part.count
      end
      lu.assertEquals(count, p:size(0))
    end,
  }
  local trainer = trainer_of(optimizer, {slices = 4096, stage = 0, model = model{hidden = 32}})
  trainer:step(batch(1))
  lu.assertEquals({optimizer.kind, optimizer.lr}, {"watch", 0.5})
  lu.assertEquals(seen["blocks.0.norm1.weight"], {is_matrix = false, lr = 1, decay = 0, step = 1, count = 32, first = 0})
  lu.assertEquals(seen["blocks.1.mlp.up.weight"],
                  {is_matrix = true, lr = 0.5, decay = 0.25, step = 1, count = 128 * 32, first = 0})
  for _, name in ipairs(trainer:parameters()) do lu.assertEquals(seen[name].count, trainer:parameter(name):numel(), name) end
end

-- Returns the error of a step in which `change` runs.
local function refused(message, change, states)
  local optimizer = zt.optimizer{name = "wrong", lr = 0.1, states = states, step = change}
  local trainer = trainer_of(optimizer)
  lu.assertErrorMsgContains(message, trainer.step, trainer, batch(1))
end

function TestLuaOptimizer:test_mistakes_of_a_step()
  local where = "optimizers/lua_optimizer_test.lua:"
  refused(where, function() error "no" end)
  refused("it returned a number: it returns nothing", function() return 1 end)
  refused("it gave p, which is float32[", function(_, p) p:resize_{1} end)
  refused("it gave average, which is float32[", function(_, _, _, state) state.average:set_(zt.zeros{2}) end, {average = "like"})
  local average = {average = "like"}
  refused("it assigned state.average, which would have no effect", function(_, _, g, state) state.average = g * 1 end, average)
  refused("it assigned a new field of state", function(_, _, g, state) state.mine = g * 1 end, average)
  refused("state.averages does not exist: did you mean 'average'?", function(_, _, _, state) return state.averages end, average)
  refused("info.rate does not exist", function(info, p) p:mul_(info.rate) end)
  refused("nan: does it divide by a number that can be 0?", function(_, p, g) p:copy_((g - g) / (g - g)) end)
  refused("of 'embedding.weight' inf: does it divide", function(_, p) p:fill_(math.huge) end)
  refused("random numbers in a layer", function(_, p) p:add_(zt.randn{p:size(0)}) end)
  refused("wrong' at", function(_, p) return p end)
end

-- The other ranks have done their step by then, and learn of it in the next one.
function TestLuaOptimizer:test_a_step_that_fails_on_one_rank()
  local last = ranks - 1
  local function fail() if rank == last then error "only one" end end
  local trainer = trainer_of(zt.optimizer{name = "wrong", lr = 0.1, step = fail})
  lu.assertEquals(pcall(trainer.step, trainer, batch(1)), rank ~= last)
  if ranks > 1 then -- what ranks read together none of them reads
    lu.assertErrorMsgContains("only one", trainer.master, trainer, "blocks.0.mlp.up.weight")
  end
  for _ = 1, 2 do lu.assertErrorMsgContains("only one", trainer.step, trainer, batch(1)) end
end

function TestLuaOptimizer:test_what_a_step_may_not_keep()
  local kept = {}
  local optimizer = zt.optimizer{name = "keeps", lr = 0.1, states = {average = "like"}, step = function(_, p, g, state)
    kept = {p, g, state.average, p * 2}
  end}
  trainer_of(optimizer):step(batch(1))
  for place, why in ipairs{"given to the step of an optimizer", "given to the", "given to the", "made inside a zt.scope"} do
    lu.assertErrorMsgContains(why, function() return kept[place]:sum() end)
  end
end

function TestLuaOptimizer:test_options()
  local function fails(message, options)
    lu.assertErrorMsgContains(message, zt.optimizer, merged({name = "x", lr = 1, step = function() end}, options))
  end
  fails("zt.optimizer.name must consist of lower-case letters", {name = "My Optimizer"})
  fails('zt.optimizer.states has m = "row": give "like"', {states = {m = "row"}})
  fails("zt.optimizer.states has m of another shape, which needs whole tensors", {states = {m = "rows"}})
  fails("zt.optimizer.states", {states = {"m"}})
  fails("zt.optimizer.lr must be", {lr = -1})
  fails("zt.optimizer.step", {step = 3})
  fails("zt.optimizer: unknown option 'stats': did you mean 'states'?", {stats = {}})
  lu.assertErrorMsgContains("no trainable parameter belongs to 'nothing'", trainer_of,
                            lion{lr = 1, groups = {{match = "nothing"}}})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestLuaOptimizer", TestLuaOptimizer}})
