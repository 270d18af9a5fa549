-- Tests layers whose matrices are cut over the ranks of a mesh axis, beside the same model on one rank. Also runs on two and four
-- ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local one_rank = require "support.one_rank"
local nn, optim, zero = require "zt.nn", require "zt.optim", require "zt.zero"
local cut_runs = require "layers.cut_runs"
local batch, model_of, train, MODELS, TOKENS = cut_runs.batch, cut_runs.model_of, cut_runs.train, cut_runs.MODELS, cut_runs.TOKENS
local ranks = zt.world.size
local meshes = cut_runs.meshes()

local TestTensorParallel = {}

function TestTensorParallel:test_trains_as_one_rank()
  cut_runs.compare_with_one_rank()
end

function TestTensorParallel:test_initial_weights_are_those_of_one_rank()
  local options = MODELS[3]
  local mesh = meshes[1]
  local alone = zt.trainer(zt.program(model_of(options)), {optimizer = optim.sgd{lr = 1}, separate = true})
  local program = zt.program(model_of(options, mesh.tp)):apply(zero.shard{axis = mesh.dp})
  local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 1}})
  for _, tensor in ipairs(alone:tensors()) do
    lu.assertTrue(trainer:parameter(tensor.name):equal(alone:parameter(tensor.name)), tensor.name)
  end
end

function TestTensorParallel:test_stages_and_recompute_have_the_same_bits()
  local mesh = meshes[2] or meshes[1]
  one_rank.assert_same_bits_of_stages(function(how)
    how.dp = mesh.dp
    return (train(MODELS[1], mesh, how))
  end)
end

function TestTensorParallel:test_is_planned_and_simulated()
  for _, options in ipairs(MODELS) do
    local mesh = meshes[2] or meshes[1]
    if mesh.tp.size <= options.heads then
      local program = zt.program(model_of(options, mesh.tp)):apply(zero.shard{axis = mesh.dp, stage = 1})
      local simulation = program:simulate{costs = "h200", batch = batch(1, mesh.dp, options.vocab)}
      lu.assertTrue(simulation.seconds > 0)
      local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}})
      trainer:step(batch(1, mesh.dp, options.vocab))
    end
  end
end

function TestTensorParallel:test_generates_as_one_rank()
  local options, mesh = MODELS[2], meshes[1]
  local function outputs(tensor)
    local program = zt.program(model_of(options, tensor), {precision = "fp64"})
    if tensor then program = program:apply(zero.shard{axis = mesh.dp}) end
    local trainer = zt.trainer(program, {separate = not tensor})
    local tokens = batch(1, nil, options.vocab).tokens:narrow(0, 0, 1)
    return trainer:infer{tokens = tokens}.logits, zt.generate(trainer, {3, 1, 4}, {seq = TOKENS, max_tokens = 8})
  end
  local logits, text = outputs()
  local own_logits, own_text = outputs(mesh.tp)
  lu.assertTrue((logits - own_logits):abs():max():item() < 1e-12)
  lu.assertEquals(own_text, text)
end

function TestTensorParallel:test_single_layers()
  local mesh = meshes[1]
  local function results_of(cut)
    local tensor = cut and mesh.tp or nil
    local model = nn.sequential{
      {"embedding", nn.embedding{vocab = 17, hidden = 6, positions = TOKENS, tensor = tensor}},
      {"up", nn.linear{["in"] = 6, out = 10, tensor = tensor, split = cut and "out" or nil}},
      {"dropout", nn.dropout{p = 0.3, tensor = tensor, columns = cut and 10 or nil}},
      {"down", nn.linear{["in"] = 10, out = 6, tensor = tensor, split = cut and "in" or nil}},
      {"attention", nn.attention{hidden = 6, heads = 6, head_dim = 4, tensor = tensor}},
      {"mlp", nn.mlp{hidden = 6, ffn = 7, tensor = tensor}},
      {"head", nn.lm_loss{vocab = 17, hidden = 6, bias = true, tensor = tensor}},
    }
    local program = zt.program(model, {precision = "fp64"})
    if cut then program = program:apply(zero.shard{axis = mesh.dp, stage = 1}) end
    local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, separate = not cut})
    return one_rank.run(trainer, function(step) return batch(step, nil, 17) end)
  end
  one_rank.assert_close(results_of(true), results_of(false), "single layers")
end

-- Batches of another shape are found before ranks communicate: the trainer goes on.
function TestTensorParallel:test_goes_on_after_wrong_shapes()
  for _, options in ipairs{MODELS[2], MODELS[3]} do
    local mesh = meshes[1]
    local program = zt.program(model_of(options, mesh.tp), {precision = "fp64"}):apply(zero.shard{axis = mesh.dp})
    local function trainer_of() return zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}}) end
    local trainer, right = trainer_of(), batch(1, nil, options.vocab)
    for name, text in pairs{labels = "the batch's labels must be int64", positions = "the batch's positions must be int64"} do
      local wrong = {tokens = right.tokens, labels = right.labels}
      wrong[name] = right.labels:abs():remainder(options.vocab):narrow(1, 0, 5):contiguous()
      lu.assertErrorMsgContains(text, trainer.step, trainer, wrong)
      lu.assertErrorMsgContains(text, trainer.evaluate, trainer, wrong)
    end
    if ranks > 1 then -- an argument that is wrong on one rank
      local wrong = zt.world.rank == 1 and "no function" or function() return 1 end
      lu.assertErrorMsgContains("takes a batch and a function of the outputs", trainer.infer, trainer, right, wrong)
    end
    lu.assertEquals(trainer:step(right).loss, trainer_of():step(right).loss)
  end
end

function TestTensorParallel:test_refusals()
  if ranks == 1 then return end
  local tp, dp = meshes[1].tp, meshes[1].dp
  local function refused(text, fn, ...) lu.assertErrorMsgContains(text, fn, ...) end
  refused(("nn.attention: 1 heads cannot be cut over the %d ranks of axis 'tp'"):format(ranks), nn.attention,
          {hidden = 8, heads = 1, tensor = tp})
  refused("nn.mlp: 1 inner columns cannot be cut", nn.mlp, {hidden = 8, ffn = 1, tensor = tp})
  refused("nn.lm_loss.tensor: 'dp+tp' joins several axes", nn.lm_loss,
          {hidden = 8, vocab = 17, tensor = meshes[1]:join{"dp", "tp"}})
  refused("has an effect only with tensor", nn.linear, {["in"] = 4, out = 4, split = "in"})
  refused("needs split = \"out\"", nn.linear, {["in"] = 4, out = 4, tensor = tp})
  local embedding = nn.embedding{vocab = 17, hidden = 8, tensor = tp}
  refused("are cut differently", nn.lm_loss, {vocab = 17, hidden = 8, tied = embedding})
  refused("nn.dropout: with tensor each rank has some columns of h: give `columns`", nn.dropout, {p = 0.1, tensor = tp})
  refused("read different samples", function()
    local program = zt.program(model_of(MODELS[2], tp)):apply(zero.shard{axis = dp})
    zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}}):step(batch(tp.rank, nil, 17))
  end)
  refused("not summed over 'tp', along which ranks see other heads or tokens of the same samples: apply zero.shard", function()
    local program = zt.program(model_of(MODELS[3], tp), {mesh = meshes[1]}) -- with norms of heads
    zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
  end)
end

-- Without `samples`, COUNT would take all its ranks for ones with other samples.
function TestTensorParallel:test_refuses_a_program_that_counts_samples_twice()
  if ranks == 1 then return end
  local mesh = meshes[2] or meshes[1]
  local program = zt.program(model_of(MODELS[1], mesh.tp)):apply(zero.shard{axis = mesh.dp})
  local text, count = program:text():gsub(" samples=%b[]", "")
  lu.assertTrue(count > 0)
  lu.assertErrorMsgContains("COUNT takes the ranks along 'tp' for ones with other samples", zt.trainer,
    program:with_actions(text), {optimizer = optim.sgd{lr = 1}})
end

-- The losses of one copy count, but what is not finite on another one is found, too.
function TestTensorParallel:test_finds_what_is_not_finite_on_any_rank()
  if ranks == 1 then return end
  local mesh, step = meshes[1], 0
  local spoil = nn.layer{kind = "spoil", tensor_axes = {mesh.tp}, forward = function(_, h)
    return step == 1 and mesh.tp.rank == mesh.tp.size - 1 and h * (0 / 0) or h
  end}
  local model = nn.sequential{{"embedding", nn.embedding{vocab = 17, hidden = 6}}, {"spoil", spoil},
                              {"head", nn.lm_loss{vocab = 17, hidden = 6}}}
  local trainer = zt.trainer(zt.program(model):apply(zero.shard{axis = mesh.dp}),
                             {optimizer = optim.sgd{lr = 0.1}, on_nonfinite = "skip"})
  for index, is_skipped in ipairs{false, true, false} do
    step = index - 1
    lu.assertEquals(trainer:step(batch(step, nil, 17)).skipped, is_skipped)
  end
end

-- A trainer that has refused a batch trains on as if it had not been given one.
function TestTensorParallel:test_refuses_a_batch_before_the_first_communication()
  local mesh, options = meshes[1], MODELS[2]
  local function wrong(field, value)
    local given = batch(1, nil, options.vocab)
    given[field][1][3] = value
    return given
  end
  local program = zt.program(model_of(options, mesh.tp)):apply(zero.shard{axis = mesh.dp})
  local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
  for _, call in ipairs{"step", "evaluate", "forward"} do
    local function try(given) trainer[call](trainer, given) end
    lu.assertErrorMsgContains("token 127 at sample 1, index 3 is outside", try, wrong("tokens", 127))
    lu.assertErrorMsgContains("label -3 at sample 1, index 3 is neither", try, wrong("labels", -3))
    lu.assertErrorMsgContains("'tokens'", try, {labels = batch(1, nil, options.vocab).labels})
  end
  lu.assertErrorMsgContains("token -1 at sample 1", trainer.infer, trainer, wrong("tokens", -1))
  trainer:forward(batch(1, nil, options.vocab))
  trainer:backward()
  local by_hand = trainer:finish_step()
  lu.assertEquals(by_hand.step, 0)
  if ranks > 1 then
    local given = batch(1, nil, options.vocab)
    if mesh.tp.rank == 1 then given.segments = zt.zeros_like(given.tokens) end
    lu.assertErrorMsgContains("have other fields", trainer.step, trainer, given)
  end
  lu.assertTrue(trainer:step(batch(1, nil, options.vocab)).loss < by_hand.loss)
end

-- Attention reads fields of the batch, and runs without COUNT compare samples, too.
function TestTensorParallel:test_refuses_fields_of_attention_and_other_samples()
  local mesh, options = meshes[2] or meshes[1], MODELS[4]
  local program = zt.program(model_of(options, mesh.tp)):apply(zero.shard{axis = mesh.dp})
  local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
  local function given(step) return batch(step, nil, options.vocab) end
  for _, call in ipairs{"step", "evaluate", "forward", "infer"} do
    local function refused(text, name, field)
      local fields = given(1)
      fields[name] = field(fields.tokens)
      lu.assertErrorMsgContains(text, trainer[call], trainer, fields)
    end
    refused("the batch's segments must be int64", "segments", function(tokens) return tokens:to "int32" end)
    refused("the batch's positions must be int64", "positions", function(tokens) return tokens:narrow(1, 0, 2) end)
    refused("positions must not be negative, got -1", "positions", function(tokens) return -zt.ones_like(tokens) end)
    if ranks > 1 then
      lu.assertErrorMsgContains("read different samples", trainer[call], trainer, given(1 + mesh.tp.rank))
    end
  end
  trainer:forward(given(1))
  trainer:backward()
  local first = trainer:finish_step().loss
  lu.assertTrue(trainer:step(given(1)).loss < first)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestTensorParallel", TestTensorParallel}})
