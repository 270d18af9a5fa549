-- Tests layers in Lua whose work and parameters are shared by the ranks of a mesh axis. Also runs on two and four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local one_rank = require "support.one_rank"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local ranks = zt.world.size
local mesh = comm.mesh{dp = 1, tp = -1}
local SAMPLES, TOKENS, WIDTH, INNER = 3, 5, 6, 7

local function numbers(shape, seed) return zt.randn(shape, {generator = zt.generator(seed), dtype = "float64"}):mul(0.3) end
local function batch(step)
  return {x = numbers({SAMPLES, TOKENS, WIDTH}, 2 * step), y = numbers({SAMPLES, TOKENS, WIDTH}, 2 * step + 1)}
end

local UP, BIAS, DOWN = numbers({2 * INNER, WIDTH}, 101), numbers({2 * INNER}, 102), numbers({WIDTH, INNER}, 103)
local HALVES = {INNER, {size = INNER, unit = 7}} -- the second half stays on the first rank

local function read()
  return nn.layer{io = {inputs = {}, outputs = {"h"}}, forward = function(_, ctx) return ctx:batch "x" end}
end

local function squared_error()
  return zt.loss(function(out, ctx) return (out.h - ctx:batch "y"):pow(2):sum(2):mean(1):sum() end,
                 {inputs = {"h"}, per = "sample", reduction = "sum"})
end

-- gate and value in one matrix of two groups, so that each rank has rows of both; the sum over ranks at the end.
local function cut_mlp(sequence)
  local function cut(values, dim, groups) return {values = values, cut = {axis = mesh.tp, dim = dim, groups = groups}} end
  return nn.layer{
    axes = {mesh.tp},
    params = {up = cut(UP, 0, {INNER, INNER}), bias = cut(BIAS, 0, {INNER, INNER}), down = cut(DOWN, 1)},
    forward = function(self, h, ctx)
      local all = sequence and ctx:gather_from(mesh.tp, ctx:scatter_to(mesh.tp, h, 1), 1, TOKENS, "in_parts")
                  or ctx:copy_to(mesh.tp, h)
      local own = self.up:size(0) / 2
      local inner = zt.linear(all, self.up, self.bias)
      local part = zt.linear(zt.silu(inner:narrow(2, 0, own)) * inner:narrow(2, own, own), self.down)
      if not sequence then return h + ctx:reduce_from(mesh.tp, part) end
      return h + ctx:gather_from(mesh.tp, ctx:reduce_scatter_to(mesh.tp, part, 1), 1, TOKENS, "alike")
    end,
  }
end

local function plain_mlp()
  return nn.layer{
    params = {up = UP, bias = BIAS, down = DOWN},
    forward = function(self, h)
      local inner = zt.linear(h, self.up, self.bias)
      return h + zt.linear(zt.silu(inner:narrow(2, 0, INNER)) * inner:narrow(2, INNER, INNER), self.down)
    end,
  }
end

local function train(layer, options)
  options = options or {}
  local model = nn.sequential{{"read", read()}, {"mlp", layer}, {"again", options.again or layer}, {"loss", squared_error()}}
  local program = zt.program(model, {precision = "fp64"})
  if options.stage then program = program:apply(zero.shard{axis = mesh.dp, stage = options.stage}) end
  if options.recompute then program = program:apply(zt.recompute{}) end
  local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.05}, separate = not options.stage})
  return one_rank.run(trainer, batch), trainer
end

local TestCutLayers = {}

function TestCutLayers:test_trains_as_one_rank()
  local wanted, alone = train(plain_mlp())
  for stage = 0, 3 do
    for _, sequence in ipairs{false, true} do
      local results, trainer = train(cut_mlp(sequence), {stage = stage, recompute = stage == 1})
      local what = ("stage %d%s"):format(stage, sequence and ", tokens in shares" or "")
      one_rank.assert_close(results, wanted, what)
      one_rank.assert_same_tensors(trainer, alone, 1e-14, what)
    end
  end
end

function TestCutLayers.test_self_has_the_share_of_this_rank()
  local seen
  local layer = nn.layer{
    axes = {mesh.tp},
    params = {w = {values = numbers({2 * INNER, WIDTH}, 1), cut = {axis = mesh.tp, groups = HALVES}}},
    forward = function(self, h, ctx)
      seen = self.w:size(0)
      return h + ctx:reduce_from(mesh.tp, zt.linear(h, self.w):sum(2, true))
    end,
  }
  train(layer, {stage = 0})
  local rank = mesh.tp.rank
  local first = math.ceil((rank + 1) * INNER / ranks) - math.ceil(rank * INNER / ranks)
  lu.assertEquals(seen, first + (rank == 0 and INNER or 0))
end

function TestCutLayers:test_all_to_all_moves_heads_for_tokens()
  if ranks > 3 then return end
  local function layer(cut)
    return nn.layer{axes = cut and {mesh.tp} or nil, forward = function(_, h, ctx)
      if not cut then return h + h:cumsum(1) end
      local tokens = ctx:scatter_to(mesh.tp, h, 1)
      local heads = ctx:all_to_all(mesh.tp, tokens, 1, 2, TOKENS) -- all tokens of some columns
      return h + ctx:gather_from(mesh.tp, ctx:all_to_all(mesh.tp, heads:cumsum(1), 2, 1, WIDTH), 1, TOKENS, "alike")
    end}
  end
  local wanted = train(layer(false), {again = plain_mlp()})
  one_rank.assert_close(train(layer(true), {stage = 1, again = cut_mlp()}), wanted, "heads")
end

function TestCutLayers:test_refusals()
  local function layer(param, axes, forward)
    return nn.layer{axes = axes, params = {w = param}, forward = forward or function(_, h) return h end}
  end
  local function refused(text, ...) lu.assertErrorMsgContains(text, layer, ...) end
  local values = numbers({4, WIDTH}, 1)
  refused("nn.layer.params.w.cut: parameter 'w' is cut on axis 'tp' in groups of 3 rows together, but its dim 0 has 4",
          {values = values, cut = {axis = mesh.tp, groups = {1, 2}}}, {mesh.tp})
  refused("parameter 'w' is cut along dim 2 on axis 'tp', but it has 2 dims", {values = values, cut = {axis = mesh.tp, dim = 2}},
          {mesh.tp})
  refused("a group of 3 rows in units of 2", {values = values, cut = {axis = mesh.tp, groups = {1, {size = 3, unit = 2}}}},
          {mesh.tp})
  refused("it is cut along 'tp', which `axes` and `tensor_axes` do not list", {values = values, cut = {axis = mesh.tp}}, {})
  refused("nn.layer.params.w: option 'cut' is missing", {values = values}, {mesh.tp})
  refused("joins several axes", values, {mesh:join{"dp", "tp"}})
  if ranks == 1 then return end
  local function run(forward) train(layer(values, {mesh.tp}, forward), {stage = 0}) end
  local text = "the layer does not say that it communicates along 'dp' (it names 'tp'): give nn.layer axes = {mesh.dp}"
  lu.assertErrorMsgContains(text, run, function(_, h, ctx) return ctx:copy_to(mesh.dp, h) end)
  lu.assertErrorMsgContains("there is no dim 3", run, function(_, h, ctx) return ctx:scatter_to(mesh.tp, h, 3) end)
  lu.assertErrorMsgContains("unknown use of the result 'twice'", run,
                            function(_, h, ctx) return ctx:gather_from(mesh.tp, h, 1, TOKENS, "twice") end)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCutLayers", TestCutLayers}})
