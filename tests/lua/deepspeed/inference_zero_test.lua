-- Tests zt.init_inference with parameters that are sharded (zero.stage 3). Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
require "zt.gemm"
local comm, offload, zero = require "zt.comm", require "zt.offload", require "zt.zero"
local cases = require "infer.engine_cases"
local temporary = require "support.temporary"

local requests = cases.requests(7)
local tensor, wide, with = cases.tensor, cases.wide, cases.with

local function assert_same(got, expected) lu.assertEquals(cases.texts(got), cases.texts(expected)) end

local TestZero = {}

-- Parameters of stage 3 have the bits of whole ones, wherever they lie.
function TestZero:test_zero()
  local trainer, tokens = wide "bf16", tensor{cases.prompt(20, 1), cases.prompt(20, 2)}
  local folder = temporary()
  for _, more in ipairs{{}, {dtype = "int8"}} do
    local expected = zt.init_inference(with(more, {model = trainer}))
    local logits, answers = expected:forward(tokens).logits, expected:generate(requests)
    for _, given in ipairs{
      {stage = 3}, {stage = 3, stage3_prefetch_bucket_size = 1e5, stage3_param_persistence_threshold = 300, overlap_comm = true},
      {stage = 3, offload_param = {device = "nvme", nvme_path = folder}}, {stage = 2},
    } do
      local engine = zt.init_inference(with(more, {model = trainer, config = {zero = given}}))
      lu.assertTrue(zt.op "equal"(engine:forward(tokens).logits, logits), zt.json.encode(given))
      assert_same(engine:generate(requests), answers)
      lu.assertEquals(engine.mesh ~= nil, given.stage == 3)
    end
  end
  lu.assertTrue(zt.exists(folder)) -- the files of the parts of parameters were there
end

-- The keys of stage 3 are options of zero.shard and offload.move.
function TestZero:test_zero_makes_the_program()
  local trainer, mesh, folder = wide(), comm.mesh{dp = -1, ep = 1, tp = 1, order = {"dp", "ep", "tp"}}, temporary()
  local function text_of(given)
    return zt.init_inference{model = trainer, zero = with(given, {stage = 3})}.trainer.program:text()
  end
  local function wanted(shard, move)
    local program = zt.program(trainer.model):apply(zero.shard(with(shard, {axis = mesh.dp, stage = 3})))
    if move then program = program:apply(offload.move(move)) end
    return zt.trainer(program, {separate = true}).program:text()
  end
  lu.assertEquals(text_of{stage3_param_persistence_threshold = 512, stage3_max_reuse_distance = 0},
                  wanted{persist_below = 513, max_reuse_distance = 0})
  lu.assertEquals(text_of{overlap_comm = true, stage3_prefetch_bucket_size = 1}, wanted{overlap = true, prefetch = 1})
  local file = {device = "nvme", nvme_path = folder}
  lu.assertEquals(text_of{offload_param = file}, wanted({node_shared = false}, {parameters = "nvme", folder = folder}))
  lu.assertEquals(text_of{offload_param = with(file, {max_in_cpu = 50000})},
                  wanted({node_shared = false}, {parameters = "nvme", folder = folder, memory = 200000}))
  lu.assertNotEquals(text_of{offload_param = with(file, {max_in_cpu = 50000})}, text_of{offload_param = file})
  lu.assertErrorMsgContains("but max_live is 1: raise it", text_of, {stage3_max_live_parameters = 1})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestZero", TestZero}})
