-- Runs a small loop of GRPO on several layouts, which must draw the same samples and end with the same weights as one rank. Also
-- runs on two, three and four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, infer, rlhf = require "zt.comm", require "zt.infer", require "zt.rlhf"
local small_loop = require "rlhf.small_loop"

local BOUND = 1e-12
local world = comm.mesh{dp = -1}

-- By number of ranks: how the actor is laid out, and the engine, if not as the actor.
local LAYOUTS = {
  {{mesh = {dp = 1}, stage = 3, micro_batches = 2}},
  {{mesh = {dp = 2}, stage = 3, micro_batches = 2}, {mesh = {dp = 2}, stage = 1, count = 1}, {mesh = {dp = 1, tp = 2}},
   {mesh = {pp = 2, dp = 1}, micro_batches = 3}, {mesh = {dp = 2}, stage = 3, engine = "tensor"},
   {mesh = {dp = 1, cp = 2}, micro_batches = 2}},
  {{mesh = {dp = 3}, stage = 3}, {mesh = {dp = 3}, stage = 2, count = 2, micro_batches = 2}},
  {{mesh = {dp = 2, tp = 2}, stage = 3, engine = "tensor"}, {mesh = {pp = 2, dp = 2}, stage = 1, micro_batches = 2}},
}

local function assert_close(got, wanted, what)
  lu.assertEquals(got:numel(), wanted:numel(), what)
  if got:numel() == 0 then return end
  local largest = math.max(wanted:abs():max():item(), 1)
  local off = (got - wanted):abs():max():item() / largest
  lu.assertTrue(off <= BOUND, ("%s is %.3g off"):format(what, off))
end

local function assert_like(found, wanted, actor, alone, what)
  for iteration, one in ipairs(wanted) do
    local other, where = found[iteration], ("%s, iteration %d: "):format(what, iteration)
    lu.assertTrue(other.tokens:equal(one.tokens) and other.offsets:equal(one.offsets), where .. "other samples")
    for _, name in ipairs{"judged", "rewards", "losses"} do assert_close(other[name], one[name], where .. name) end
    for name, numbers in pairs(one.of_tokens) do assert_close(other.of_tokens[name], numbers, where .. name) end
  end
  for _, name in ipairs(actor:parameters()) do
    assert_close(actor:parameter(name):flatten(), alone:parameter(name):flatten(), what .. ": " .. name)
  end
end

local TestRollout = {}

for number, layout in ipairs(LAYOUTS[zt.world.size]) do
  TestRollout["test_layout_" .. number] = function()
    local mesh = comm.mesh(layout.mesh)
    local how = {mesh = mesh, stage = layout.stage, tensor = layout.mesh.tp and mesh.tp, pipeline = layout.mesh.pp and mesh.pp,
                 context = layout.mesh.cp and mesh.cp, count = layout.count, micro_batches = layout.micro_batches}
    if layout.engine then
      local other = mesh:refactor{dp = 1, tp = -1}
      how.engine = {mesh = other, tensor = other.tp}
    end
    local wanted, alone = small_loop.run{world = world, count = layout.count}
    local found, actor = small_loop.run(how)
    assert_like(found, wanted, actor, alone, "layout " .. number)
  end
end

-- What a rank draws by itself, for all prompts, from the seeds.
function TestRollout.test_samples_are_those_of_requests()
  local actor = small_loop.trainer({precision = "fp32"}, nil, rlhf.loss.grpo{})
  local engine = infer.engine{trainer = actor, cache = {memory = 2 ^ 22}, stop_tokens = {small_loop.STOP}}
  local given = small_loop.prompts(5)
  local answers = rlhf.rollout{engine = engine, prompts = given, n = 2, max_tokens = 6, min_tokens = 1, seed = 5, iteration = 7,
                               temperature = 0.8, mesh = world}
  local requests = {}
  for i, prompt in ipairs(given.prompts) do
    requests[i] = {prompt = prompt, n = 2, max_tokens = 6, min_tokens = 1, seed = rlhf.seed_of(5, 7, given.sample[i - 1]:item()),
                   temperature = 0.8, logprobs = 0}
  end
  lu.assertEquals(answers.count, 10)
  local truncated = 0
  for _, drawn in ipairs(engine:generate(requests)) do
    local i = 2 * (drawn.request - 1) + drawn.copy + 1
    lu.assertEquals(answers:answer(i):tolist(), drawn.tokens)
    lu.assertEquals(answers:prompt(i):tolist(), given.prompts[drawn.request])
    lu.assertEquals(answers.groups[i - 1]:item(), 40 + drawn.request)
    lu.assertEquals(answers.truncated[i], drawn.finish_reason == "length")
    truncated = truncated + (answers.truncated[i] and 1 or 0)
    local first, count = answers:span(i)
    lu.assertEquals(count, #drawn.tokens)
    local rounded = zt.tensor(drawn.logprobs[1].sampled_logprob, {dtype = "float32"}):item()
    lu.assertEquals(answers.of_tokens.sampled_logprobs[first]:item(), rounded)
  end
  lu.assertEquals(answers.metrics.truncated, truncated / 10)
  lu.assertEquals(answers.metrics.length, answers.token_count / 10)
end

-- One update per roll-out, and a provider of matmuls whose rows do not depend on each other: the policy is the sampler.
function TestRollout.test_ratios_are_exactly_one()
  zt.gemm{provider = "dots"}
  local mesh = comm.mesh{dp = -1}
  for number, precision in ipairs{"fp32", "bf16"} do
    local level = number == 1 and "token" or "sequence"
    local how = {mesh = mesh, stage = 1, precision = precision, micro_batches = 2}
    local actor = small_loop.trainer(how, {temperature = 0.7}, rlhf.loss.grpo{level = level})
    local engine = infer.engine{trainer = actor, cache = {memory = 2 ^ 22}, stop_tokens = {small_loop.STOP}}
    for iteration = 1, 2 do
      local answers = rlhf.rollout{engine = engine, prompts = small_loop.prompts(5, mesh.dp), n = 4, max_tokens = 6,
                                   iteration = iteration, temperature = 0.7}
      rlhf.score(answers, {actor = actor, old = "sampler", reward = function(_, _, _, tokens) return tokens:numel() end})
      rlhf.advantages(answers, {kind = "group"})
      for batch in rlhf.batches(answers, {trainer = actor, padding = iteration == 1 and "packed" or "left"}) do
        local result = actor:step(batch)
        lu.assertEquals({result.stats["policy.ratio"], result.stats["policy.moved"], result.stats["policy.clipped"]}, {1, 0, 0})
        lu.assertTrue(result.grad_norm > 0)
      end
    end
  end
  zt.gemm{provider = "default"}
end

-- A run twice, with optimizers of its own, gives the same bits.
function TestRollout.test_twice_gives_equal_bits()
  local mesh = comm.mesh{dp = -1}
  local first, one = small_loop.run{mesh = mesh, stage = 1, precision = "fp32"}
  local second, two = small_loop.run{mesh = mesh, stage = 1, precision = "fp32"}
  for iteration, found in ipairs(first) do
    lu.assertTrue(found.tokens:equal(second[iteration].tokens))
    for name, numbers in pairs(found.of_tokens) do lu.assertTrue(numbers:equal(second[iteration].of_tokens[name]), name) end
  end
  for _, name in ipairs(one:parameters()) do lu.assertTrue(one:parameter(name):equal(two:parameter(name)), name) end
end

-- The divergence of pairs is one of all rows: an axis whose ranks have the same ones does not do.
function TestRollout.test_the_axis_of_a_divergence()
  if zt.world.size < 4 then return end
  local mesh = comm.mesh{dp = 2, tp = 2}
  local how = {mesh = mesh, tensor = mesh.tp}
  local policy, reference = small_loop.trainer(how, nil, rlhf.loss.dpo{kind = "kto"}), small_loop.trainer(how, {seed = 2})
  local function divergence(axis)
    local tokens = zt.full({1, 8}, mesh.dp.rank + 1, {dtype = "int64"})
    local batch = {tokens = tokens, labels = tokens, sequence = tokens * 0}
    return rlhf.reference(batch, {reference = reference, policy = policy, axis = axis}).kl[0]:item()
  end
  lu.assertErrorMsgContains("'tp', have the same part of the batch", divergence, mesh.tp)
  lu.assertTrue(divergence(mesh.dp) >= 0)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestRollout", TestRollout}})
