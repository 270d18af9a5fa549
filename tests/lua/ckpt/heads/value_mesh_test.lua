-- Tests that value models and their adapters pass through files on meshes whose ranks share matrices or parameters: the files and
-- the parameters are those of one rank. Runs on one rank and on two.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, comm, moe, optim, zero = require "zt.ckpt", require "zt.comm", require "zt.moe", require "zt.optim", require "zt.zero"
local cases = require "ckpt.heads.head_cases"
local models = require "support.huggingface_models"
local temporary = require "support.temporary"

local LORA = {rank = 2, targets = {"q", "down"}}
local cut, sharded = comm.mesh{dp = 1, tp = -1}, comm.mesh{dp = -1}

-- Returns a trainer on a mesh of the value model whose files are in a folder. lora: the option of the model, or nil.
local function trainer_on(mesh, folder, lora)
  local base = ckpt.pretrained(folder)
  local is_new = base.options.head ~= "value"
  base.options.head, base.options.lora = "value", lora
  base.options.tensor = mesh == cut and mesh.tp or nil
  local program = zt.program(moe.gpt(base.options), {precision = "fp32", mesh = mesh})
  program = program:apply(zero.shard{axis = mesh.dp, stage = mesh == sharded and 3 or 1})
  local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}})
  base:load(trainer, {head = is_new and "new" or "same"})
  return trainer
end

-- Runs the command on rank 0, where it has to succeed.
local function on_rank_0(...)
  local is_done, reason = true, nil
  if zt.world.rank == 0 then is_done, reason = pcall(cases.done, ...) end
  local all = sharded:world():gather_values{is_done, tostring(reason)}
  lu.assertTrue(all[1][1], all[1][2])
end

-- Fails unless a trainer has these parameters, {name = tensor}, bit by bit.
local function check_parameters(trainer, wanted)
  for _, name in ipairs(trainer:parameters()) do lu.assertTrue(zt.equal(trainer:master(name), wanted[name]), name) end
end

local function parameters_of(trainer)
  local all = {}
  for _, name in ipairs(trainer:parameters()) do all[name] = trainer:master(name) end
  return all
end

local TestMeshes = {}

for name, mesh in pairs{cut = cut, sharded = sharded} do
  TestMeshes["test_files_" .. name] = function()
    local trainer, run, out = trainer_on(mesh, models.FOLDER .. "llama"), temporary(), temporary()
    cases.fill(trainer, "^head%.value%.weight$")
    ckpt.save(run, {trainer = trainer}, {step = 1, async = false, mesh = mesh})
    on_rank_0("export", run, out, "--huggingface")
    local written, golden = cases.tensors(out), models.tensors_of "llama"
    golden["lm_head.weight"], golden["score.weight"] = nil, trainer:master "head.value.weight"
    cases.check_equal(written, golden)
    check_parameters(trainer_on(mesh, out), parameters_of(trainer))
  end

  TestMeshes["test_adapters_" .. name] = function()
    local trainer, folder = trainer_on(mesh, models.FOLDER .. "llama", LORA), temporary()
    cases.fill(trainer, "lora%.[%w_]+%.b$")
    cases.fill(trainer, "^head%.value%.weight$")
    ckpt.save_adapter(trainer, folder)
    local other = trainer_on(mesh, models.FOLDER .. "llama", LORA)
    lu.assertEquals(ckpt.load_adapter(other, folder), {"head.value.weight"})
    check_parameters(other, parameters_of(trainer))
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestMeshes", TestMeshes}})
