-- Tests what the context of a layer in Lua offers where ranks share the tokens or the columns of a sample: tokens in their order,
-- positions, and dropout with the mask of one rank. Also runs on two and four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local one_rank = require "support.one_rank"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local VOCAB, WIDTH, SAMPLES, TOKENS, INNER = 17, 8, 2, 11, 10
local mesh = comm.mesh{dp = 1, cp = -1}
local by_columns = comm.mesh{dp = 1, tp = -1}
local ranks = zt.world.size

local function batch(step)
  local generator = zt.generator(step)
  return {tokens = zt.randint(VOCAB, {SAMPLES, TOKENS}, {generator = generator, dtype = "int64"}),
          labels = zt.randint(VOCAB, {SAMPLES, TOKENS}, {generator = generator, dtype = "int64"})}
end

local function values(shape, seed) return zt.randn(shape, {generator = zt.generator(seed)}):mul(0.3) end

local function model_with(layer)
  return nn.sequential{{"embedding", nn.embedding{vocab = VOCAB, hidden = WIDTH}}, {"layer", layer},
                       {"head", nn.lm_loss{vocab = VOCAB, hidden = WIDTH}}}
end

local function trainer_of(layer, axis)
  local program = zt.program(model_with(layer), {precision = "fp64"})
  if axis then program = program:apply(zero.shard{axis = axis, stage = 1}) end
  return zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, separate = not axis})
end

local function assert_equal_one_rank(layer_of, cut, axis, what)
  local alone, trainer = trainer_of(layer_of(nil)), trainer_of(layer_of(cut), axis)
  local wanted = one_rank.run(alone, batch)
  one_rank.assert_trains_alike(one_rank.run(trainer, batch), trainer, wanted, alone, what)
end

local function context_of(layout) return {axis = mesh.cp, layout = layout} end

-- A layer on cut tokens whose forward is `forward(self, h, ctx)`.
local function on_tokens(forward)
  return function(context) return nn.layer{context = context, params = {w = values({WIDTH}, 3)}, forward = forward} end
end

local TestCutFunctions = {}

function TestCutFunctions.test_gathered_tokens_are_in_order()
  local sums = on_tokens(function(self, h, ctx)
    local all = ctx:gather_tokens(h, "in_parts")
    return h + ctx:own_tokens(all:cumsum(1)) * self.w
  end)
  local last = on_tokens(function(self, h, ctx)
    local all = ctx:gather_tokens(h, "in_parts")
    return h + all:narrow(1, TOKENS - 1, 1):tanh() * self.w
  end)
  for _, layout in ipairs{"balanced", "contiguous"} do
    assert_equal_one_rank(sums, context_of(layout), mesh.dp, "cumsum, " .. layout)
    assert_equal_one_rank(last, context_of(layout), mesh.dp, "the last token, " .. layout)
  end
end

-- Functions that join shares in the order of the ranks do not know the order of balanced tokens.
function TestCutFunctions.test_shares_of_balanced_tokens_are_refused()
  if ranks == 1 then return end
  local cp = mesh.cp
  local uses = {
    function(h, ctx) return ctx:gather_from(cp, h, 1, TOKENS, "alike") end,
    function(h, ctx) return ctx:gather_from(cp, h, -2, TOKENS, "alike") end,
    function(h, ctx) return ctx:all_to_all(cp, h, 1, 2, TOKENS) end,
    function(h, ctx) return ctx:all_to_all(cp, ctx:gather_tokens(h, "in_parts"), 2, -2, ranks * WIDTH) end,
    function(h, ctx) return ctx:scatter_to(cp, ctx:gather_tokens(h, "alike"), 1) end,
    function(h, ctx) return ctx:reduce_scatter_to(cp, ctx:gather_tokens(h, "in_parts"), -2) end,
  }
  for i, use in ipairs(uses) do
    local layer = on_tokens(function(self, h, ctx) return h + use(h, ctx):sum() * self.w end)
    local trainer = trainer_of(layer(context_of "balanced"), mesh.dp)
    local is_taken, message = pcall(trainer.step, trainer, batch(1))
    lu.assertFalse(is_taken, "use " .. i)
    lu.assertStrContains(message, "in the order of the ranks, and 'cp' cuts tokens in another")
  end
  -- Contiguous tokens are in that order: attention's exchange of heads against tokens, in Lua.
  local function sums(context)
    return nn.layer{
      context = context, params = {w = values({WIDTH}, 3)},
      forward = function(self, h, ctx)
        if not context then return h + h:cumsum(1) * self.w end
        local all = ctx:all_to_all(cp, h, 1, 2, TOKENS):cumsum(1)
        return h + ctx:all_to_all(cp, all, 2, 1, WIDTH) * self.w
      end,
    }
  end
  assert_equal_one_rank(sums, context_of "contiguous", mesh.dp, "cumsum after all_to_all")
end

function TestCutFunctions.test_fields_of_own_tokens_are_contiguous()
  for _, layout in ipairs{"balanced", "contiguous"} do
    assert_equal_one_rank(on_tokens(function(self, h, ctx)
      local even = ctx:batch("tokens"):view{-1}:remainder(2):to "float64"
      return h + even:view{SAMPLES, -1, 1} * self.w
    end), context_of(layout), mesh.dp, layout)
  end
end

function TestCutFunctions.test_positions_are_there_on_any_mesh()
  local layer = on_tokens(function(self, h, ctx)
    lu.assertTrue(ctx:has_batch "positions")
    return h + ctx:batch("positions"):to("float64"):sin():unsqueeze(-1) * self.w
  end)
  local own = on_tokens(function(self, h, ctx)
    return h + zt.arange(ctx.tokens.total, {dtype = "float64"}):sin():view{1, -1, 1} * self.w
  end)
  local function layer_of(context) return (context and layer or own)(context) end
  assert_equal_one_rank(layer_of, context_of "balanced", mesh.dp, "positions")
  local function logits(make, context, axis)
    local model = nn.sequential{{"embedding", nn.embedding{vocab = VOCAB, hidden = WIDTH}}, {"layer", make(context)},
                                {"head", nn.lm_loss{vocab = VOCAB, hidden = WIDTH, loss = false}}}
    local program = zt.program(model, {precision = "fp64", mesh = axis and mesh})
    return zt.trainer(program, {separate = not axis}):infer{tokens = batch(1).tokens}.logits
  end
  lu.assertTrue(zt.isclose(logits(layer, context_of "balanced", mesh.dp), logits(own), 1e-12, 1e-12):all():item())
end

function TestCutFunctions.test_dropout_of_tokens_has_the_mask_of_one_rank()
  assert_equal_one_rank(on_tokens(function(self, h, ctx) return h + ctx:dropout(h, 0.4) * self.w end), context_of "balanced",
    mesh.dp, "three dims")
  assert_equal_one_rank(on_tokens(function(self, h, ctx)
    return h + ctx:dropout(h:sum(-1), 0.4, {tokens = true}):unsqueeze(-1) * self.w
  end), context_of "contiguous", mesh.dp, "two dims")
  assert_equal_one_rank(on_tokens(function(self, h, ctx)
    local sum = h:sum(1)
    if ranks > 1 and ctx.tokens.of_rank[2] then sum = ctx:copy_to(mesh.cp, ctx:reduce_from(mesh.cp, sum)) end
    return h + (ctx:dropout(sum, 0.4, {tokens = false}) * self.w):unsqueeze(1)
  end), context_of "balanced", mesh.dp, "without tokens")
end

function TestCutFunctions.test_dropout_refuses_what_is_not_clear()
  if ranks == 1 then return end
  for _, form in ipairs{
    function(h) return h:flatten(0, 1) end, function(h) return h:transpose(1, 2) end, function(h) return h:sum(1) end,
    function(h) return h:sum(-1) end, function(h) return h:unsqueeze(1):expand{-1, h:size(1), -1, -1} end,
  } do
    local layer = on_tokens(function(_, h, ctx) ctx:dropout(form(h), 0.4) return h end)
    local trainer = trainer_of(layer(context_of "balanced"), mesh.dp)
    lu.assertErrorMsgContains("give it the option tokens = false if x has no tokens", trainer.step, trainer, batch(1))
  end
end

-- Dropout of a mean over all tokens, which has no tokens.
function TestCutFunctions.test_dropout_layer_without_tokens()
  local function trainer(context, tokens)
    local model = nn.sequential{
      {"embedding", nn.embedding{vocab = VOCAB, hidden = WIDTH}},
      {"mean", nn.layer{context = context, forward = function(_, h, ctx) return ctx:gather_tokens(h, "in_parts"):mean{1} end}},
      {"dropout", nn.dropout{p = 0.4, tokens = tokens}},
      {"loss", zt.loss(function(out) return out.h:square():sum() / (context and ranks or 1) end,
        {inputs = {"h"}, per = "sample", reduction = "sum", adds_over_tokens = true})},
    }
    local program = zt.program(model, {precision = "fp64"})
    if context then program = program:apply(zero.shard{axis = mesh.dp, stage = 1}) end
    return zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, separate = not context})
  end
  local alone, cut = trainer(), trainer(context_of "balanced", false)
  one_rank.assert_trains_alike(one_rank.run(cut, batch), cut, one_rank.run(alone, batch), alone, "dropout of a mean")
  if ranks == 1 then return end
  local unclear = trainer(context_of "balanced")
  lu.assertErrorMsgContains("give it the option tokens = false", unclear.step, unclear, batch(1))
end

-- Two matrices with dropout between them, whose inner columns are cut.
local function pair(options)
  return function(tp)
    local function param(shape, seed, dim)
      local whole = values(shape, seed)
      return tp and {values = whole, cut = {axis = tp, dim = dim}} or whole
    end
    return nn.layer{
      tensor_axes = {tp}, params = {up = param({INNER, WIDTH}, 1, 0), down = param({WIDTH, INNER}, 2, 1)},
      forward = function(self, h, ctx)
        local part = ctx:dropout(zt.linear(tp and ctx:copy_to(tp, h) or h, self.up):tanh(), 0.4, tp and options(tp))
        local sum = zt.linear(part, self.down)
        return h + (tp and ctx:reduce_from(tp, sum) or sum)
      end,
    }
  end
end

function TestCutFunctions.test_dropout_of_cut_columns_has_the_mask_of_one_rank()
  local cut = pair(function(tp) return {axis = tp, columns = INNER} end)
  assert_equal_one_rank(cut, by_columns.tp, by_columns.dp, "cut columns")
  if ranks == 1 then return end
  local function step(options)
    local trainer = trainer_of(pair(function() return options end)(by_columns.tp), by_columns.dp)
    trainer:step(batch(1))
  end
  lu.assertErrorMsgContains("of 99 columns cut along 'tp' this rank has", step, {axis = by_columns.tp, columns = 99})
  lu.assertErrorMsgContains("axis = mesh.tp needs columns", step, {axis = by_columns.tp})
  lu.assertErrorMsgContains("with axis", step, {columns = INNER})
end

-- Mistakes of a cut layer after which ranks would train other weights. All ranks learn of it in the first step.
function TestCutFunctions.test_finds_gradients_that_differ_between_copies()
  if ranks == 1 then return end
  local tp = by_columns.tp
  local function layer(forward)
    return nn.layer{
      tensor_axes = {tp}, params = {
        up = {values = values({INNER, WIDTH}, 1), cut = {axis = tp}},
        down = {values = values({WIDTH, INNER}, 2), cut = {axis = tp, dim = 1}},
        bias = values({WIDTH}, 3), scale = values({1}, 4):abs():add(0.5),
      }, forward = forward,
    }
  end
  local function part(self, h, ctx, scale)
    return zt.linear(zt.linear(ctx:copy_to(tp, h), self.up):tanh() * scale, self.down)
  end
  local mistakes = {
    function(self, h, ctx) return h + ctx:reduce_from(tp, zt.linear(zt.linear(h, self.up):tanh(), self.down)) end,
    function(self, h, ctx) return h + part(self, h, ctx, 1) end,
    function(self, h, ctx) return h + ctx:reduce_from(tp, part(self, h, ctx, self.scale)) end,
  }
  for i, forward in ipairs(mistakes) do
    local trainer = trainer_of(layer(forward), by_columns.dp)
    local before = trainer:parameter "embedding.weight"
    for attempt = 1, 4 do -- a script that goes on gets the error each time
      local is_taken, message = pcall(trainer.step, trainer, batch(1))
      lu.assertFalse(is_taken, ("mistake %d, attempt %d"):format(i, attempt))
      lu.assertStrContains(message, "of 'tp' hold the same values of '")
      lu.assertStrContains(message, "but their gradients differ")
    end
    lu.assertTrue(trainer:parameter("embedding.weight"):equal(before))
  end
  -- As long as gamma is zero, the mistake has no effect. A later step finds it.
  local late = trainer_of(nn.layer{
    tensor_axes = {tp}, params = {
      up = {values = values({INNER, WIDTH}, 1), cut = {axis = tp}},
      down = {values = values({WIDTH, INNER}, 2), cut = {axis = tp, dim = 1}}, gamma = zt.zeros{WIDTH},
    },
    forward = function(self, h, ctx)
      return h + ctx:reduce_from(tp, zt.linear(zt.linear(h, self.up):tanh(), self.down)) * self.gamma
    end,
  }, by_columns.dp)
  late:step(batch(1))
  lu.assertErrorMsgContains("but their gradients differ", function()
    for step = 2, 32 do late:step(batch(step)) end
  end)
  -- Where all whole parameters are frozen, their losses still differ.
  local model = model_with(layer(function(self, h, ctx) return h + part(self, h, ctx, 1) end))
  model:freeze "embedding|head|bias|scale"
  local frozen = zt.trainer(zt.program(model, {precision = "fp64", mesh = by_columns}), {optimizer = optim.adamw{lr = 0.01}})
  lu.assertErrorMsgContains("but their losses differ", frozen.step, frozen, batch(1))
  -- A gradient of one element beside larger ones.
  local hidden = trainer_of(layer(function(self, h, ctx)
    return h + ctx:reduce_from(tp, part(self, h, ctx, self.scale)) * 0.01 + self.bias
  end), by_columns.dp)
  lu.assertErrorMsgContains("hold the same values of 'layer.scale'", hidden.step, hidden, batch(1))
  local right = trainer_of(layer(function(self, h, ctx)
    return h + ctx:reduce_from(tp, part(self, h, ctx, ctx:copy_to(tp, self.scale))) + self.bias
  end), by_columns.dp)
  for step = 1, 4 do right:step(batch(step)) end
end

-- A first layer that makes numbers of a field with a name of its own, and of positions.
function TestCutFunctions.test_a_first_layer_has_its_tokens_on_any_number_of_ranks()
  local function patches(step) return zt.randn({SAMPLES, TOKENS, WIDTH}, {generator = zt.generator(step), dtype = "float64"}) end
  local function given(step) return {patches = patches(step), labels = batch(step).labels} end
  local seen
  local function first(context)
    return nn.layer{
      io = {inputs = {}, outputs = {"h"}}, context = context, params = {w = values({WIDTH}, 3), at = values({TOKENS, WIDTH}, 4)},
      forward = function(self, ctx)
        seen = ctx.tokens.total
        local places = ctx:batch "positions"
        local own = self.at:index_select(0, places:narrow(0, 0, 1):reshape{-1})
        return (ctx:batch "patches" + ctx:own_tokens(self.at:unsqueeze(0)) + own) * self.w
      end,
    }
  end
  local function trainer_on(axis, axes)
    local model = nn.sequential{{"first", first{axis = axis, fields = {"patches", "labels"}}},
                                {"head", nn.lm_loss{vocab = VOCAB, hidden = WIDTH}}}
    local program = zt.program(model, {precision = "fp64"})
    if axes then program = program:apply(zero.shard{axis = axes, stage = 1}) end
    return zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, separate = not axes})
  end
  local alone, trainer = trainer_on(comm.mesh{dp = -1, ep = 1}.ep), trainer_on(mesh.cp, mesh.dp)
  one_rank.assert_trains_alike(one_rank.run(trainer, given), trainer, one_rank.run(alone, given), alone, "a first layer")
  for _, each in ipairs{alone, trainer} do
    each:infer{patches = patches(1)}
    lu.assertEquals(seen, TOKENS)
  end
end

-- Heads of which ranks have unequally many, as parameters with `unit` are cut.
function TestCutFunctions.test_dropout_of_units()
  local tp, UNIT = by_columns.tp, 4
  local heads = ranks + 1
  local columns = UNIT * heads
  local function layer(axis)
    local groups = {{size = columns, unit = UNIT}}
    local function cut(tensor, dim)
      return axis and {values = tensor, cut = {axis = axis, dim = dim, groups = groups}} or tensor
    end
    return nn.layer{
      tensor_axes = axis and {axis} or nil,
      params = {up = cut(values({columns, WIDTH}, 1), 0), down = cut(values({WIDTH, columns}, 2), 1)},
      forward = function(self, h, ctx)
        local inner = zt.linear(axis and ctx:copy_to(axis, h) or h, self.up)
        local dropped = ctx:dropout(inner, 0.4, axis and {axis = axis, columns = columns, unit = UNIT} or nil)
        local part = zt.linear(dropped, self.down)
        return h + (axis and ctx:reduce_from(axis, part) or part)
      end,
    }
  end
  assert_equal_one_rank(layer, tp, by_columns.dp, "units")
  local wrong = nn.layer{tensor_axes = {tp}, forward = function(_, h, ctx)
    return ctx:dropout(h, 0.4, {axis = tp, columns = 10, unit = 4})
  end}
  local trainer = trainer_of(wrong, by_columns.dp)
  lu.assertErrorMsgContains("columns = 10 does not divide into units of 4", trainer.step, trainer, batch(1))
end

function TestCutFunctions.test_one_axis_does_not_serve_two_purposes()
  if ranks == 1 then return end
  local context = {axis = mesh.cp}
  for _, layers in ipairs{
    {{"a", nn.embedding{vocab = VOCAB, hidden = WIDTH, tensor = mesh.cp}},
     {"b", nn.attention{hidden = WIDTH, heads = 2, context = context}}},
    {{"a", nn.layer{context = context, tensor_axes = {mesh.cp}, forward = function(_, h) return h end}}},
  } do
    lu.assertErrorMsgContains("give `tensor` and `context` different axes of the mesh", nn.sequential, layers)
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCutFunctions", TestCutFunctions}})
