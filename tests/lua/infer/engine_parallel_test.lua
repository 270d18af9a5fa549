-- Tests zt.infer with models that are cut over ranks. Also runs on two and four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
require "zt.gemm"
local comm, infer, moe, nn = require "zt.comm", require "zt.infer", require "zt.moe", require "zt.nn"
local pipe, zero = require "zt.pipe", require "zt.zero"
local cases = require "infer.engine_cases"

local rank, ranks = zt.world.rank, zt.world.size
local with = cases.with
local requests = cases.requests(7)

local function engine_of(program, more)
  return infer.engine(with({trainer = zt.trainer(program, {separate = true})}, more or {}))
end

-- Returns what the requests get on one rank.
local function on_one_rank(model, precision) return engine_of(zt.program(model, {precision = precision})):generate(requests) end

local function assert_same(got, expected)
  lu.assertEquals(cases.texts(got), cases.texts(expected))
end

local TestParallel = {}

-- A sum over ranks is rounded otherwise, so texts are compared in fp64, where no draw is that close.
function TestParallel:test_tensor_parallel()
  for _, kind in ipairs{"gpt2", "llama", "qwen3"} do
    local mesh = comm.mesh{dp = 1, tp = -1}
    local model = nn.gpt(with(cases.options(kind), {tensor = mesh.tp}))
    local program = zt.program(model, {precision = "fp64"}):apply(zero.shard{axis = mesh.dp, stage = 0})
    local expected = on_one_rank(nn.gpt(cases.options(kind)), "fp64")
    for place, answer in ipairs(engine_of(program):generate(requests)) do
      lu.assertEquals(answer.tokens, expected[place].tokens)
      for i, of in ipairs(answer.logprobs) do lu.assertAlmostEquals(of.logprob, expected[place].logprobs[i].logprob, 1e-11) end
    end
  end
end

-- In fp32 and bf16, each rank by itself has the bits of whatever else runs.
function TestParallel:test_tensor_parallel_is_invariant()
  local mesh = comm.mesh{dp = 1, tp = -1}
  local model = nn.gpt(with(cases.options "llama", {tensor = mesh.tp}))
  local program = zt.program(model, {precision = "bf16"}):apply(zero.shard{axis = mesh.dp, stage = 0})
  local expected = engine_of(program, {max_sequences = 1, cache = {prefix = false}}):generate(requests)
  local other = {token_budget = 64, cache = {block = 8}, speculative = {match = 1}}
  assert_same(engine_of(program, other):generate(requests), expected)
end

-- What is wrong on one rank only is an error on all ranks that compute together, and the engine goes on.
function TestParallel:test_an_error_on_one_rank()
  local mesh = comm.mesh{dp = 1, tp = -1}
  local program = zt.program(nn.gpt(with(cases.options "llama", {tensor = mesh.tp})), {precision = "fp64"})
    :apply(zero.shard{axis = mesh.dp, stage = 0})
  local engine = engine_of(program)
  local good = {prompt = {1, 2, 3}, max_tokens = 5}
  local expected = engine:generate(good)[1].tokens
  for bad = 0, ranks - 1 do
    local here = rank == bad
    lu.assertErrorMsgContains("top_p", engine.generate, engine, {good, here and {prompt = {1}, top_p = 0} or good})
    lu.assertErrorMsgContains("logit_bias", engine.submit, engine, here and {prompt = {1}, logit_bias = {x = 1}} or good)
    lu.assertErrorMsgContains("engine:generate", engine.generate, engine, here and 5 or good)
    lu.assertEquals(engine:generate(good)[1].tokens, expected)
  end
end

function TestParallel:test_pipelines_have_the_bits_of_one_rank()
  for _, micro_batches in ipairs{1, 3} do
    local mesh = comm.mesh{pp = -1}
    local options = with(cases.options "llama", {layers = 4})
    local program = zt.program(nn.gpt(options), {micro_batches = 4, eval_micro_batches = micro_batches})
      :apply(pipe.split{axis = mesh.pp})
    local engine = engine_of(program, {speculative = {tokens = 2, match = 1}})
    assert_same(engine:generate(requests), on_one_rank(nn.gpt(options)))
  end
end

-- Each replica has its own requests, and some are done before the others.
local function assert_replicas(program, model)
  local own = {}
  for place = 1 + rank, #requests, ranks do own[#own + 1] = requests[place] end
  if rank == 1 then own = {} end
  local expected = engine_of(zt.program(model)):generate(own)
  assert_same(engine_of(program):generate(own), expected)
end

function TestParallel:test_replicas_gather_sharded_parameters_together()
  local mesh = comm.mesh{dp = -1}
  for _, stage in ipairs{0, 3} do
    local program = zt.program(nn.gpt(cases.options "llama")):apply(zero.shard{axis = mesh.dp, stage = stage})
    assert_replicas(program, nn.gpt(cases.options "llama"))
  end
end

local function mixture(axis)
  local experts = {experts = 4, top_k = 2, ffn = 40, axis = axis, shared = {ffn = 24, gate = true}}
  return moe.gpt(with(cases.options "llama", {moe = experts}))
end

function TestParallel:test_replicas_reach_the_experts_of_others_together()
  local mesh = comm.mesh{dp = -1}
  assert_replicas(zt.program(mixture(mesh.dp)):apply(zero.shard{axis = mesh.dp, stage = 0}), mixture())
end

-- Experts with a capacity drop tokens: which ones depends on the others.
function TestParallel:test_experts_with_a_capacity_are_refused()
  local model = moe.gpt(with(cases.options "llama", {moe = {experts = 4, ffn = 40, router = {capacity = {}}}}))
  lu.assertErrorMsgContains("may read several tokens at once", engine_of, zt.program(model))
end

-- A trainer shards its parameters over all ranks; an engine has them in another layout, and takes them again after steps.
function TestParallel:test_an_engine_takes_parameters_of_another_layout()
  local optim = require "zt.optim"
  local mesh = comm.mesh{dp = -1}
  local other = mesh:refactor{tp = -1}
  local program = zt.program(nn.gpt(cases.options "llama"), {precision = "fp64"}):apply(zero.shard{axis = mesh.dp, stage = 3})
  local actor = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}})
  local engine = infer.engine{trainer = actor, mesh = other, tensor = other.tp}
  local function assert_like_actor()
    local own = engine_of(program) -- over all ranks, each with all requests
    own:update(actor)
    local expected = own:generate(requests)
    for place, answer in ipairs(engine:generate(requests)) do lu.assertEquals(answer.tokens, expected[place].tokens) end
    return expected
  end
  local before = assert_like_actor()
  local tokens = zt.tensor({cases.prompt(20, 2)}, {dtype = "int64"})
  actor:step{tokens = tokens, labels = tokens}
  engine:update(actor)
  lu.assertNotEquals(cases.texts(assert_like_actor()), cases.texts(before))
  local half = infer.engine{trainer = actor, dtype = "fp32", mesh = other, tensor = other.tp}
  lu.assertEquals(#half:generate(requests), #requests)
end

function TestParallel:test_several_axes()
  if ranks < 4 then return end
  local mesh = comm.mesh{dp = -1, pp = 2, tp = 2}
  local options = with(cases.options "llama", {layers = 4, tensor = mesh.tp})
  local program = zt.program(nn.gpt(options), {micro_batches = 2, precision = "fp64"})
    :apply(pipe.split{axis = mesh.pp}):apply(zero.shard{axis = mesh.dp, stage = 0})
  options.tensor = nil
  local expected = on_one_rank(nn.gpt(options), "fp64")
  for place, answer in ipairs(engine_of(program):generate(requests)) do
    lu.assertEquals(answer.tokens, expected[place].tokens)
  end
end

-- What is wrong on one rank is an error on all, before they wait for each other.
function TestParallel:test_wrong_options_on_one_rank()
  local mesh = comm.mesh{dp = -1}
  local trainer = zt.trainer(zt.program(nn.gpt(cases.options "llama"), {mesh = mesh}), {separate = true})
  local wrong_rank = zt.world.size - 1
  local mistakes = {{token_budgt = 3}, {max_sequences = 0}, {cache = {blok = 3}}, {token_budget = 1}, {model = "/none"},
                    {shard = 5}, {shard = "x"}, {shard = true}, {offload = 5}}
  for place, wrong in ipairs(mistakes) do
    for _, layout in ipairs{{trainer = trainer}, {trainer = trainer, mesh = mesh, data = mesh.dp}} do
      if not (wrong.model and not layout.mesh) then
        local is_wrong = zt.world.rank == wrong_rank
        local is_made, message = pcall(infer.engine, with(layout, is_wrong and wrong or {}))
        lu.assertFalse(is_made, place)
        lu.assertNotStrContains(tostring(message), "zt/infer/")
        local names_rank = tostring(message):find(("rank[s 0and]* %d"):format(wrong_rank)) ~= nil
        lu.assertTrue(names_rank or is_wrong, tostring(message))
      end
    end
  end
end

-- Ranks that compute together must have the same options, and the same number of requests.
function TestParallel:test_ranks_differ()
  if ranks < 2 then return end
  local mesh = comm.mesh{tp = 2, dp = -1}
  local options = with(cases.options "llama", {hidden = 64, head_dim = 16, ffn = 128})
  local trainer = zt.trainer(zt.program(nn.gpt(options)), {separate = true})
  local is_other = zt.world.rank == 1
  for _, other in ipairs{{weights = {format = "int8", group = 32}}, {cache = {memory = 2 ^ 22, dtype = "int8"}},
                         {numerics = "fast"}, {max_sequences = 3}} do
    local given = with({trainer = trainer, mesh = mesh, tensor = mesh.tp, data = mesh.dp}, is_other and other or {})
    lu.assertErrorMsgContains("give different options, {", infer.engine, given)
  end
  local engine = infer.engine{trainer = trainer, mesh = mesh, tensor = mesh.tp, data = mesh.dp}
  local more = {}
  for place = 1, is_other and 2 or 1 do more[place] = {prompt = {place}, max_tokens = 2} end
  local is_done, message = pcall(engine.generate, engine, more)
  lu.assertEquals(is_done, zt.world.rank > 1)
  if zt.world.rank < 2 then lu.assertStrContains(message, "all ranks of a replica give the same") end
  lu.assertEquals(#engine:generate({{prompt = {1}, max_tokens = 2}}), 1)
end

-- A replica whose requests are wrong takes part in the steps of the others before its error.
function TestParallel:test_a_wrong_request_of_a_coupled_replica()
  local mesh = comm.mesh{dp = -1}
  local program = zt.program(nn.gpt(cases.options "llama"), {mesh = mesh}):apply(zero.shard{axis = mesh.dp, stage = 3})
  local engine = engine_of(program)
  local is_wrong = zt.world.rank == zt.world.size - 1
  local is_done, result = pcall(engine.generate, engine, {{prompt = is_wrong and {cases.VOCAB} or {1, 2, 3}, max_tokens = 5}})
  lu.assertEquals(is_done, not is_wrong)
  if is_wrong then lu.assertStrContains(result, "requests[1].prompt") else lu.assertEquals(#result[1].tokens, 5) end
  lu.assertEquals(#engine:generate{prompt = {4, 5}, max_tokens = 3}[1].tokens, 3)
end

-- The first rank's requests are those that count, so all ranks stop at once.
function TestParallel:test_an_abort_reaches_all_ranks()
  local mesh = comm.mesh{pp = -1}
  local options = with(cases.options "llama", {layers = 4})
  local engine = engine_of(zt.program(nn.gpt(options), {micro_batches = 4}):apply(pipe.split{axis = mesh.pp}))
  local number = engine:submit{prompt = cases.prompt(5, 1), max_tokens = 50}
  engine:step()
  engine:abort(number)
  lu.assertEquals(engine:step().answers[1].finish_reason, "abort")
  lu.assertNil(engine:step())
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestParallel", TestParallel}})
