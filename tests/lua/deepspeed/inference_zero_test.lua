-- Tests zt.init_inference with parameters that are sharded (zero.stage 3). Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
require "zt.gemm"
local comm, nn, offload, zero = require "zt.comm", require "zt.nn", require "zt.offload", require "zt.zero"
local cases = require "infer.engine_cases"
local temporary = require "support.temporary"

local requests = cases.requests(7)
local LLAMA = require("support.huggingface_models").FOLDER .. "llama"
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
      {stage = 3, offload_param = {device = "nvme", nvme_path = folder}}, {stage = 3, offload_param = {device = "cpu"}},
      {stage = 3, offload_param = {device = "nvme", nvme_path = folder, max_in_cpu = 1000, pin_memory = true}}, {stage = 2},
    } do
      local engine = zt.init_inference(with(more, {model = trainer, config = {zero = given}}))
      lu.assertTrue(zt.op "equal"(engine:forward(tokens).logits, logits), zt.json.encode(given))
      assert_same(engine:generate(requests), answers)
      lu.assertEquals(engine.mesh ~= nil, given.stage == 3)
    end
  end
  lu.assertTrue(zt.exists(folder)) -- the files of the parts of parameters were there
end

-- Returns the engine of deepspeed.initialize at stage 3, as DeepSpeed documents ZeRO-Inference.
local function training_engine(offload_param)
  local zero_optimization = {stage = 3, offload_param = offload_param}
  local engine = zt.initialize{
    model = nn.gpt(cases.options "llama"), optimizer = require("zt.optim").adamw{lr = 0.01},
    config = {train_micro_batch_size_per_gpu = 1, zero_optimization = zero_optimization}}
  engine:eval()
  return engine
end

-- The tokens are those of a plain engine, whether the engine reads the trainer's parts of parameters or shards a folder's.
function TestZero:test_both_ways_of_zero_inference()
  local folder, ids = temporary(), {input_ids = {cases.prompt(9, 1), cases.prompt(9, 2)}, max_new_tokens = 7}
  local plain = zt.init_inference{model = cases.trainer "llama"}
  local answers, tokens = plain:generate(requests), plain:generate(ids):tolist()
  local of_folder = zt.init_inference{model = LLAMA}:generate{input_ids = {{5, 17, 3, 44}}, max_new_tokens = 9}:tolist()
  for _, given in ipairs{{device = "none"}, {device = "cpu"}, {device = "nvme", nvme_path = folder}} do
    for _, block in ipairs{false, {stage = 3, offload_param = given}} do
      local engine = zt.init_inference{model = training_engine(given), config = block and {zero = block} or {}}
      assert_same(engine:generate(requests), answers)
      lu.assertEquals(engine:generate(ids):tolist(), tokens)
    end
    local engine = zt.init_inference{model = LLAMA, config = {zero = {stage = 3, offload_param = given}}}
    lu.assertEquals(engine:generate{input_ids = {{5, 17, 3, 44}}, max_new_tokens = 9, synced_gpus = true}:tolist(), of_folder)
  end
end

-- A rank whose call of generate is wrong takes part in the steps of the others, which need its parameters. A wrong call of
-- forward is an error on all of them. Each rank has samples of its own.
function TestZero:test_mistakes_of_one_rank()
  local engine = zt.init_inference{model = LLAMA, config = {zero = {stage = 3}}}
  local plain = zt.init_inference{model = LLAMA}
  local rank, is_last = zt.world.rank, zt.world.rank == zt.world.size - 1
  local ids = {{5 + rank, 17, 3, 44}}
  local function check_equal(arguments)
    lu.assertEquals(engine:generate(arguments):tolist(), plain:generate(arguments):tolist())
  end
  for _ = 1, 2 do
    if is_last then
      lu.assertErrorMsgContains("max_length = 2 leaves no token", engine.generate, engine, {input_ids = ids, max_length = 2})
    else
      check_equal{input_ids = ids, max_length = 9}
    end
    lu.assertErrorMsgContains("attention_mask has zeros", engine, {input_ids = tensor(ids),
                                                                   attention_mask = {{is_last and 0 or 1, 1, 1, 1}}})
    check_equal{input_ids = ids, max_new_tokens = 3 + 4 * rank}
    lu.assertEquals(engine(tensor(ids)).logits:tolist(), plain(tensor(ids)).logits:tolist())
  end
end

-- Where ranks share matrices, what is wrong on one is an error on all.
function TestZero:test_mistakes_of_one_rank_of_a_replica()
  local engine = zt.init_inference{model = LLAMA, mp_size = zt.world.size}
  local is_last = zt.world.rank == zt.world.size - 1
  for _ = 1, 2 do
    lu.assertErrorMsgContains("max_length = 2 leaves no token", engine.generate, engine,
                              {input_ids = {{5, 17, 3, 44}}, max_length = is_last and 2 or 9})
    lu.assertErrorMsgContains("got a number", engine, is_last and {input_ids = 0.5} or tensor{{5, 17}})
    lu.assertEquals(engine:generate{input_ids = {{5, 17, 3, 44}}, max_length = 9}:size(1), 9)
  end
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
