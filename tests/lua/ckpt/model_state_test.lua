-- Tests a model's state by name. Also runs on two ranks, as stages of a pipeline.
local lu = require "luaunit"
local zt = require "zt"
local comm, moe = require "zt.comm", require "zt.moe"
local optim, pipe, zero = require "zt.optim", require "zt.pipe", require "zt.zero"

local rank, ranks = zt.world.rank, zt.world.size

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

local TestModelState = {}

function TestModelState:setUp() zt.log.set_level "error" end

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
