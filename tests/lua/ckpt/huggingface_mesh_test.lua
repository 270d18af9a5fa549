-- Tests models of Hugging Face's on meshes whose ranks share matrices and tokens: the logits are those of transformers, and an
-- export, a save_safetensors and a checkpoint hold whole tensors. Runs on one rank, on two and on four.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, comm, moe, nn = require "zt.ckpt", require "zt.comm", require "zt.moe", require "zt.nn"
local pipe, zero = require "zt.pipe", require "zt.zero"
local huggingface = require "zt.ckpt.huggingface"
local command = require "support.command" "ckpt"
local models = require "support.huggingface_models"
local safetensors = require "support.safetensors"
local temporary = require "support.temporary"

local ranks, rank = zt.world.size, zt.world.rank
local meshes = {comm.mesh{dp = 1, cp = 1, tp = -1}}
if ranks > 1 then meshes[2] = comm.mesh{dp = 1, cp = ranks, tp = 1} end
if ranks == 4 then meshes[3] = comm.mesh{dp = 1, cp = 2, tp = 2} end
local staged = ranks == 4 and comm.mesh{pp = 2, dp = 1, cp = 1, tp = 2} -- with a pipeline

-- Families whose blocks are all dense; mixtures have no cut experts here.
local DENSE = {"gpt2", "llama", "llama3", "mistral", "qwen2", "qwen3"}
local EXPERTS = {"mixtral_window", "qwen3_moe"}

-- Runs a command on rank 0. Fails on all ranks unless it succeeds.
local function on_rank_0(...)
  local text, status = nil, 0
  if rank == 0 then text, status = command(...) end
  local all = meshes[1]:world():gather_values{status, text}
  lu.assertEquals(all[1][1], 0, all[1][2])
end

-- Returns the folder of a checkpoint with a model of Hugging Face's. Collective.
local function imported(name)
  local folder = temporary()
  on_rank_0("import", models.FOLDER .. name, folder)
  return folder
end

-- Returns options of a model on a mesh.
local function on_mesh(options, mesh, more)
  local all = {tensor = mesh.tp, context = {axis = mesh.cp}}
  for _, given in ipairs{options, more or {}} do
    for key, value in pairs(given) do all[key] = value end
  end
  return all
end

-- Returns a trainer that evaluates a model, with the imported parameters.
local function trainer_of(model, mesh, precision, folder)
  local program = zt.program(model, {precision = precision, mesh = mesh})
  if mesh == staged then program = program:apply(pipe.split{axis = mesh.pp}) end
  program = program:apply(zero.shard{axis = mesh.dp, stage = 1})
  local trainer = zt.trainer(program)
  ckpt.load(folder, {model = trainer}, {mesh = mesh})
  return trainer
end

-- Returns the logits of the tokens that this rank has, [samples, tokens, vocab], and these tokens of the wanted logits.
local function logits_of_cut_tokens(options, mesh, precision, folder, expected)
  local got, places
  local model = moe.gpt(on_mesh(options, mesh, {loss = false})):append(zt.loss(function(out, ctx)
    got, places = out.logits:detach():clone(), ctx.tokens
    return out.logits:sum()
  end))
  trainer_of(model, mesh, precision, folder):evaluate{tokens = expected.tokens, labels = expected.tokens}
  local wanted = {}
  for _, range in ipairs(places.of_rank[places.rank + 1]) do
    wanted[#wanted + 1] = expected["logits_" .. precision]:narrow(1, range.begin, range.count)
  end
  lu.assertEquals(#places.of_rank, mesh.cp.size)
  return got, zt.cat(wanted, 1)
end

local function assert_close(got, wanted, bound, what)
  local off = models.distance(got, wanted)
  lu.assertTrue(off <= bound, ("%s: %g off"):format(what, off))
end

-- Returns whether the ranks of a mesh can share the heads.
local function has_heads(options, mesh) return options.heads >= mesh.tp.size end

local TestLogits = {}

for _, name in ipairs(DENSE) do
  TestLogits["test_" .. name] = function()
    local folder, options, expected = imported(name), huggingface.options(models.config_of(name)), models.expected_of(name)
    for number, mesh in ipairs(meshes) do
      for _, row in ipairs(has_heads(options, mesh) and models.BOUNDS or {}) do
        local precision, bound = unpack(row)
        local what = ("%s, mesh %d, %s"):format(name, number, precision)
        local got, wanted = logits_of_cut_tokens(options, mesh, precision, folder, expected)
        assert_close(got, wanted, bound, what)
        local more = mesh.tp.size > 1 and {sequence_parallel = true} or nil
        local trainer = trainer_of(moe.gpt(on_mesh(options, mesh, more)), mesh, precision, folder)
        assert_close(trainer:infer{tokens = expected.tokens}.logits, expected["logits_" .. precision], bound, what .. ", infer")
      end
    end
  end
end

for _, name in ipairs(EXPERTS) do
  TestLogits["test_" .. name] = function()
    local folder, options, expected = imported(name), huggingface.options(models.config_of(name)), models.expected_of(name)
    for number, mesh in ipairs(meshes) do
      if has_heads(options, mesh) then
        local got, wanted = logits_of_cut_tokens(options, mesh, "fp64", folder, expected)
        assert_close(got, wanted, 1e-12, ("%s, mesh %d"):format(name, number))
      end
    end
  end
end

local TestExport = {}

-- Fails on all ranks unless a folder of rank 0 has the tensors and the options of a model.
local function assert_exported(folder, name)
  if rank == 0 then
    local out, original = safetensors.read(folder .. "/model.safetensors"), models.unstacked(models.tensors_of(name))
    for tensor, values in pairs(original) do
      lu.assertNotNil(out[tensor], tensor)
      lu.assertTrue(out[tensor]:equal(values), tensor)
      out[tensor] = nil
    end
    lu.assertNil(next(out))
    local exported, config = models.read_json(folder .. "/config.json"), models.config_of(name)
    lu.assertEquals(huggingface.options(exported), huggingface.options(config))
  end
  meshes[1]:world():barrier()
end

-- The checkpoint records the options of the model without those of the mesh, so the export needs no others.
function TestExport:test_checkpoints_hold_whole_tensors()
  for index, name in ipairs{"llama3", "mistral", "qwen2", "qwen3", "mixtral_window", "qwen3_moe"} do
    local folder, options = imported(name), huggingface.options(models.config_of(name))
    for number = 1, #meshes + (staged and 1 or 0) do
      local mesh = meshes[number] or staged
      local is_turn = ranks < 4 or index % 2 == number % 2 -- on four ranks each mesh takes half of the families
      if is_turn and has_heads(options, mesh) then
        local trainer = trainer_of(moe.gpt(on_mesh(options, mesh)), mesh, "fp32", folder)
        local again = temporary()
        ckpt.save(again, {model = trainer}, {step = 1, async = false})
        on_rank_0("export", again, again .. "/out", "--huggingface")
        assert_exported(again .. "/out", name)
        ckpt.save_safetensors(trainer, again .. "/own.safetensors")
        local own = safetensors.read(again .. "/own.safetensors")
        local original, saved = ckpt.open(ckpt.find(folder, mesh)), ckpt.open(ckpt.find(again, mesh))
        for _, tensor in ipairs(trainer:tensors()) do
          local values = original:read("model/" .. tensor.name)
          lu.assertTrue(own[tensor.name]:equal(values), tensor.name)
          lu.assertTrue(saved:read("model/" .. tensor.name):equal(values), tensor.name)
        end
        -- A model that knows nothing of the mesh has the logits of the cut one.
        local plain = zt.trainer(zt.program(moe.gpt(options), {precision = "fp64"}), {separate = true})
        ckpt.load(again, {model = plain}, {mesh = mesh})
        local expected = models.expected_of(name)
        assert_close(plain:infer{tokens = expected.tokens}.logits, expected.logits_fp64, 1e-12, name)
      end
    end
  end
end

-- The same for a model with layers of the script, if it says what to record.
function TestExport:test_what_is_recorded()
  local mesh = meshes[1]
  local plain = {layers = 1, hidden = 8, heads = 4, vocab = 11, seq = 4, family = "llama"}
  local function recorded(options) return nn.gpt(options).options end
  local cut = {sequence_parallel = ranks > 1 or nil, tp_dtype = "fp32"}
  lu.assertEquals(recorded(on_mesh(plain, mesh, cut)), plain)
  local given = on_mesh(plain, mesh, cut)
  given.made_from, given.mlp = on_mesh(plain, mesh, cut), function() return nil end
  lu.assertEquals(recorded(given), plain)
  given.made_from = nil
  lu.assertNil(recorded(given))
  plain.moe = {experts = 4, ffn = 8}
  given = on_mesh(plain, mesh)
  given.moe = {experts = 4, ffn = 8, axis = comm.mesh{dp = -1, ep = 1}.ep}
  lu.assertEquals(moe.gpt(given).options, plain)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestLogits", TestLogits}, {"TestExport", TestExport}})
