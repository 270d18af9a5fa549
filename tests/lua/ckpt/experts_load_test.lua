-- Tests how mixtures of experts load: on meshes whose ranks share the experts in another way, from Hugging Face's weights, from
-- the dense MLPs of another model, and with another number of experts. Runs on one rank, on two and on four.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, comm, moe = require "zt.ckpt", require "zt.comm", require "zt.moe"
local optim, zero = require "zt.optim", require "zt.zero"
local huggingface = require "zt.ckpt.huggingface"
local command = require "support.command" "ckpt"
local models = require "support.huggingface_models"
local temporary = require "support.temporary"

local ranks = zt.world.size
local VOCAB, SEQ = 29, 8
local meshes = {} -- by the ranks that share the experts
for _, ep in ipairs {1, 2, 4} do
  if ranks % ep == 0 then meshes[ep] = comm.mesh{dp = ranks / ep, ep = ep} end
end

local function trainer_of(model, mesh, stage)
  local program = zt.program(model, {precision = "fp64"}):apply(zero.shard{stage = stage, axis = mesh:join{"dp", "ep"}})
  return zt.trainer(program, {optimizer = optim.adamw{lr = 1e-2}})
end

local function tokens_of(rows, first)
  return zt.arange(rows * SEQ):mul(3):add(first):remainder(VOCAB):view({rows, SEQ}):to "int64"
end

-- This rank's part of a batch of 4 samples.
local function batch(step)
  local part = 4 / ranks
  local tokens = tokens_of(4, step):narrow(0, zt.world.rank * part, part):contiguous()
  return {tokens = tokens, labels = tokens:add(1):remainder(VOCAB)}
end

local function assert_close(got, wanted, bound)
  local off = models.distance(got, wanted)
  lu.assertTrue(off <= bound, ("%g off"):format(off))
end

local TestLayouts = {}

local BIAS = {score = "sigmoid", normalise = "selected", bias = true, bias_rate = 0.1}

local function mixture(mesh, experts, seed)
  return moe.gpt({layers = 3, hidden = 12, heads = 2, vocab = VOCAB, seq = SEQ, seed = seed,
                  moe = {experts = experts, ffn = 10, router = BIAS, blocks = {0, 2}}}, {axis = mesh.ep})
end

-- Of each mesh's checkpoint, every other mesh gets equal bits: parameters, biases of routers, state of the optimizer.
function TestLayouts:test_ranks_that_share_experts_in_another_way()
  for ep, mesh in pairs(meshes) do
    local saved = trainer_of(mixture(mesh, 4, 1), mesh, 3)
    for step = 0, 2 do saved:step(batch(step)) end
    local folder = temporary()
    ckpt.save(folder, {trainer = saved}, {step = 3, async = false})
    local biases = ckpt.open(ckpt.find(folder, mesh)):read "model/blocks.0.router.bias"
    lu.assertTrue(biases:abs():max():item() > 0.05)
    for other_ep, other in pairs(meshes) do
      local stage = other_ep == 1 and 1 or 3
      local loaded = trainer_of(mixture(other, 4, 2), other, stage)
      ckpt.load(folder, {trainer = loaded})
      for _, name in ipairs(saved:parameters()) do
        lu.assertTrue(saved:master(name):equal(loaded:master(name)), ("%s, from ep %d to ep %d"):format(name, ep, other_ep))
      end
      local again = temporary()
      ckpt.save(again, {trainer = loaded}, {step = 3, async = false})
      local a, b = ckpt.open(ckpt.find(folder, mesh)), ckpt.open(ckpt.find(again, mesh))
      for _, tensor in ipairs(a:describe().tensors) do
        lu.assertTrue(a:read(tensor.name):equal(b:read(tensor.name)), tensor.name)
      end
      lu.assertTrue(loaded:step(batch(3)).grad_norm > 0)
    end
  end
end

function TestLayouts:test_another_number_of_experts()
  local mesh = meshes[ranks]
  local folder = temporary()
  ckpt.save(folder, {trainer = trainer_of(mixture(mesh, 8, 1), mesh, 1)}, {step = 1, async = false})
  for _, stage in ipairs {1, 3} do
    local other = trainer_of(mixture(mesh, 4, 1), mesh, stage)
    local before = other:master "head.norm.weight"
    local ok, message = pcall(ckpt.load, folder, {trainer = other})
    lu.assertFalse(ok)
    lu.assertStrContains(message, "of another number of experts (2): blocks.0 has 4 experts, saved with 8, "
      .. "blocks.2 has 4 experts, saved with 8")
    lu.assertStrContains(message, "neither adds nor removes experts: make the model with the checkpoint's number")
    lu.assertNil(message:find("of another shape", 1, true))
    lu.assertTrue(other:master("head.norm.weight"):equal(before))
  end
end

function TestLayouts:test_rows_of_a_tensor()
  local mesh = meshes[ranks]
  local folder = temporary()
  ckpt.save(folder, {trainer = trainer_of(mixture(mesh, 8, 1), mesh, 3)}, {step = 1, async = false})
  local checkpoint = ckpt.open(ckpt.find(folder, mesh))
  local function check(name, first, count)
    local whole = checkpoint:read(name)
    local rows = whole:dim() > 1 and whole:flatten(0, -2) or whole
    local got = checkpoint:read_rows(name, first, count)
    lu.assertTrue(got:equal(rows:narrow(0, first, count)), name)
  end
  check("model/blocks.0.experts.up.weight", 7, 25) -- of four experts
  check("model/blocks.0.experts.up.bias", 1, 6)
  check("model/head.norm.weight", 3, 9)
  check("model/head.norm.weight", 12, 0)
  for _, row in ipairs {{-1, 2}, {0, -1}, {3, 10}, {13, 0}} do
    lu.assertErrorMsgContains("has rows 0 to 11", checkpoint.read_rows, checkpoint, "model/head.norm.weight",
      row[1], row[2])
  end
  lu.assertErrorMsgContains("did you mean", checkpoint.read_rows, checkpoint, "model/head.norm.weights", 0, 1)
end

local TestHuggingFace = {}

for _, name in ipairs {"mixtral", "qwen3_moe", "qwen3_moe_stacked"} do
  TestHuggingFace["test_logits_of_" .. name] = function()
    local options = huggingface.options(models.config_of(name))
    local folder = temporary()
    if zt.world.rank == 0 then
      local text, status = command("import", models.FOLDER .. name, folder)
      lu.assertEquals(status, 0, text)
    end
    local expected = models.expected_of(name)
    for ep, mesh in pairs(meshes) do
      if options.moe.experts % ep == 0 then
        local trainer = trainer_of(moe.gpt(options, {axis = mesh.ep}), mesh, ep == 1 and 1 or 3)
        ckpt.load(folder, {model = trainer}, {mesh = mesh})
        assert_close(trainer:infer{tokens = expected.tokens}.logits, expected.logits_fp64, 1e-12)
      end
    end
  end
end

local TestUpcycling = {}

-- Options of a dense model, and those of its experts.
local DENSE = {
  {{family = "gpt2", ffn = 20}, {experts = 4, ffn = 20, top_k = 2, blocks = {1}, router = {normalise = "selected"}}},
  {{family = "llama", ffn = 14, kv_heads = 1}, {experts = 8, ffn = 14, top_k = 3, router = {softmax_after = true}}},
}

local function model_of(row, with_experts, mesh, seed)
  local options = {layers = 2, hidden = 12, heads = 2, vocab = VOCAB, seq = SEQ, seed = seed}
  for key, value in pairs(row[1]) do options[key] = value end
  options.moe = with_experts and row[2] or nil
  return moe.gpt(options, {axis = mesh.ep})
end

-- A token's experts are copies of one MLP, and their weights sum to 1: the result is that of the MLP.
function TestUpcycling:test_logits_are_those_of_the_dense_model()
  local tokens = tokens_of(3, 5)
  for _, row in ipairs(DENSE) do
    local dense = trainer_of(model_of(row, false, meshes[1], 1), meshes[1], 1)
    for step = 0, 2 do dense:step(batch(step)) end
    local folder = temporary()
    ckpt.save(folder, {trainer = dense}, {step = 3, async = false})
    local wanted = dense:infer{tokens = tokens}.logits
    for _, mesh in pairs(meshes) do
      for _, stage in ipairs {1, 3} do
        local trainer = trainer_of(model_of(row, true, mesh, 2), mesh, stage)
        local router = trainer:master "blocks.1.router.weight"
        ckpt.load(folder, {model = trainer}, {upcycle = true})
        assert_close(trainer:infer{tokens = tokens}.logits, wanted, 1e-12)
        lu.assertTrue(trainer:master("blocks.1.router.weight"):equal(router))
        local experts = trainer:master "blocks.1.experts.down.weight"
        for expert = 0, row[2].experts - 1 do
          lu.assertTrue(experts:select(0, expert):equal(dense:master "blocks.1.mlp.down.weight"))
        end
        lu.assertTrue(trainer:step(batch(3)).grad_norm > 0)
      end
    end
  end
end

function TestUpcycling:test_weights_of_hugging_face()
  local options = huggingface.options(models.config_of "llama")
  options.moe = {experts = 4, ffn = options.ffn, router = {normalise = "selected"}}
  local folder = temporary()
  if zt.world.rank == 0 then command("import", models.FOLDER .. "llama", folder) end
  local mesh, expected = meshes[ranks], models.expected_of "llama"
  local trainer = trainer_of(moe.gpt(options, {axis = mesh.ep}), mesh, 3)
  ckpt.load(folder, {model = trainer}, {upcycle = true, mesh = mesh})
  assert_close(trainer:infer{tokens = expected.tokens}.logits, expected.logits_fp64, 1e-12)
end

function TestUpcycling:test_a_dense_checkpoint_hints_at_it()
  local mesh = meshes[ranks]
  local folder = temporary()
  ckpt.save(folder, {trainer = trainer_of(model_of(DENSE[1], false, mesh, 1), mesh, 1)}, {step = 1, async = false})
  local sparse = trainer_of(model_of(DENSE[1], true, mesh, 2), mesh, 1)
  lu.assertErrorMsgContains("experts can start as copies of the checkpoint's dense MLPs: ckpt.load(path, {model = trainer}, "
    .. "{upcycle = true})", ckpt.load, folder, {model = sparse})
end

function TestUpcycling:test_mistakes_are_named()
  local mesh = meshes[ranks]
  local row = DENSE[1]
  local folder, of_experts = temporary(), temporary()
  ckpt.save(folder, {trainer = trainer_of(model_of(row, false, mesh, 1), mesh, 1)}, {step = 1, async = false})
  local function load(of_layers, value, path, named)
    local changed = {}
    for key, option in pairs(row[2]) do changed[key] = option end
    for key, option in pairs(of_layers) do changed[key] = option end
    local trainer = trainer_of(model_of({row[1], changed}, true, mesh, 2), mesh, 1)
    ckpt.load(path or folder, {[named or "model"] = trainer}, value)
    return trainer
  end
  local upcycle = {upcycle = true}
  lu.assertErrorMsgContains("upcycle loads parameters only", load, {}, upcycle, nil, "trainer")
  lu.assertErrorMsgContains("not in the checkpoint", load, {}, {})
  lu.assertErrorMsgContains("model/blocks.1.experts.up.weight is [4, 16, 12], the dense model/blocks.1.mlp.up.weight is [20, 12]",
    load, {ffn = 16}, upcycle)
  lu.assertErrorMsgContains("in the checkpoint only (2): model/blocks.1.mlp.up.bias, model/blocks.1.mlp.down.bias", load,
    {bias = false}, upcycle)
  lu.assertErrorMsgContains("not in the checkpoint (5): model/blocks.1.shared.", load, {shared = {ffn = 3, gate = true}}, upcycle)
  ckpt.save(of_experts, {model = load({}, upcycle)}, {step = 1, async = false})
  lu.assertErrorMsgContains("remove upcycle if the checkpoint has experts", load, {}, upcycle, of_experts)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{
  {"TestLayouts", TestLayouts}, {"TestHuggingFace", TestHuggingFace}, {"TestUpcycling", TestUpcycling},
})
