-- Tests layers within layers in Lua, metrics, and gradients with respect to the batch. Also runs on two ranks.
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, optim, pipe = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.pipe"
local zero = require "zt.zero"

local rank, ranks = zt.world.rank, zt.world.size
local mesh = comm.mesh{dp = -1}
local SAMPLES, WIDTH = 8, 6

local function numbers(shape, seed) return zt.randn(shape, {generator = zt.generator(seed)}) end

-- A batch of all ranks, or this rank's part of it.
local function batch(step, all)
  local x, y = numbers({SAMPLES, WIDTH}, 2 * step), numbers({SAMPLES, 1}, 2 * step + 1)
  if all then return {x = x, y = y} end
  local count = SAMPLES / ranks
  return {x = x:narrow(0, rank * count, count):contiguous(), y = y:narrow(0, rank * count, count):contiguous()}
end

local function read()
  return nn.layer{io = {inputs = {}, outputs = {"h"}}, forward = function(_, ctx) return ctx:batch "x" end}
end

local function linear(columns) return nn.linear{["in"] = WIDTH, out = columns} end

local function square()
  return nn.layer{forward = function(_, h) return h * h + h end}
end

local function squared_error(inputs)
  return zt.loss(function(out, ctx) return (out.h - ctx:batch "y"):pow(2):mean(1):sum() end,
                 {inputs = inputs or {"h"}, per = "sample", reduction = "sum"})
end

local function trainer_of(model, options)
  options = options or {}
  local program = zt.program(model, {micro_batches = options.micro_batches, precision = options.precision,
                                     inputs_need_grad = options.wanted})
  if not options.alone then program = program:apply(zero.shard{axis = mesh.dp, stage = options.stage}) end
  if options.recompute then program = program:apply(zt.recompute{}) end
  return zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}, separate = options.alone})
end

local TestInner = {}

-- A layer made of two inner ones trains as these two in a row.
function TestInner:test_same_as_outside()
  for stage = 0, 3 do
    local first, second = linear(WIDTH), linear(1)
    local outside = nn.sequential{read(), first, square(), second, squared_error(), seed = 3}
    local parts = {first = linear(WIDTH), second = linear(1), act = square()}
    local inner = nn.layer{layers = parts, forward = function(own, h, ctx)
      return own.second:forward(own.act:forward(own.first:forward(h, ctx), ctx), ctx)
    end}
    local inside = nn.sequential{read(), inner, squared_error(), seed = 3}
    local a, b = trainer_of(outside, {stage = stage}), trainer_of(inside, {stage = stage})
    local names = b:parameters()
    lu.assertEquals(names, {"1.first.weight", "1.first.bias", "1.second.weight", "1.second.bias"})
    for place, name in ipairs(a:parameters()) do b:set_parameter(names[place], a:parameter(name)) end
    for step = 1, 3 do lu.assertEquals(a:step(batch(step)).loss, b:step(batch(step)).loss) end
    for place, name in ipairs(a:parameters()) do lu.assertTrue(a:parameter(name):equal(b:parameter(names[place]))) end
  end
end

-- Each call of an inner dropout has a mask of its own, the same in a recompute.
function TestInner:test_dropout()
  local seen = {}
  local parts = {a = nn.dropout{p = 0.5}, b = nn.dropout{p = 0.5}, w = linear(1)}
  local inner = nn.layer{layers = parts, forward = function(own, h, ctx)
    local ones, masks = h * 0 + 1, {}
    for place, name in ipairs{"a", "b", "a"} do masks[place] = own[name]:forward(ones, ctx):detach():clone() end
    seen[#seen + 1] = masks
    return own.w:forward(own.a:forward(h, ctx), ctx)
  end}
  trainer_of(nn.sequential{read(), inner, squared_error(), seed = 3}, {recompute = true}):step(batch(1))
  lu.assertTrue(#seen >= 1)
  lu.assertFalse(seen[1][1]:equal(seen[1][2]))
  lu.assertFalse(seen[1][1]:equal(seen[1][3]))
  for place = 1, 3 do lu.assertTrue(seen[1][place]:equal(seen[#seen][place])) end
end

-- The name of an inner layer is always in the names of its parameters, as that of a layer of a model is.
function TestInner:test_names()
  local innermost = nn.layer{layers = {x = linear(WIDTH)}, forward = function(own, h, ctx) return own.x:forward(h, ctx) end}
  local inner = nn.layer{params = {weight = zt.zeros{1}}, layers = {x = innermost, up = nn.mlp{hidden = WIDTH, ffn = 2}},
                         forward = function(own, h, ctx) return own.up:forward(own.x:forward(h, ctx), ctx) end}
  local names = {}
  for place, param in ipairs(nn.sequential{read(), inner, squared_error()}:parameters()) do names[place] = param.name end
  lu.assertEquals(names, {"1.weight", "1.up.up.weight", "1.up.up.bias", "1.up.down.weight", "1.up.down.bias", "1.x.x.weight",
    "1.x.x.bias"})
end

function TestInner:test_mistakes()
  local contains = lu.assertErrorMsgContains
  contains("nn.layer.layers.a", nn.layer, {layers = {a = 3}, forward = print})
  local function run_a(own, h, ctx) return own.a:forward(h, ctx) end
  local other = nn.layer{layers = {a = nn.dropout{p = 0.25 * rank}}, forward = run_a}
  local unlike = nn.sequential{read(), other, linear(1), squared_error(), seed = 1}
  if ranks > 1 then contains("layers.a.p", trainer_of, unlike) end
  contains("is a name of `params` and of `layers`", nn.layer,
           {layers = {a = linear(1)}, params = {a = zt.zeros{1}}, forward = print})
  local once = linear(1)
  contains("'a' and 'b' are one layer", nn.layer, {layers = {a = once, b = once}, forward = print})
  -- A call that fails does not rename the inner layers.
  local first = linear(1)
  contains("has metrics or statistics", nn.layer, {layers = {a = first, b = zt.metric("m", print, {inputs = {"h"}})},
                                                   forward = print})
  lu.assertEquals(nn.sequential{read(), nn.layer{layers = {a = first}, forward = run_a}}:parameters()[1].name, "1.a.weight")
  local metric = zt.metric("m", print, {inputs = {"h"}})
  contains("has metrics or statistics", nn.layer, {layers = {a = metric}, forward = print})
  local kept
  local keeps = nn.layer{layers = {a = linear(1)}, forward = function(own, h, ctx)
    kept = kept or {own.a, ctx}
    return own.a:forward(h, ctx)
  end}
  trainer_of(nn.sequential{read(), keeps, squared_error(), seed = 1}):step(batch(1))
  contains("is valid during the forward of its outer layer only", function() kept[1]:forward(zt.zeros{1, WIDTH}, kept[2]) end)
  local few = nn.layer{layers = {a = linear(1)}, forward = function(own, _, ctx) return own.a:forward(ctx) end}
  local trainer = trainer_of(nn.sequential{read(), few, squared_error(), seed = 1})
  contains("self.a:forward takes 1 input(s) and ctx", trainer.step, trainer, batch(1))
end

local TestMetric = {}

-- A metric is a mean over micro-batches and ranks, in training and in evaluation.
function TestMetric:test_a_mean()
  local function count_positive(out) return out.h:gt(0):sum(), out.h:numel() end
  local metric = zt.metric("positive", count_positive, {inputs = {"h"}})
  local model = nn.sequential{read(), metric, linear(1), squared_error(), seed = 1}
  local wanted = batch(1, true).x:gt(0):to("float64"):mean():item()
  for _, options in ipairs{{}, {micro_batches = 2, stage = 3}, {recompute = true}} do
    local trainer = trainer_of(model, options)
    lu.assertAlmostEquals(trainer:step(batch(1)).stats["1.positive"], wanted, 1e-12)
    lu.assertAlmostEquals(trainer:evaluate(batch(1)).stats["1.positive"], wanted, 1e-12)
  end
end

-- It changes no bit of the training.
function TestMetric:test_it_changes_nothing()
  local function model(has_metric)
    local layers = {read(), linear(WIDTH)}
    local function mean(out) return out.h:sum(), out.h:numel() end
    if has_metric then layers[3] = zt.metric("mean", mean, {inputs = {"h"}}) end
    layers[#layers + 1] = linear(1)
    layers[#layers + 1] = squared_error()
    layers.seed = 5
    return nn.sequential(layers)
  end
  local a, b = trainer_of(model(true)), trainer_of(model(false))
  local names = b:parameters()
  for place, name in ipairs(a:parameters()) do b:set_parameter(names[place], a:parameter(name)) end
  for step = 1, 2 do lu.assertEquals(a:step(batch(step)).loss, b:step(batch(step)).loss) end
end

function TestMetric:test_mistakes()
  local contains = lu.assertErrorMsgContains
  contains("zt.metric takes a name and function", zt.metric, "a")
  local empty = zt.metric("a", function() end, {inputs = {"h"}})
  local wrong = trainer_of(nn.sequential{read(), empty, linear(1), squared_error(), seed = 1})
  contains("returned nothing: let it return a sum and a count", wrong.step, wrong, batch(1))
  local function change(out) return out.h:mul_(2):sum(), 1 end
  local changer = zt.metric("c", change, {inputs = {"h"}})
  local changing = trainer_of(nn.sequential{read(), linear(1), changer, squared_error(), seed = 1})
  contains("changed out.h, which the layers after it read", changing.step, changing, batch(1))
  local undeclared = nn.layer{forward = function(_, h, ctx)
    ctx:metric("b", 1, 1)
    return h
  end}
  local trainer = trainer_of(nn.sequential{read(), undeclared, linear(1), squared_error(), seed = 1})
  contains("the statistic 'b' is not declared", trainer.step, trainer, batch(1))
end

local TestInputGradients = {}

local function network()
  return nn.sequential{read(), linear(WIDTH), square(), linear(1), squared_error(), seed = 9}
end

-- The gradient is that of the loss over all ranks, as differences of the loss give it.
function TestInputGradients:test_finite_differences()
  for _, options in ipairs{{}, {micro_batches = 2}, {stage = 2}, {stage = 3, recompute = true}} do
    options.precision, options.wanted = "fp64", {"x"}
    local trainer, given = trainer_of(network(), options), batch(1)
    given = {x = given.x:to "float64", y = given.y:to "float64"}
    local before = trainer:parameter "1.weight"
    local gradient = trainer:input_gradients(given).x
    lu.assertEquals(gradient:size(), given.x:size())
    lu.assertTrue(before:equal(trainer:parameter "1.weight"))
    local direction, step = numbers({SAMPLES / ranks, WIDTH}, 77 + rank):to "float64", 1e-5
    local function loss(sign) return trainer:evaluate{x = given.x + direction * (sign * step), y = given.y}.loss end
    local slope = (loss(1) - loss(-1)) / (2 * step)
    local mine, all = (gradient * direction):sum():item(), 0
    for _, one in ipairs(mesh.dp:gather_values(mine)) do all = all + one end
    lu.assertAlmostEquals(all, slope, 1e-8)
    trainer:step(given)
    lu.assertTrue(trainer:gradient("1.weight"):isfinite():all():item())
  end
end

-- Steps between are as without them.
function TestInputGradients:test_they_change_nothing()
  local a, b = trainer_of(network(), {wanted = {"x"}}), trainer_of(network())
  for step = 1, 3 do
    a:input_gradients(batch(step + 10))
    lu.assertEquals(a:step(batch(step)).loss, b:step(batch(step)).loss)
  end
end

-- Each rank of a pipeline gets them.
function TestInputGradients:test_a_pipeline()
  local stages = comm.mesh{pp = -1}
  local program = zt.program(network(), {micro_batches = 2, inputs_need_grad = {"x", "y"}}):apply(pipe.split{axis = stages.pp})
  local split = zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
  local whole = trainer_of(network(), {wanted = {"x", "y"}, alone = true, micro_batches = 2})
  local a, b = split:input_gradients(batch(1, true)), whole:input_gradients(batch(1, true))
  for _, name in ipairs{"x", "y"} do lu.assertTrue(a[name]:equal(b[name]), name) end
end

function TestInputGradients:test_mistakes()
  local contains = lu.assertErrorMsgContains
  local trainer = trainer_of(network())
  contains("the program wants none", trainer.input_gradients, trainer, batch(1))
  local other = trainer_of(network(), {wanted = {"images"}})
  contains("the gradient of the batch field 'images', which the batch does not have", other.input_gradients, other, batch(1))
  local blind = nn.layer{io = {inputs = {}, outputs = {{name = "h", differentiable = false}}},
                         forward = function(_, ctx) return ctx:batch "x" end}
  local unseen = trainer_of(nn.sequential{blind, linear(1), squared_error(), seed = 1}, {wanted = {"x"}})
  contains("no gradient flows to the batch field 'x'", unseen.input_gradients, unseen, batch(1))
  local given = batch(1)
  given.x = given.x:to "int64"
  local integer = trainer_of(network(), {wanted = {"x"}})
  contains("only floating-point fields have one", integer.input_gradients, integer, given)
  lu.assertTrue(integer:step(batch(1)).loss > 0)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{
  {"TestInner", TestInner}, {"TestMetric", TestMetric}, {"TestInputGradients", TestInputGradients},
})
