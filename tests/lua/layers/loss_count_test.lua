-- Tests that a loss per sample is divided by the samples that a layer counts: in packed rows, the sequences. Also runs on two
-- ranks.
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, optim, pipe = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.pipe"
local zero = require "zt.zero"

local rank, ranks = zt.world.rank, zt.world.size
local mesh = comm.mesh{dp = -1}
local ROWS, SEQ, VOCAB = 4, 6, 13
local LENGTHS = {{2, 1, 3}, {6}, {}, {1, 4}} -- of the sequences in each row; the third row has none
local SEQUENCES, TOKENS = 6, 17

-- Adds a sequence to the lists of a row. A token weighs 1 / length, so that the sum over a sequence is a mean.
local function add_sequence(row, length, first)
  for index = 1, length do
    row.tokens[#row.tokens + 1] = (first + 3 * index) % VOCAB
    row.begins[#row.begins + 1] = index == 1 and 1 or 0
    row.weight[#row.weight + 1] = 1 / length
  end
end

-- Returns a batch with rows of these lengths, padded to SEQ tokens of weight 0.
local function batch_of(rows)
  local lists, number = {tokens = {}, begins = {}, weight = {}}, 0
  for index, lengths in ipairs(rows) do
    local row = {tokens = {}, begins = {}, weight = {}}
    for _, length in ipairs(lengths) do
      number = number + 1
      add_sequence(row, length, number)
    end
    for name, list in pairs(row) do
      for place = #list + 1, SEQ do list[place] = 0 end
      lists[name][index] = list
    end
  end
  return {tokens = zt.tensor(lists.tokens):to "int64", begins = zt.tensor(lists.begins):to "int64",
          weight = zt.tensor(lists.weight, {dtype = "float64"})}
end
local function packed() return batch_of(LENGTHS) end
local function unpacked() -- a sequence per row
  local rows = {}
  for _, lengths in ipairs(LENGTHS) do
    for _, length in ipairs(lengths) do rows[#rows + 1] = {length} end
  end
  return batch_of(rows)
end
local function own_part(batch)
  local part, count = {}, ROWS / ranks
  for name, field in pairs(batch) do part[name] = field:narrow(0, rank * count, count):contiguous() end
  return part
end

local function count(batch) return batch("weight"):gt(0):sum():item(), batch("begins"):sum():item() end

local function sum_of_means(out, ctx) return (out.h:square():mean(-1) * ctx:batch "weight"):sum() end
local function mean_of_means(out, ctx) return sum_of_means(out, ctx) / ctx:batch("begins"):sum():to "float64" end

local function loss_of(kind, counter)
  local run = kind == "mean" and mean_of_means or sum_of_means
  return zt.loss(run, {inputs = {"h"}, per = "sample", reduction = kind, count = counter})
end
local function model_of(...)
  return nn.sequential{seed = 2, nn.embedding{vocab = VOCAB, hidden = 4}, nn.linear{["in"] = 4, out = 4}, ...}
end

local function trainer_of(model, options)
  local program = zt.program(model, {micro_batches = options.micro_batches or 1, precision = "fp64"})
  if not options.alone then program = program:apply(zero.shard{axis = mesh.dp, stage = options.stage}) end
  return zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}, separate = options.alone})
end

local function assert_equal_steps(trainer, batch, reference, expected_batch)
  for _ = 1, 3 do
    local got, expected = trainer:step(batch), reference:step(expected_batch)
    lu.assertAlmostEquals(got.loss, expected.loss, 1e-12)
    lu.assertAlmostEquals(got.grad_norm, expected.grad_norm, 1e-12)
    lu.assertEquals(got.samples, SEQUENCES)
  end
  lu.assertAlmostEquals(trainer:evaluate(batch).loss, reference:evaluate(expected_batch).loss, 1e-12)
end

local TestCount = {}

-- The loss is that of one row per sequence, for any micro-batches, ranks and stages; one micro-batch has no sequence at all.
function TestCount:test_packed_rows_are_those_of_their_sequences()
  for _, kind in ipairs{"sum", "mean"} do
    for _, micro_batches in ipairs{1, 2, 4} do
      if ROWS / ranks % micro_batches == 0 then
        for stage = 0, 3 do
          local reference = trainer_of(model_of(loss_of "sum"), {alone = true})
          local trainer = trainer_of(model_of(loss_of(kind, count)), {micro_batches = micro_batches, stage = stage})
          assert_equal_steps(trainer, own_part(packed()), reference, unpacked())
        end
      end
    end
  end
end

-- By hand the mean of each micro-batch counts equally; that of no sequence is 0.
function TestCount:test_by_hand()
  local trainer = trainer_of(model_of(loss_of("sum", count)), {micro_batches = 4, alone = true})
  local expected, whole = 0, packed()
  for index = 0, ROWS - 1 do
    local row = {}
    for name, field in pairs(whole) do row[name] = field:narrow(0, index, 1):contiguous() end
    local sequences = #LENGTHS[index + 1]
    local loss = trainer:forward(row)
    trainer:backward()
    if sequences == 0 then
      lu.assertEquals(loss, 0)
    else
      local reference = trainer_of(model_of(loss_of("sum", count)), {alone = true})
      lu.assertAlmostEquals(loss, reference:evaluate(row).loss, 1e-12)
    end
    expected = expected + loss / ROWS
  end
  lu.assertAlmostEquals(trainer:finish_step().loss, expected, 1e-12)
end

-- Losses per token and per sample of one model have a divisor each.
function TestCount:test_tokens_and_samples()
  local both = nn.layer{
    io = {inputs = {"h"}, outputs = {}, losses = {a = "token", b = "sample"}}, count = count,
    forward = function(_, h, ctx)
      local squares = h:square():mean(-1)
      ctx:loss("a", (squares * ctx:batch("weight"):gt(0)):sum())
      ctx:loss("b", (squares * ctx:batch "weight"):sum(), "sample")
    end,
  }
  local single = trainer_of(model_of(both), {alone = true}):step(packed())
  for _, micro_batches in ipairs{1, 2} do
    local got = trainer_of(model_of(both), {micro_batches = micro_batches}):step(own_part(packed()))
    lu.assertEquals({got.tokens, got.samples}, {TOKENS, SEQUENCES})
    for name, value in pairs(got.terms) do lu.assertAlmostEquals(value, single.terms[name], 1e-12) end
  end
  -- A built-in loss says nothing about samples.
  local per_sample = nn.layer{
    io = {inputs = {"h"}, outputs = {}, losses = {b = "sample"}},
    count = function(batch) return 0, select(2, count(batch)) end,
    forward = function(_, h, ctx) ctx:loss("b", sum_of_means({h = h}, ctx), "sample") end,
  }
  local logits = nn.linear{["in"] = 4, out = VOCAB}
  local labelled = packed()
  labelled.labels = labelled.tokens
  local result = trainer_of(model_of(per_sample, logits, nn.cross_entropy()), {alone = true}):step(labelled)
  lu.assertEquals({result.samples, result.tokens}, {SEQUENCES, ROWS * SEQ})
end

-- The ranks of a pipeline that run no loss know rows only.
function TestCount:test_a_pipeline()
  local stages = comm.mesh{pp = -1}
  local reference = trainer_of(model_of(loss_of "sum"), {alone = true})
  local program = zt.program(model_of(loss_of("sum", count)), {micro_batches = 2, precision = "fp64"})
    :apply(pipe.split{axis = stages.pp})
  local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
  assert_equal_steps(trainer, packed(), reference, unpacked())
end

-- Where tokens are cut over ranks, COUNT sees whole samples, and a rank adds the sum over its tokens. It does not count them.
function TestCount:test_cut_tokens()
  local cut = comm.mesh{cp = -1}
  local fields = {"tokens", "begins", "weight"}
  local function model(kind)
    return nn.sequential{
      seed = 2, nn.embedding{vocab = VOCAB, hidden = 4},
      nn.layer{context = {axis = cut.cp, fields = fields}, tokens = "separate", forward = function(_, h) return h * 2 end},
      nn.linear{["in"] = 4, out = 4},
      zt.loss(kind == "sum" and sum_of_means or mean_of_means, {
        inputs = {"h"}, per = "sample", reduction = kind, count = count, adds_over_tokens = true,
      }),
    }
  end
  local function whole()
    return nn.sequential{
      seed = 2, nn.embedding{vocab = VOCAB, hidden = 4}, nn.layer{forward = function(_, h) return h * 2 end},
      nn.linear{["in"] = 4, out = 4}, loss_of "sum",
    }
  end
  for _, micro_batches in ipairs{1, 2, 4} do
    local program = zt.program(model "sum", {micro_batches = micro_batches, precision = "fp64"})
      :apply(zero.shard{axis = cut.cp, stage = 1})
    local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
    assert_equal_steps(trainer, packed(), trainer_of(whole(), {alone = true}), unpacked())
  end
  if ranks == 1 then return end
  local program = zt.program(model "mean", {precision = "fp64"}):apply(zero.shard{axis = cut.cp, stage = 1})
  local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
  local expected = "the samples of the loss 'loss' are cut over ranks, so a rank cannot count its own: give reduction = 'sum'"
  lu.assertErrorMsgContains(expected, trainer.step, trainer, packed())
end

function TestCount:test_plans_and_generation()
  local trainer = trainer_of(model_of(loss_of("mean", count)), {alone = true})
  lu.assertTrue(trainer:plan(packed())[1].memory.total > 0)
  lu.assertEquals(trainer:infer(packed()).h:size(), {ROWS, SEQ, 4})
end

function TestCount:test_errors()
  local function message(losses)
    local trainer = trainer_of(model_of(losses), {alone = true})
    return select(2, pcall(trainer.step, trainer, packed()))
  end
  for expected, counter in pairs{
    ["zt.loss.count must return the valid tokens and the samples of the batch, and it returned no samples"] =
      function() return 3 end,
    ["must return as its second value the number of samples in the batch, at least 0, or nothing"] =
      function() return 3, -1 end,
    ["must return as its second value"] = function() return 3, "many" end,
    ["must return the number of valid tokens in the batch, at least 0"] = function() return nil, 3 end,
    ["the global batch has no samples"] = function() return 0, 0 end,
  } do
    lu.assertStrContains(message(loss_of("sum", counter)), expected)
  end
  lu.assertErrorMsgContains("zt.loss.count must be a function", zt.loss, print, {count = 3})
  lu.assertErrorMsgContains("with per = 'token' and without count", zt.loss, print, {count = count, labels = "target"})
  local trainer = trainer_of(model_of(loss_of("sum", count), zt.loss(sum_of_means, {
    inputs = {"h"}, name = "other", per = "sample", reduction = "sum", count = function() return TOKENS, 4 end,
  })), {alone = true})
  lu.assertErrorMsgContains("count 6 and 4 samples: the terms of one objective that are per sample are divided by one number",
                            trainer.step, trainer, packed())
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCount", TestCount}})
