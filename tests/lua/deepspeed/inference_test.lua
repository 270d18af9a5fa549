-- Tests zt.init_inference. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
require "zt.gemm"
local ckpt, comm, infer, moe, nn = require "zt.ckpt", require "zt.comm", require "zt.infer", require "zt.moe", require "zt.nn"
local cases = require "infer.engine_cases"
local models = require "support.huggingface_models"
local temporary = require "support.temporary"

local ranks = zt.world.size
local requests = cases.requests(7)
local tensor, wide, with = cases.tensor, cases.wide, cases.with
local LLAMA = models.FOLDER .. "llama"

local function assert_same(got, expected) lu.assertEquals(cases.texts(got), cases.texts(expected)) end

local TestGenerate = {}

function TestGenerate:test_forward_has_the_logits_of_transformers()
  local expected = models.expected_of "llama"
  local engine = zt.init_inference{model = LLAMA, config = {dtype = "torch.float32", replace_with_kernel_inject = true}}
  local wanted = expected.logits_fp32:to "float64"
  for _, logits in ipairs{engine:forward(expected.tokens).logits, engine{input_ids = expected.tokens}.logits} do
    lu.assertTrue((logits:to "float64" - wanted):abs():max():item() <= 1e-5 * wanted:abs():max():item())
  end
end

-- Draws are those of requests with the same settings, whose samples have ascending seeds.
function TestGenerate:test_draws()
  local engine = zt.init_inference{model = cases.trainer "llama"}
  local rows = {cases.prompt(5, 1), cases.prompt(5, 2)}
  local got = engine:generate(tensor(rows), {max_new_tokens = 6, do_sample = true, temperature = 0.8, top_p = 0.9, min_p = 0.01,
                                             seed = 4, num_return_sequences = 2}):tolist()
  local own = {}
  for place, row in ipairs(rows) do
    own[place] = {prompt = row, max_tokens = 6, temperature = 0.8, top_k = 50, top_p = 0.9, min_p = 0.01, seed = 3 + place, n = 2}
  end
  local answers = infer.engine{trainer = engine.trainer}:generate(own)
  lu.assertEquals(#got, 4)
  for place, answer in ipairs(answers) do lu.assertEquals({unpack(got[place], 6)}, answer.tokens) end
  assert_same(engine:generate(own), answers) -- requests of zt.infer are taken as they are
end

function TestGenerate:test_mistakes_of_calls()
  local engine = zt.init_inference{model = cases.trainer "llama", max_out_tokens = 20}
  local function refused(text, ...) lu.assertErrorMsgContains(text, engine.generate, engine, ...) end
  local ids = {{1, 2, 3}}
  refused("num_beams = 4: there is no beam search", {input_ids = ids, num_beams = 4})
  refused("has an effect only with do_sample = true", {input_ids = ids, temperature = 2})
  refused("without do_sample = true all of them would be equal", {input_ids = ids, num_return_sequences = 2})
  refused("unknown option 'max_new_token': did you mean 'max_new_tokens'?", {input_ids = ids, max_new_token = 2})
  refused("max_length = 3 leaves no token", {input_ids = ids, max_length = 3})
  refused("give one of them", {input_ids = ids, max_length = 9, max_new_tokens = 2})
  refused("must have the shape [samples, tokens], got 1 dimensions", tensor{1, 2})
  refused("input_ids[1] must be a list of at least one token", {input_ids = {1, 2}})
  refused("input_ids[1] must be a list of at least one token, got a list with holes", {input_ids = {{1, nil, 2}}})
  refused("input_ids must be an int64 tensor [samples, tokens], got one of float32", zt.zeros{2, 2})
  refused("eos_token_id must be one value, or a list without holes", {input_ids = ids, eos_token_id = {nil, 5}})
  refused("input_ids[1] holds 1.5", {input_ids = {{1.5}}})
  refused("sample 1 has padding between its tokens, which repetition_penalty counts",
          {input_ids = ids, attention_mask = {{1, 0, 1}}, repetition_penalty = 1.2})
  refused("attention_mask[1] has 2 numbers", {input_ids = ids, attention_mask = {{1, 1}}})
  refused("leaves no token of the sample", {input_ids = ids, attention_mask = {{0, 0, 0}}})
  refused("input_ids[1] ends with pad_token_id = 3, as text or as padding", {input_ids = ids, pad_token_id = 3})
  refused("exceed max_context = 20", {input_ids = ids, max_new_tokens = 18})
  refused("put the others into it", {input_ids = ids}, {max_new_tokens = 2})
  lu.assertErrorMsgContains("must be an int64 tensor [samples, tokens]", engine.forward, engine, {input_ids = ids})
  for _, mask in ipairs{tensor{{0, 1, 1}}, {{0, 1, 1}}, tensor{{0, 1, 1}}:eq(1)} do
    lu.assertErrorMsgContains("attention_mask has zeros", engine, {input_ids = tensor(ids), attention_mask = mask})
  end
  lu.assertErrorMsgContains("must have the shape of input_ids, [1, 3]", engine,
                            {input_ids = tensor(ids), attention_mask = {{1, 1}}})
  lu.assertEquals(engine{input_ids = tensor(ids), attention_mask = {{1, 1, 1}}}.logits:size(1), 3)
  lu.assertErrorMsgContains("engine:compile: kernels are compiled", engine.compile, engine)
  lu.assertErrorMsgContains("call engine:profile_model_time() before", engine.model_times, engine)
  engine:profile_model_time()
  engine:generate{input_ids = ids, max_new_tokens = 2}
  engine:forward(tensor(ids))
  lu.assertEquals(#engine:model_times(), 2)
  lu.assertEquals(engine:model_times(), {})
  lu.assertEquals(engine:eval(), engine)
  engine:destroy()
  refused("this engine was destroyed", {input_ids = ids})
end

-- Fails unless every rank gets the same error, which contains the text.
local function refused(text, options)
  local is_done, message = pcall(zt.init_inference, options)
  lu.assertFalse(is_done, text)
  lu.assertStrContains(message, text)
  if ranks == 1 then return end
  for _, each in ipairs(comm.mesh{dp = -1}:world():gather_values{text = message}) do lu.assertEquals(each.text, message) end
end

local TestOptions = {}

-- Returns the formats of the parameters of an engine by name.
local function formats_of(engine)
  local formats = {}
  for _, parameter in ipairs(engine.module:parameters()) do formats[parameter.name] = parameter.format end
  return formats
end

local function assert_weights(given, weights, trainer)
  local engine = zt.init_inference(with(given, {model = trainer}))
  local expected = infer.engine{trainer = trainer, weights = weights}
  lu.assertEquals(formats_of(engine), formats_of{module = expected.trainer.model})
  assert_same(engine:generate(requests), expected:generate(requests))
  return engine
end

function TestOptions:test_weights()
  local trainer = wide "bf16"
  local four = {num_bits = 4, group_size = 32, group_dim = 1, symmetric = false}
  assert_weights({dtype = "int8"}, {format = "int8"}, trainer)
  assert_weights({config = {dtype = "int8", quant = {activation = {enabled = true}, qkv = {enabled = false}}}},
                 {format = "int8", activations = "int8", keep = {"\\.qkv\\."}}, trainer)
  assert_weights({quant = {weight = {num_bits = 4}}}, {format = "int4", symmetric = true}, trainer)
  assert_weights({quant = {weight = {num_bits = 4, q_type = "asymmetric"}}}, {format = "int4"}, trainer)
  assert_weights({config = {weight_quantization = {quantized_initialization = four}}}, {format = "int4", group = 32}, trainer)
  local engine = assert_weights({weight_quantization = {post_init_quant = {mlp = four, [".out."] = four}}},
                                {format = "int4", group = 32, keep = {"qkv", "head"}}, trainer)
  local formats = formats_of(engine)
  lu.assertEquals(formats["blocks.0.mlp.up.weight"], "int4")
  lu.assertEquals(formats["blocks.0.attention.qkv.weight"], "plain")
  lu.assertErrorMsgContains("no packed matrix has a name that contains 'q_proj'", zt.init_inference,
                            {model = trainer, weight_quantization = {post_init_quant = {q_proj = four, mlp = four}}})
  lu.assertErrorMsgContains("no packed matrix has a name that contains 'q_proj'", zt.init_inference,
                            {model = trainer, weight_quantization = {post_init_quant = {q_proj = four}}})
end

local function saved()
  local folder = temporary()
  local trainer = zt.trainer(zt.program(nn.gpt{layers = 2, hidden = 32, heads = 2, vocab = 256, seq = 64, family = "llama"}),
                             {optimizer = require("zt.optim").adamw{lr = 0.01}})
  ckpt.save(folder .. "/run", {trainer = trainer}, {step = 0, async = false})
  return folder, trainer
end

function TestOptions:test_folders_and_files()
  if ranks > 1 then return end
  local folder, trainer = saved()
  local request = {prompt = "abc", max_tokens = 12}
  local expected = zt.init_inference{model = trainer, tokenizer = require("zt.data").tokenizer.bytes()}:generate(request)
  local path = folder .. "/config.json"
  zt.write_file(path, '{"checkpoint": "run", "base_dir": "' .. folder .. '", "max_out_tokens": 40, "dtype": "auto"} // own\n')
  local engine = zt.init_inference{config = path}
  lu.assertEquals(engine.max_context, 40)
  assert_same(engine:generate(request), expected)
  refused("has two models", {model = folder, config = path})
  assert_same(zt.init_inference{model = folder .. "/run", zero = {stage = 3}}:generate(request), expected)
end

function TestOptions:test_fastgen()
  local state = {max_context = 50, max_ragged_batch_size = 33, max_ragged_sequence_count = 8, max_tracked_sequences = 9}
  local trainer = cases.trainer "llama"
  local list = cases.requests(7, {max_tokens = 3})
  for place, request in ipairs(list) do request.prompt = cases.prompt(10 + place, place) end
  local expected = infer.engine{trainer = trainer}:generate(list)
  for _, config in ipairs{{inference_v2 = {state_manager = state}}, {manager = state}} do
    local engine = zt.init_inference{model = trainer, config = config}
    lu.assertEquals(engine.max_context, 50)
    lu.assertEquals({engine.config.token_budget, engine.config.max_sequences}, {33, 8})
    assert_same(engine:generate(list), expected)
  end
end

function TestOptions:test_mistakes()
  local trainer = wide()
  local function config(text, given) refused(text, {model = trainer, config = given}) end
  refused("zt.init_inference.model must be a trainer", {})
  refused("zt.init_inference.model must be a trainer", {model = nn.gpt{layers = 1, hidden = 8, heads = 1, vocab = 9, seq = 9}})
  refused("unknown option 'tokeniser': did you mean 'tokenizer'?", {model = trainer, tokeniser = 1})
  config("the configuration: unknown key 'kernel_injekt': did you mean 'kernel_inject'?", {kernel_injekt = true})
  refused("'dtype' has one value in the configuration and another", {model = trainer, config = {dtype = "fp32"}, dtype = "fp16"})
  zt.init_inference{model = trainer, config = {dtype = "fp32"}, dtype = "fp32"}
  config("dtype must be 'fp32', 'fp16', 'bf16' or 'int8', got 'fp8'", {dtype = "fp8"})
  config("injection_policy = a table is refused: layers say by themselves", {injection_policy = {x = 1}})
  config("'mp_size' and 'tensor_parallel.tp_size' are one key", {mp_size = 1, tensor_parallel = {tp_size = 1}})
  config("need a multiple of 3 ranks, and this run has " .. ranks, {tp = {tp_size = 3}})
  config("is a JSON file", {checkpoint = "files.json"})
  refused("has two models", {model = trainer, checkpoint = "folder"})
end

function TestOptions:test_mistakes_of_values()
  local trainer = wide()
  local function config(text, given) refused(text, {model = trainer, config = given}) end
  local four, eight = {num_bits = 4}, {num_bits = 8}
  config("triangular_masking must be true", {triangular_masking = false})
  config("moe.type = 'residual' is refused", {moe = {type = "residual"}})
  config("moe.moe_experts says 4 experts, and the layers of the model have none", {moe = {num_experts = {4}}})
  config("min_out_tokens = 500, and the engine takes at most 192", {min_out_tokens = 500})
  config("max_ragged_sequence_count = 9 must be at most max_tracked_sequences = 8",
         {state_manager = {max_ragged_sequence_count = 9, max_tracked_sequences = 8}})
  config("'dtype' stands beside it", {inference_v2 = {}, dtype = "fp16"})
  config("there are no weights of 6 bits", {quantization = {quantization_mode = "wf6af16"}})
  config("codes of 8 bits are symmetric here", {quant = {weight = {q_type = "asymmetric"}}})
  config("quant.enabled = false says otherwise", {dtype = "int8", quant = {enabled = false}})
  config("nothing packs them", {quant = {qkv = {enabled = false}}})
  config("'head' and 'mlp' have other options", {weight_quantization = {post_init_quant = {mlp = four, head = eight}}})
  config("quantized_initialization.group_size must be 32, 64 or 128, got 48",
         {quant = {weight = {quantized_initialization = {num_bits = 4, group_size = 48}}}})
  config("group_dim = 0: groups lie along the columns",
         {quant = {weight = {quantized_initialization = with(four, {group_dim = 0})}}})
  config("zero.stage = 0 has none: give stage 3", {zero = {offload_param = {device = "cpu"}}})
  config("needs a place for the files", {zero = {stage = 3, offload_param = {device = "nvme"}}})
  refused("zt.init_inference.weights is given, and the configuration gives it", {model = trainer, dtype = "int8", weights = {}})
end

local TestRanks = {}

-- The logits are those of one rank, up to the order of sums.
function TestRanks:test_tensor_parallel()
  local tokens = models.expected_of("llama").tokens
  local expected = zt.init_inference{model = LLAMA}:forward(tokens).logits
  for _, given in ipairs{{tensor_parallel = {tp_size = ranks}}, {mp_size = ranks}, {inference_v2 = {tp = {tp_size = ranks}}}} do
    local engine = zt.init_inference{model = LLAMA, config = given}
    lu.assertEquals(engine.mesh and engine.mesh.tp.size or 1, ranks)
    lu.assertTrue((engine:forward(tokens).logits - expected):abs():max():item() <= 1e-5 * expected:abs():max():item())
    lu.assertEquals(#engine:generate{{prompt = {1, 2}, max_tokens = 5}}[1].tokens, 5)
  end
end

-- Each rank has its own requests, and some experts. The answers have the bits of one rank, also with parameters of stage 3.
function TestRanks:test_experts()
  local experts = {experts = 4, top_k = 2, ffn = 40}
  local model = moe.gpt(with(cases.options "llama", {moe = experts}))
  local trainer = zt.trainer(zt.program(model), {separate = true})
  local own = {requests[1 + zt.world.rank], requests[4]}
  local expected = infer.engine{trainer = trainer}:generate(own)
  for _, more in ipairs{{}, {zero = {stage = 3}}} do
    local engine = zt.init_inference{model = trainer, config = with({moe = {ep_size = ranks, num_experts = {4}}}, more)}
    assert_same(engine:generate(own), expected)
  end
end

-- Each pair of ranks that share matrices has requests of its own, and some are done before the others. In one call more, all have
-- the same requests: the answers are those of the first call.
function TestRanks:test_replicas()
  if ranks < 4 then return end
  local trainer = cases.trainer "llama"
  for _, more in ipairs{{}, {zero = {stage = 3}}} do
    local engine = zt.init_inference{model = trainer, config = with({tensor_parallel = {tp_size = 2}}, more)}
    local together = engine:generate(requests)
    local own = zt.world.rank < 2 and {1, 2, 3} or {5}
    local list = {}
    for place, index in ipairs(own) do list[place] = requests[index] end
    for place, answer in ipairs(engine:generate(list)) do lu.assertEquals(answer.tokens, together[own[place]].tokens) end
  end
end

-- An engine of zt.initialize stands for its trainer, whose parameters are read in place.
function TestRanks:test_training_engine()
  local model = nn.gpt(cases.options "llama")
  local training = zt.initialize{model = model, config = {train_micro_batch_size_per_gpu = 1, optimizer = {type = "Adam"}}}
  local engine = zt.init_inference{model = training}
  lu.assertTrue(rawequal(engine.trainer, training.trainer))
  local before = engine:generate(requests)
  local tokens = tensor{cases.prompt(20, 2)}
  training:train_batch{tokens = tokens, labels = tokens}
  lu.assertNotEquals(cases.texts(engine:generate(requests)), cases.texts(before))
end

-- If one rank passes wrong options, all ranks raise an error and none waits, also before there is a mesh.
function TestRanks:test_wrong_options_on_one_rank()
  if ranks < 2 then return end
  local trainer = cases.trainer "llama"
  local good = {model = trainer, config = {tensor_parallel = {tp_size = 2}}}
  local wrong_rank = ranks - 1
  for _, wrong in ipairs{
    5, {}, {model = trainer, nonsense = 1}, {model = trainer, dtype = "int9"}, {model = trainer, config = "/none.json"},
    with(good, {model = "/none"}), {model = trainer, mp_size = 2 * ranks}, {model = trainer, max_out_tokens = -1},
    with(good, {mesh = 5}), {model = trainer, zero = {stage = 7}},
    with(good, {min_out_tokens = 1e6}), with(good, {moe = {moe_experts = {8}}}),
  } do
    local is_wrong = zt.world.rank == wrong_rank
    local is_made, message = pcall(zt.init_inference, is_wrong and wrong or good)
    lu.assertFalse(is_made)
    lu.assertEquals(message:find(("rank %d: "):format(wrong_rank), 1, true) == nil, is_wrong, message)
  end
  lu.assertErrorMsgContains("ranks 0 and 1 give different layouts, {tp_size = ", zt.init_inference,
                            zt.world.rank > 0 and {model = trainer} or good)
  lu.assertEquals(#zt.init_inference{model = trainer}:generate{{prompt = {1, 2}, max_tokens = 5}}[1].tokens, 5)
end

function TestRanks:test_own_mesh()
  local mesh = comm.mesh{dp = 1, tp = -1}
  local engine = zt.init_inference{model = LLAMA, mesh = mesh}
  lu.assertEquals(#engine:generate{{prompt = {1, 2}, max_tokens = 5}}[1].tokens, 5)
  refused("tensor_parallel.tp_size = 3, and the axis tp of the mesh has " .. ranks, {model = LLAMA, mesh = mesh, mp_size = 3})
end

local SUITES = {{"TestGenerate", TestGenerate}, {"TestOptions", TestOptions}, {"TestRanks", TestRanks}}
os.exit(lu.LuaUnit.new():runSuiteByInstances(SUITES))
