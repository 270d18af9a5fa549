-- Tests samples whose tokens are cut over the ranks of a mesh axis, and axes whose ranks share the work on the same samples, with
-- layers in Lua. Also runs on two and four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local one_rank = require "support.one_rank"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local rank, ranks = zt.world.rank, zt.world.size
local VOCAB, WIDTH, SAMPLES, TOKENS, IGNORED = 17, 6, 4, 11, -100
local meshes = {comm.mesh{dp = 1, cp = -1}, comm.mesh{cp = -1, dp = 1, order = {"cp", "dp"}}}
if ranks % 2 == 0 then
  meshes[#meshes + 1] = comm.mesh{dp = 2, cp = -1}
  meshes[#meshes + 1] = comm.mesh{cp = -1, dp = 2, order = {"cp", "dp"}}
end
local mesh = meshes[1]

-- The global batch, or the part of a data-parallel rank. The labels of the first tokens are ignored: with contiguous tokens on
-- four ranks, all those of the first.
local function batch(step, dp)
  local generator = zt.generator(step)
  local tokens = zt.randint(VOCAB, {SAMPLES, TOKENS}, {generator = generator, dtype = "int64"})
  local labels = zt.randint(VOCAB, {SAMPLES, TOKENS}, {generator = generator, dtype = "int64"})
  labels:narrow(1, 0, 3):fill_(IGNORED)
  labels:narrow(0, 0, 1):narrow(1, 5, 2):fill_(IGNORED)
  if not dp then return {tokens = tokens, labels = labels} end
  local count = SAMPLES / dp.size
  return {tokens = tokens:narrow(0, dp.rank * count, count):contiguous(),
          labels = labels:narrow(0, dp.rank * count, count):contiguous()}
end

-- Adds to each token a function of the mean of all tokens of its sample.
local function mix(cut)
  local context = cut and {axis = cut.mesh.cp, layout = cut.layout}
  return nn.layer{
    context = context, params = {w = zt.randn({WIDTH, WIDTH}, {generator = zt.generator(7)}):mul(0.3)},
    forward = function(self, h, ctx)
      local sum = h:sum(1, true)
      if cut then sum = ctx:copy_to(cut.mesh.cp, ctx:reduce_from(cut.mesh.cp, sum)) end
      return h + zt.linear(sum / ctx.tokens.total, self.w):tanh() + 0.1 * h * zt.linear(sum, self.w)
    end,
  }
end

local function loss_of(kind)
  if kind == "lua" then
    return nn.layer{params = {w = zt.randn({VOCAB, WIDTH}, {generator = zt.generator(8)})},
                    forward = function(self, h) return zt.linear(h, self.w) end, io = {outputs = {"logits"}}},
           zt.loss(function(out, ctx)
             return zt.cross_entropy_loss(out.logits:flatten(0, 1), ctx:batch("labels"):flatten(), {ignore_index = IGNORED})
           end)
  elseif kind == "sample" then
    return nn.linear{["in"] = WIDTH, out = 1},
           zt.loss(function(out) return out.h:square():sum() end,
                   {inputs = {"h"}, per = "sample", reduction = "sum", adds_over_tokens = true})
  end
  return nn.rmsnorm{hidden = WIDTH}, nn.lm_loss{vocab = VOCAB, hidden = WIDTH}
end

local function model_of(cut, kind)
  local before, loss = loss_of(kind)
  return nn.sequential{
    {"embedding", nn.embedding{vocab = VOCAB, hidden = WIDTH, positions = TOKENS}}, {"mix", mix(cut)},
    {"mlp", nn.mlp{hidden = WIDTH, ffn = 9}}, {"again", mix(cut)}, {"before", before}, {"loss", loss},
  }
end

local function program_of(cut, options)
  local program = zt.program(model_of(cut, options.kind), {precision = "fp64", micro_batches = options.micro_batches})
  if cut then program = program:apply(zero.shard{axis = options.axis or cut.mesh.dp, stage = options.stage}) end
  return options.recompute and program:apply(zt.recompute{}) or program
end

local function train(cut, options)
  local trainer = zt.trainer(program_of(cut, options), {optimizer = optim.adamw{lr = 0.01}, clip = 0.5, separate = not cut})
  local function own(step) return batch(step, cut and cut.mesh.dp) end
  if not options.by_hand then return one_rank.run(trainer, own), trainer end
  local results = {}
  for step = 1, 3 do
    local first = trainer:forward(own(step))
    trainer:backward()
    results[step] = {trainer:finish_step().loss, first}
  end
  results[4] = {trainer:evaluate(own(9)).loss}
  return results, trainer
end

local TestTokenCut = {}

function TestTokenCut:test_trains_as_one_rank()
  for _, kind in ipairs{"lm", "lua", "sample"} do
    local wanted, alone = train(nil, {kind = kind})
    for index, one in ipairs(meshes) do
      for stage = 0, 3 do
        for _, layout in ipairs{"balanced", "contiguous"} do
          if (stage + index) % 2 == (layout == "balanced" and 1 or 0) or index == 1 then
            local joins = stage == 3 and index == 1
            local results, trainer = train({mesh = one, layout = layout},
                                           {kind = kind, stage = stage, recompute = stage == 2,
                                            axis = joins and one:join{"dp", "cp"} or nil, micro_batches = index == 3 and 2 or 1})
            local what = ("%s, mesh %d, stage %d, %s"):format(kind, index, stage, layout)
            one_rank.assert_trains_alike(results, trainer, wanted, alone, what)
          end
        end
      end
    end
  end
end

function TestTokenCut:test_by_hand_the_loss_is_that_of_all_tokens()
  local wanted = train(nil, {by_hand = true})
  one_rank.assert_close(train({mesh = mesh, layout = "balanced"}, {by_hand = true, stage = 1}), wanted, "by hand")
end

-- A forward by hand with sharded parameters, in a model of which no layer sends anything. If a batch is wrong on one rank, all
-- learn of it, and the next step is right.
function TestTokenCut.test_by_hand_a_mistake_on_one_rank()
  if ranks == 1 then return end
  local scale = nn.layer{context = {axis = mesh.cp}, params = {w = zt.ones{WIDTH}},
                         forward = function(self, h) return h * self.w end}
  local model = nn.sequential{{"embedding", nn.embedding{vocab = VOCAB, hidden = WIDTH}}, {"scale", scale},
                              {"head", nn.lm_loss{vocab = VOCAB, hidden = WIDTH}}}
  local program = zt.program(model, {precision = "fp64"}):apply(zero.shard{axis = mesh.cp, stage = 3, node_shared = false})
  local function trainer_of() return zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}}) end
  local function by_hand(trainer, own)
    local loss = trainer:forward(own)
    trainer:backward()
    return loss, trainer:finish_step().grad_norm
  end
  local wanted = {by_hand(trainer_of(), batch(1))}
  local trainer = trainer_of()
  local wrong = batch(1)
  if rank == 1 then wrong.tokens = wrong.tokens + VOCAB end
  lu.assertErrorMsgContains("is outside the embedding's 17 rows", trainer.forward, trainer, wrong)
  lu.assertEquals({by_hand(trainer, batch(1))}, wanted)
end

function TestTokenCut:test_where_tokens_are()
  local seen = {}
  local function look(layout)
    return nn.layer{context = {axis = mesh.cp, layout = layout}, forward = function(_, h, ctx)
      seen = {tokens = ctx.tokens, positions = ctx:has_batch "positions" and ctx:batch "positions"}
      return h
    end}
  end
  for _, layout in ipairs{"balanced", "contiguous"} do
    local model = nn.sequential{{"embedding", nn.embedding{vocab = VOCAB, hidden = WIDTH, positions = TOKENS}},
                                {"look", look(layout)}, {"loss", nn.lm_loss{vocab = VOCAB, hidden = WIDTH}}}
    local trainer = zt.trainer(zt.program(model):apply(zero.shard{axis = mesh.dp}), {optimizer = optim.sgd{lr = 0.1}})
    trainer:step(batch(1))
    lu.assertEquals(seen.tokens.total, TOKENS)
    lu.assertEquals(#seen.tokens.of_rank, ranks)
    lu.assertEquals(seen.tokens.rank, rank)
    local known = {}
    for _, ranges in ipairs(seen.tokens.of_rank) do
      for _, range in ipairs(ranges) do
        for token = range.begin, range.begin + range.count - 1 do known[token] = (known[token] or 0) + 1 end
      end
    end
    for token = 0, TOKENS - 1 do lu.assertEquals(known[token], 1) end
    local place = 0
    for _, range in ipairs(seen.tokens.of_rank[rank + 1]) do
      lu.assertEquals(seen.positions:select(0, 0):narrow(0, place, 1):item(), range.begin)
      place = place + range.count
    end
    if layout == "balanced" and ranks == 2 then
      lu.assertEquals(seen.tokens.of_rank, {{{begin = 0, count = 3}, {begin = 8, count = 3}}, {{begin = 3, count = 5}}})
    end
    local logits = trainer:infer{tokens = batch(1).tokens}.logits
    lu.assertEquals(logits:size(), {SAMPLES, TOKENS, VOCAB}) -- generation sees whole samples
    lu.assertEquals(#seen.tokens.of_rank, 1)
  end
end

-- An axis of any name; the layers beside the cut one know nothing of it.
function TestTokenCut.test_tensor_axes_need_no_name()
  local own = comm.mesh{across = -1, dp = ranks % 2 == 0 and 2 or 1, order = {"across", "dp"}}
  local W = zt.randn({5, WIDTH}, {generator = zt.generator(3)}):mul(0.3)
  local function layer(cut)
    return nn.layer{
      tensor_axes = cut and {own.across} or nil,
      params = {up = cut and {values = W, cut = {axis = own.across}} or W,
                down = cut and {values = W:t():contiguous(), cut = {axis = own.across, dim = 1}} or W:t():contiguous()},
      forward = function(self, h, ctx)
        local x = cut and ctx:copy_to(own.across, h) or h
        local y = zt.linear(zt.linear(x, self.up):tanh(), self.down)
        return h + (cut and ctx:reduce_from(own.across, y) or y)
      end,
    }
  end
  local function results_of(cut, stage)
    local model = nn.sequential{{"embedding", nn.embedding{vocab = VOCAB, hidden = WIDTH}}, {"cut", layer(cut)},
                                {"mlp", nn.mlp{hidden = WIDTH, ffn = 9}}, {"loss", nn.lm_loss{vocab = VOCAB, hidden = WIDTH}}}
    local program = zt.program(model, {precision = "fp64"})
    if cut then program = program:apply(zero.shard{axis = own.dp, stage = stage}) end
    local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, separate = not cut})
    return one_rank.run(trainer, function(step) return batch(step, cut and own.dp) end)
  end
  local wanted = results_of(false)
  for stage = 0, 3 do one_rank.assert_close(results_of(true, stage), wanted, "stage " .. stage) end
end

function TestTokenCut.test_a_program_has_a_mesh_without_a_pass()
  local function results_of(options)
    local W = zt.ones({5, WIDTH})
    local layer = nn.layer{tensor_axes = {mesh.cp}, params = {w = {values = W, cut = {axis = mesh.cp}}},
                           forward = function(self, h, ctx)
                             local sums = zt.linear(ctx:copy_to(mesh.cp, h), self.w):sum(2, true)
                             return h + ctx:reduce_from(mesh.cp, sums)
                           end}
    local model = nn.sequential{{"embedding", nn.embedding{vocab = VOCAB, hidden = WIDTH}}, {"cut", layer},
                                {"loss", nn.lm_loss{vocab = VOCAB, hidden = WIDTH}}}
    local trainer = zt.trainer(zt.program(model, options), {optimizer = optim.sgd{lr = 0.1}})
    return trainer:step(batch(1)).loss, trainer:evaluate(batch(2)).loss
  end
  local loss, evaluated = results_of{mesh = mesh}
  lu.assertTrue(loss > 0 and evaluated > 0)
  if ranks == 1 then return end
  lu.assertErrorMsgContains("but no pass gave the program a mesh", results_of, {})
end

function TestTokenCut:test_refusals()
  if ranks == 1 then return end
  local function refused(text, fn, ...) lu.assertErrorMsgContains(text, fn, ...) end
  refused("cut the tokens of samples differently", function()
    nn.sequential{{"embedding", nn.embedding{vocab = VOCAB, hidden = WIDTH}}, {"a", mix{mesh = mesh, layout = "balanced"}},
                  {"b", mix{mesh = mesh, layout = "contiguous"}}}
  end)
  refused("nn.layer.context.layout", mix, {mesh = mesh, layout = "zigzag"})
  refused("the loss 'loss' of the layer 'loss' is per sample, and no rank has a whole sample", function()
    nn.sequential{{"embedding", nn.embedding{vocab = VOCAB, hidden = WIDTH}}, {"a", mix{mesh = mesh, layout = "balanced"}},
                  {"loss", zt.loss(function(out) return out.h:sum() end, {inputs = {"h"}, per = "sample", reduction = "sum"})}}
  end)
  local function trainer_of(options)
    return zt.trainer(program_of({mesh = mesh, layout = "balanced"}, options or {stage = 1}), {optimizer = optim.sgd{lr = 0.1}})
  end
  local function with(fields)
    local own = batch(1)
    for name, field in pairs(fields) do own[name] = field end
    return own
  end
  local trainer = trainer_of()
  local function step(own) return function() trainer:step(own) end end
  refused("the batch field 'weights' is float32[4, 11] on cpu, as if it had a number for each of the 11 tokens",
          step(with{weights = zt.ones{SAMPLES, TOKENS}}))
  refused("the batch field 'loss_mask' is float32[4, 10] on cpu, and samples have 11 tokens",
          step(with{loss_mask = zt.ones{SAMPLES, TOKENS - 1}}))
  local few = {tokens = batch(1).tokens:narrow(1, 0, 2 * ranks - 1), labels = batch(1).labels:narrow(1, 0, 2 * ranks - 1)}
  refused(("samples of %d tokens cannot be cut over the %d ranks of axis 'cp': they need at least %d"):format(
            2 * ranks - 1, ranks, 2 * ranks), step(few))
  trainer:step(batch(1))
  refused("read different samples", step(batch(1 + rank))) -- also in a later step
  trainer:step(batch(2))
  refused("not summed over 'cp', along which ranks see other tokens of the same samples: apply zero.shard", function()
    zt.trainer(zt.program(model_of{mesh = mesh, layout = "balanced"}, {mesh = mesh}), {optimizer = optim.sgd{lr = 0.1}})
  end)
  refused("wants the gradient of the batch field 'tokens'", function()
    local program = zt.program(model_of{mesh = mesh, layout = "balanced"}, {inputs_need_grad = {"tokens"}})
    zt.trainer(program:apply(zero.shard{axis = mesh.dp}), {optimizer = optim.sgd{lr = 0.1}}):input_gradients(batch(1))
  end)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestTokenCut", TestTokenCut}})
