-- Tests the block hybrid_engine of DeepSpeed's JSON: the generator of a training engine has the bits of an engine of zt.infer
-- that is made by hand, with the current weights. Runs on one rank, on two and on four.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
require "zt.gemm"
local infer, moe, nn = require "zt.infer", require "zt.moe", require "zt.nn"
local cases = require "infer.engine_cases"

local ranks = zt.world.size
local shared = ranks == 4 and 2 or ranks -- ranks that share matrices; of four, two pairs
local requests = cases.requests(3)
local with = cases.with

-- Returns an engine of zt.initialize whose hybrid_engine has the options `hybrid`. `more` are further blocks of the JSON, and
-- `options` further ones of zt.initialize.
local function engine_of(hybrid, more, options)
  local config = with({
    train_micro_batch_size_per_gpu = 2, optimizer = {type = "SGD", params = {lr = 0.05}}, log_level = "error",
    hybrid_engine = with({enabled = true}, hybrid or {}),
  }, more or {})
  return zt.initialize(with({model = nn.gpt(cases.options "llama"), config = config}, options or {}))
end

-- The steps of an engine differ from step to step, and between places along its axis.
local function train(engine, step)
  local from = step * 17 + engine.axis.rank * 31
  local tokens = (zt.arange(2 * 24) * 5 + from):remainder(cases.VOCAB):view({2, 24}):to "int64"
  return engine:train_batch{tokens = tokens, labels = (tokens * 3 + step):remainder(cases.VOCAB)}
end

-- Returns the texts of the answers of one rank alone to `list`, with the weights of the engine's trainer.
local function alone(engine, list)
  return cases.texts(infer.engine{trainer = engine.trainer, dtype = "fp32"}:generate(list or requests))
end

local function release(engine)
  engine:end_generation()
  collectgarbage()
end

local TestLayouts = {}

-- Below stage 3, and at stage 3 with parts that stay where they are, the generator reads what the trainer holds.
function TestLayouts:test_in_place()
  for _, case in ipairs{{}, {stage = 1}, {stage = 2}, {stage = 3, pinned = false}} do
    local engine = engine_of({pin_parameters = case.pinned}, {zero_optimization = {stage = case.stage or 0}})
    for step = 0, 1 do
      local generator = engine:generator()
      lu.assertTrue(rawequal(generator.trainer, engine.trainer))
      lu.assertEquals(cases.texts(generator:generate(requests)), alone(engine))
      train(engine, step)
    end
  end
end

-- With whole parameters of their own, ranks compute alone: each has another number of requests.
function TestLayouts:test_whole_parameters()
  local stage = {zero_optimization = {stage = 3}}
  local engine = engine_of(nil, stage)
  local own = {unpack(requests, 1, 1 + zt.world.rank % 3)}
  for step = 0, 2 do
    local generator = engine:generator()
    lu.assertEquals(rawequal(generator.trainer, engine.trainer), ranks == 1)
    lu.assertEquals(cases.texts(generator:generate(own)), alone(engine, own))
    train(engine, step)
  end
  lu.assertFalse(rawequal(engine:generator{weights = {format = "panels"}}.trainer, engine.trainer))
end

-- The ranks of a group share matrices, whatever the stage: the bits are those of the same layout made by hand.
function TestLayouts:test_shared_matrices()
  for stage = 0, 3 do
    local engine = engine_of({inference_tp_size = shared, tp_gather_partition_size = 8}, {zero_optimization = {stage = stage}})
    local mesh = engine.mesh:refactor{dp = -1, tp = shared}
    for step = 0, 1 do
      train(engine, step)
      local by_hand = infer.engine{trainer = engine.trainer, mesh = mesh, tensor = shared > 1 and mesh.tp or nil,
                                   data = mesh.dp.size > 1 and mesh.dp or nil}
      local list = mesh.dp.rank == 0 and requests or {requests[2]}
      lu.assertEquals(cases.texts(engine:generator():generate(list)), cases.texts(by_hand:generate(list)))
    end
    lu.assertEquals(engine.generation.mesh and engine.generation.mesh.tp.size or 1, shared)
  end
end

-- A training engine whose ranks share matrices, tokens or layers generates on ranks that compute alone.
function TestLayouts:test_other_layouts_in_training()
  local function model(_, _, cut)
    return nn.gpt(with(cases.options "llama", {tensor = cut.tensor, context = cut.context}))
  end
  local layouts = {
    {{tensor_parallel = {autotp_size = shared}}, {model = model}}, {{sequence_parallel_size = shared}, {model = model}},
    {{pipeline = {stages = shared}, train_batch_size = 2 * ranks / shared}},
  }
  for place, layout in ipairs(layouts) do
    local engine = engine_of(nil, unpack(layout))
    local own = {requests[1 + zt.world.rank % 3]}
    train(engine, place)
    local generator = engine:generator()
    lu.assertEquals(rawequal(generator.trainer, engine.trainer), ranks == 1, place)
    lu.assertEquals(cases.texts(generator:generate(own)), alone(engine, own))
    release(engine)
  end
end

-- Experts stay divided over their ranks, whose requests differ; their matrices may be cut beside them.
function TestLayouts:test_experts()
  local function model(mesh)
    return moe.gpt(with(cases.options "llama", {moe = {experts = 4, top_k = 2, ffn = 40, axis = mesh.ep}}))
  end
  for _, case in ipairs{{ep = ranks, tp = 1}, {ep = ranks, tp = 1, stage = 3}, {ep = shared, tp = ranks / shared}} do
    local engine = engine_of({inference_tp_size = case.tp}, {expert_parallel = {enabled = true, autoep_size = case.ep},
                                                             zero_optimization = {stage = case.stage or 1}}, {model = model})
    train(engine, 1)
    local mesh = engine.mesh:refactor{ep = case.ep, tp = case.tp, order = {"ep", "tp"}}
    local own = {requests[1 + mesh.ep.rank % 3]}
    local answers = engine:generator():generate(own)
    local by_hand = infer.engine{trainer = engine.trainer, mesh = mesh, experts = case.ep > 1 and mesh.ep or nil,
                                 tensor = case.tp > 1 and mesh.tp or nil}
    lu.assertEquals(cases.texts(answers), cases.texts(by_hand:generate(own)))
  end
end

-- The model of a policy has its loss after the head. The generator computes the same model in another layout.
function TestLayouts:test_policy_with_a_loss()
  local policy = nn.layer{
    tokens = "separate", io = {inputs = {"logprobs"}, outputs = {"logprobs"}, losses = {policy = "sample"}},
    forward = function(_, out, ctx)
      if ctx.mode ~= "generate" then ctx:loss("policy", -out:sum(), "sample") end
      return out
    end,
  }
  local model = nn.gpt(with(cases.options "llama", {head = "logprobs"})):append(policy, "policy")
  for _, hybrid in ipairs{{}, {inference_tp_size = shared}} do
    local engine = engine_of(hybrid, {zero_optimization = {stage = 3}}, {model = model})
    train(engine, 0)
    local whole = nn.gpt(cases.options "llama")
    local plain = zt.trainer(zt.program(whole, {precision = "fp32"}), {separate = true})
    for _, parameter in ipairs(whole:parameters()) do
      plain:set_parameter(parameter.name, engine.trainer:parameter(parameter.name))
    end
    local request = {{prompt = cases.prompt(9, 2), max_tokens = 9, temperature = 0}}
    lu.assertEquals(engine:generate(request)[1].tokens, infer.engine{trainer = plain}:generate(request)[1].tokens)
  end
end

local TestPhases = {}

-- Without release_inference_cache the generator stays; with it, its memory is freed when training goes on.
function TestPhases:test_release()
  local engine = engine_of{inference_tp_size = shared}
  local generator = engine:generator()
  train(engine, 0)
  lu.assertTrue(rawequal(engine:generator(), generator))
  engine = engine_of{inference_tp_size = shared, release_inference_cache = true}
  local ends = {function() train(engine, 0) end, function() engine:train() end, function() engine:end_generation() end, function()
    local tokens = zt.zeros({2, 8}, {dtype = "int64"})
    engine:backward(engine{tokens = tokens, labels = tokens})
    engine:step()
  end}
  for place, finish in ipairs(ends) do
    generator = engine:generator()
    lu.assertTrue(rawequal(engine:generator(), generator)) -- the same phase
    lu.assertEquals(#generator:generate(requests), 3, place)
    finish()
    lu.assertErrorMsgContains("this engine was released", generator.generate, generator, requests)
  end
  engine:end_generation() -- without a phase it does nothing
end

-- `generate` is a phase by itself, unless there is one. Its arguments are those of transformers too.
function TestPhases:test_generate()
  local engine = engine_of{max_out_tokens = 40, release_inference_cache = true}
  local ids, arguments = {cases.prompt(5, 1), cases.prompt(5, 2)}, {max_new_tokens = 6, do_sample = true, seed = 4}
  local expected = zt.init_inference{model = engine}:generate(ids, arguments)
  lu.assertTrue(engine:generate(ids, arguments):equal(expected))
  lu.assertNil(engine.generation.made)
  lu.assertTrue(engine:generate(with(arguments, {input_ids = ids})):equal(expected))
  local generator = engine:generator()
  lu.assertEquals(generator.max_context, 40)
  lu.assertEquals(#engine:generate{{prompt = {1, 2}, max_tokens = 5}}[1].tokens, 5)
  lu.assertTrue(rawequal(engine.generation.made, generator))
  lu.assertErrorMsgContains("exceed max_context = 40", engine.generate, engine, {{prompt = {1, 2}, max_tokens = 39}})
  lu.assertTrue(rawequal(engine.generation.made, generator))
  engine:train()
  lu.assertErrorMsgContains("exceed max_context = 40", engine.generate, engine, {{prompt = {1, 2}, max_tokens = 39}})
  lu.assertNil(engine.generation.made)
end

-- Options make the generator anew, and stay.
function TestPhases:test_options()
  local engine = engine_of{release_inference_cache = true}
  local first = engine:generator{stop_tokens = {3}, cache = {memory = 2 ^ 22, block = 8}}
  engine:generator{cache = {memory = 2 ^ 22, block = 32}}
  lu.assertErrorMsgContains("this engine was released", first.stats, first)
  local blocks = engine:generator():stats().blocks
  lu.assertErrorMsgContains("do not belong together", engine.generator, engine,
                            {tokenizer = require("zt.data").tokenizer.bytes()})
  engine:train()
  lu.assertEquals(engine:generator():stats().blocks, blocks)
end

-- The generator draws what the trainer's weights say after each step, also after a load.
function TestPhases:test_weights_of_a_checkpoint()
  local engine = engine_of{inference_tp_size = shared}
  local folder = require("support.temporary")()
  engine:save_checkpoint(folder)
  local before = cases.texts(engine:generate(requests))
  train(engine, 0)
  lu.assertNotEquals(cases.texts(engine:generate(requests)), before)
  engine:load_checkpoint(folder)
  lu.assertEquals(cases.texts(engine:generate(requests)), before)
end

-- The JSON that DeepSpeed-Chat writes (dschat/utils/ds_utils.py) trains and generates, at every stage.
function TestPhases:test_json_of_deepspeed_chat()
  for stage = 0, 3 do
    local shares = stage == 3 and shared or 1
    local text = ([[{
      "train_batch_size": %d, "train_micro_batch_size_per_gpu": 2, "steps_per_print": 10,
      "zero_optimization": {
        "stage": %d, "overlap_comm": true, "offload_param": {"device": "none"}, "offload_optimizer": {"device": "none"},
        "stage3_param_persistence_threshold": 1e4, "stage3_max_live_parameters": 3e7, "stage3_prefetch_bucket_size": 3e7,
        "memory_efficient_linear": false},
      "bfloat16": {"enabled": true}, "gradient_clipping": 1.0, "prescale_gradients": false, "wall_clock_breakdown": false,
      "hybrid_engine": {
        "enabled": true, "max_out_tokens": 128, "inference_tp_size": %d, "release_inference_cache": false,
        "pin_parameters": true, "tp_gather_partition_size": 8},
      "tensorboard": {"enabled": false, "output_path": "x/ds_tensorboard_logs/", "job_name": "step3_actor_tensorboard"}}]])
      :format(2 * ranks, stage, shares)
    local engine = zt.initialize{model = nn.gpt(cases.options "llama"), config = text, strict = true,
                                 optimizer = require("zt.optim").adamw{lr = 1e-3, betas = {0.9, 0.95}}}
    train(engine, 0)
    lu.assertEquals(engine:generator().max_context, 128)
    lu.assertEquals(#engine:generate{{prompt = {1, 2}, max_tokens = 5}}[1].tokens, 5)
  end
end

local TestMistakes = {}

function TestMistakes:test_configuration()
  local function refused(text, hybrid, more) lu.assertErrorMsgContains(text, engine_of, hybrid, more) end
  refused("inference_tp_size = 3 does not divide " .. ranks .. " ranks", {inference_tp_size = 3})
  refused("hybrid_engine.inference_tp_size must be at least 1, got 0", {inference_tp_size = 0})
  refused("hybrid_engine.max_out_tokens must be an integer, got 0.5", {max_out_tokens = 0.5})
  refused("hybrid_engine.release_inference_cache must be true or false", {release_inference_cache = 1})
  refused("hybrid_engine.tp_gather_partition_size must be at least 1", {tp_gather_partition_size = 0})
  refused("unknown key 'max_out_token': did you mean 'max_out_tokens'?", {max_out_token = 4})
  refused("hybrid_engine.pin_parameters = false leaves each rank the part", {inference_tp_size = 2, pin_parameters = false},
          {zero_optimization = {stage = 3}})
  local engine = engine_of{enabled = false, inference_tp_size = 3}
  lu.assertErrorMsgContains('engine:generator needs "hybrid_engine": {"enabled": true}', engine.generator, engine)
  lu.assertErrorMsgContains('engine:generate needs "hybrid_engine": {"enabled": true}', engine.generate, engine, requests)
  engine:train()
end

-- A key that has no effect says so.
function TestMistakes:test_notes()
  local ds = require "zt.deepspeed.config"
  local config = ds.read({train_batch_size = 1, zero_optimization = {stage = 2},
                          hybrid_engine = {enabled = true, pin_parameters = true, enable_cuda_graph = true}}, {world = 1})
  local reasons = {}
  for _, note in ipairs(config.notes) do reasons[note.key] = note.reason end
  lu.assertEquals(reasons["hybrid_engine.pin_parameters"], "no effect at stage 2: it is for stage 3")
  lu.assertStrContains(reasons["hybrid_engine.enable_cuda_graph"], "nothing is captured")
end

-- What is wrong on one rank is an error on all, and the engine goes on.
function TestMistakes:test_calls()
  local engine = engine_of{inference_tp_size = shared}
  local is_wrong = zt.world.rank == ranks - 1
  for _, wrong in ipairs{5, {nonsense = 1}, {token_budget = 0}} do
    local message = is_wrong and "engine:generator" or ("rank %d: engine:generator"):format(ranks - 1)
    lu.assertErrorMsgContains(message, engine.generator, engine, is_wrong and wrong or nil)
  end
  if ranks > 1 then
    lu.assertErrorMsgContains("give different options of engine:generator, ", engine.generator, engine,
                              is_wrong and {token_budget = 300} or nil)
    engine:generator()
    if is_wrong then engine.generation.made = nil end
    lu.assertErrorMsgContains("none where a generator is there and none where no generator is there", engine.generator, engine)
    engine.generation.made = nil
    engine:end_generation()
  end
  lu.assertErrorMsgContains("engine:generate", engine.generate, engine, {input_ids = {{1, 2}}, num_beams = 4})
  lu.assertEquals(#engine:generate{{prompt = {1, 2}, max_tokens = 5}}[1].tokens, 5)
  local tokens = zt.zeros({2, 8}, {dtype = "int64"})
  local loss = engine{tokens = tokens, labels = tokens}
  lu.assertErrorMsgContains("engine:generator: a step is under way", engine.generator, engine)
  engine:backward(loss)
  engine:step()
  lu.assertEquals(#engine:generate{{prompt = {1, 2}, max_tokens = 5}}[1].tokens, 5)
  engine = engine_of({inference_tp_size = shared}, nil, {model = nn.sequential{
    nn.embedding{vocab = 64, hidden = 32}, nn.attention{hidden = 32, heads = 2}, {"head", nn.lm_loss{vocab = 64, hidden = 32}},
  }})
  if shared > 1 then
    lu.assertErrorMsgContains("nn.gpt or moe.gpt did not make the trainer's model", engine.generator, engine)
  end
end

local SUITES = {{"TestLayouts", TestLayouts}, {"TestPhases", TestPhases}, {"TestMistakes", TestMistakes}}
os.exit(lu.LuaUnit.new():runSuiteByInstances(SUITES))
