-- Where the time of an iteration of GRPO goes: sampling, the forward that scores, the update, and all else.
--
--   ztoolkit run -n 2 bench/rlhf/iteration.lua --layers 8 --hidden 512 --vocab 4096
package.path = "bench/?.lua;" .. package.path
local zt = require "zt"
local comm, infer, nn, optim = require "zt.comm", require "zt.infer", require "zt.nn", require "zt.optim"
local rlhf, zero = require "zt.rlhf", require "zt.zero"

local o = zt.cli{name = "iteration", about = "Times the parts of an iteration of GRPO.", options = {
  {"layers", 4, "blocks", at_least = 1}, {"hidden", 128, "width", at_least = 1}, {"heads", 4, "attention heads", at_least = 1},
  {"vocab", 256, "tokens of the vocabulary", at_least = 2}, {"prompts", 8, "prompts per iteration", at_least = 1},
  {"prompt", 32, "tokens of a prompt", at_least = 1}, {"n", 8, "answers to each", at_least = 1},
  {"answer", 64, "tokens of an answer", at_least = 1}, {"iterations", 5, "after the first", at_least = 1},
}}
local mesh = comm.mesh{dp = -1}
local seq = o.prompt + o.answer
local model = nn.gpt{layers = o.layers, hidden = o.hidden, heads = o.heads, vocab = o.vocab, seq = seq, family = "llama",
                     head = "logprobs", seed = 1}:append(rlhf.loss.grpo{}, "policy")
local actor = zt.trainer(zt.program(model):apply(zero.shard{axis = mesh.dp, stage = 1}), {optimizer = optim.adamw{lr = 1e-5}})
local engine = infer.engine{trainer = actor, max_sequences = 64, token_budget = 1024}

-- Seconds spent in a method of an object since the last call of the returned function.
local function watched(object, name)
  local method, seconds = object[name], 0
  rawset(object, name, function(...)
    local began = zt.now()
    local result = method(...)
    seconds = seconds + zt.now() - began
    return result
  end)
  return function()
    local spent = seconds
    seconds = 0
    return spent
  end
end

local function prompts_of(iteration)
  local draw = zt.generator(iteration + 1)
  local tokens = zt.randint(o.vocab, {o.prompts, o.prompt}, {generator = draw}):to "int64"
  local list = {}
  for i = 1, o.prompts do list[i] = tokens[i - 1] end
  return {prompts = list, sample = zt.arange(o.prompts):to "int64" + o.prompts * iteration}
end

local spent = watched(engine, "generate")
local sums = {sampling = 0, rollout = 0, score = 0, advantages = 0, batches = 0, update = 0, all = 0}
for iteration = 0, o.iterations do
  local before, began = engine:stats().seconds, zt.now()
  local answers = rlhf.rollout{engine = engine, prompts = prompts_of(iteration), n = o.n, max_tokens = o.answer,
                               min_tokens = o.answer, iteration = iteration, mesh = mesh}
  local rolled = zt.now()
  rlhf.score(answers, {actor = actor, rows = 8, reward = function(_, _, _, tokens) return tokens[0]:item() % 2 end})
  local scored = zt.now()
  rlhf.advantages(answers, {kind = "group"})
  local estimated, stepping = zt.now(), 0
  for batch in rlhf.batches(answers, {trainer = actor}) do
    local step = zt.now()
    actor:step(batch)
    stepping = stepping + zt.now() - step
  end
  local ended = zt.now()
  if iteration > 0 then
    sums.sampling = sums.sampling + engine:stats().seconds - before
    sums.rollout = sums.rollout + rolled - began
    sums.generate = (sums.generate or 0) + spent()
    sums.score, sums.advantages = sums.score + scored - rolled, sums.advantages + estimated - scored
    sums.update, sums.batches = sums.update + stepping, sums.batches + ended - estimated - stepping
    sums.all = sums.all + ended - began
  else
    spent()
  end
end
if zt.world.rank == 0 then
  local lines = {{"part", "ms", "share"}}
  for _, name in ipairs{"sampling", "generate", "rollout", "score", "advantages", "update", "batches", "all"} do
    lines[#lines + 1] = {name, ("%.1f"):format(1000 * sums[name] / o.iterations), ("%.1f %%"):format(100 * sums[name] / sums.all)}
  end
  print(zt.text.columns(lines))
end
