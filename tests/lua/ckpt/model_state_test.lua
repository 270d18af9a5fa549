-- Tests a model's state by name: parameters, and what layers change themselves. Also runs on two ranks: as experts' ranks, and as
-- stages of a pipeline.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, comm, moe = require "zt.ckpt", require "zt.comm", require "zt.moe"
local optim, pipe, zero = require "zt.optim", require "zt.pipe", require "zt.zero"
local command = require "support.command" "ckpt"
local small = require "support.small_mixture"
local temporary = require "support.temporary"

local rank, ranks = zt.world.rank, zt.world.size
local BIAS = "blocks.1.router.bias"

-- Returns the trainer of a model whose second block has a router with a bias, on stages along all ranks.
local function pipeline(precision, frozen)
  local mesh = comm.mesh{pp = -1}
  local model = moe.gpt{layers = 2, hidden = 16, heads = 2, vocab = 29, seq = 8, seed = 1,
                        moe = {experts = 4, ffn = 24, blocks = {1}, router = {bias = true, bias_rate = 0.25}}}
  if frozen then model:freeze(frozen) end
  local program = zt.program(model, {micro_batches = 2, precision = precision}):apply(pipe.split{axis = mesh.pp})
  return zt.trainer(program, {optimizer = optim.adamw{lr = 0.1}}), model
end

local function batch()
  local tokens = zt.arange(16):remainder(29):view{2, 8}:to "int64"
  return {tokens = tokens, labels = tokens:add(1):remainder(29)}
end

-- Returns a trainer whose experts are spread over all ranks, and its model.
local function mixture()
  local model = small.model{router = {bias = true, bias_rate = 0.25}}
  return small.trainer(model, {program = {precision = "bf16"}}), model
end

local function names_of(trainer)
  local names = {}
  for index, tensor in ipairs(trainer:tensors()) do names[index] = tensor.name end
  return names
end

-- Checks that the trainer's functions know the bias as they know parameters.
local function check_bias(trainer, model)
  lu.assertEquals(trainer:state():names(), names_of(trainer))
  lu.assertEquals(#names_of(trainer), #trainer:parameters() + 1)
  lu.assertEquals(trainer:tensors()[#trainer:tensors()],
    {name = BIAS, shape = {4}, dtype = "float32", is_parameter = false})
  lu.assertEquals(trainer:describe_parameter(BIAS).shape, {4})
  -- One step with rate 1/4: each expert's bias rises, falls, or stays where its load is the mean.
  local bias = trainer:parameter(BIAS)
  lu.assertTrue(bias:norm():item() > 0)
  lu.assertTrue((bias:abs() - 0.25):abs():mul(bias:abs()):max():item() == 0)
  lu.assertTrue(trainer:master(BIAS):equal(bias))
  lu.assertTrue(trainer:state()[BIAS]:equal(bias))
  bias:fill_(7) -- a copy
  lu.assertTrue(trainer:parameter(BIAS):abs():max():item() == 0.25)
  lu.assertEquals(trainer:optimizer_state(BIAS), {})
  lu.assertErrorMsgContains("'" .. BIAS .. "' is a tensor that its layer changes itself, no parameter: it has no gradient",
    trainer.gradient, trainer, BIAS)
  lu.assertErrorMsgContains("it has no optimizer state", trainer.set_optimizer_state, trainer, BIAS, "exp_avg", bias)
  lu.assertErrorMsgContains("parameter '" .. BIAS .. "' is [4], the values are", trainer.set_parameter, trainer, BIAS, zt.ones(3))
  lu.assertErrorMsgContains("did you mean '" .. BIAS .. "'?", trainer.parameter, trainer, "blocks.1.router.bia")
  trainer:set_parameter(BIAS, zt.tensor{1, 2, 3, 4})
  lu.assertTrue(trainer:parameter(BIAS):equal(zt.tensor{1, 2, 3, 4}))
  trainer:set_parameter(BIAS, zt.full({4}, rank + 1), ranks - 1)
  lu.assertTrue(trainer:parameter(BIAS):equal(zt.tensor{ranks, ranks, ranks, ranks}))
  zero.gathered(trainer, BIAS, function(tensors) tensors[BIAS].value:add_(rank) end, {write_rank = 0})
  lu.assertTrue(trainer:parameter(BIAS):equal(zt.tensor{ranks, ranks, ranks, ranks}))
end

local TestModelState = {}

function TestModelState:setUp() zt.log.set_level "error" end

function TestModelState:test_layers_own_tensors()
  local trainer, model = mixture()
  trainer:step(small.batch())
  check_bias(trainer, model)
end

function TestModelState:test_layers_own_tensors_in_a_pipeline()
  local trainer, model = pipeline "fp32"
  trainer:step(batch())
  check_bias(trainer, model)
end

-- What save_safetensors and export write is the same list, and an import of either loads.
local function check_files(trainer, fresh)
  local folder = temporary()
  local bias = zt.tensor{0.125, -2, 3, 0.5}
  trainer:set_parameter(BIAS, bias)
  ckpt.save_safetensors(trainer, folder .. "/saved.safetensors")
  ckpt.save(folder .. "/run", {trainer = trainer}, {step = 1, async = false})
  if rank == 0 then
    local text, status = command("export", folder .. "/run", folder .. "/exported.safetensors")
    lu.assertEquals(status, 0, text)
    for _, name in ipairs {"saved", "exported"} do
      text, status = command("import", ("%s/%s.safetensors"):format(folder, name), folder .. "/" .. name)
      lu.assertEquals(status, 0, text)
    end
  end
  small.mesh:world():barrier()
  for _, name in ipairs {"saved", "exported"} do
    local found = {}
    local file = ckpt.safetensors(("%s/%s.safetensors"):format(folder, name))
    for _, tensor in ipairs(file:tensors()) do found[tensor.name] = true end
    for _, tensor in ipairs(trainer:tensors()) do
      lu.assertTrue(found[tensor.name], tensor.name)
      found[tensor.name] = nil
    end
    lu.assertEquals(found, {}, name)
    local loaded = fresh()
    ckpt.load(folder .. "/" .. name, {model = loaded})
    lu.assertTrue(loaded:parameter(BIAS):equal(bias), name)
    for _, parameter in ipairs(trainer:parameters()) do
      lu.assertTrue(loaded:parameter(parameter):equal(trainer:parameter(parameter)), parameter)
    end
  end
end

function TestModelState:test_files()
  local trainer = mixture()
  trainer:step(small.batch())
  check_files(trainer, mixture)
end

function TestModelState:test_files_of_a_pipeline()
  local trainer = pipeline "bf16"
  trainer:step(batch())
  check_files(trainer, function() return (pipeline "bf16") end)
end

-- A frozen layer has no copy in the optimizer's precision, but all ranks exchange its values in that precision.
function TestModelState:test_masters_of_frozen_layers_in_a_pipeline()
  for _, precision in ipairs {"bf16", "fp16", "fp32"} do
    for _, frozen in ipairs {"^head", "^embedding", "^head.norm", "^blocks.1"} do
      local trainer = pipeline(precision, frozen)
      trainer:step(batch())
      for _, name in ipairs(trainer:parameters()) do
        local master = trainer:master(name)
        lu.assertEquals(master:dtype(), "float32", name)
        lu.assertTrue(master:to(trainer:describe_parameter(name).dtype):equal(trainer:parameter(name)), name)
      end
      local name = "head.norm.weight"
      local state = zero.gathered(trainer, name, function(tensors)
        tensors[name].value:fill_(rank + 2)
        return tensors[name].state
      end, {state = true, write_rank = ranks - 1})
      lu.assertEquals(next(state) == nil, frozen:find "head" ~= nil)
      lu.assertTrue(trainer:master(name):equal(zt.full({16}, ranks + 1)))
    end
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestModelState", TestModelState}})
