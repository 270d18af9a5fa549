--- A small loop of GRPO on real models: roll-outs, scores by a reference, a critic, a reward model and a function, and updates.
local zt = require "zt"
local infer, nn, optim, pipe = require "zt.infer", require "zt.nn", require "zt.optim", require "zt.pipe"
local rlhf, zero = require "zt.rlhf", require "zt.zero"

local small_loop = {VOCAB = 11, STOP = 10, SEQ = 24}

-- The fields with a number per token of the batches of this loop.
local FIELDS = {"tokens", "labels", "positions", "segments", "padding", "sequence", "lengths", "sampled_logprobs", "old_logprobs",
                "ref_logprobs", "old_values", "correction", "advantages"}

--- Returns the options of nn.gpt with more of them.
function small_loop.options(more)
  local all = {family = "llama", layers = 2, hidden = 16, heads = 4, kv_heads = 2, vocab = small_loop.VOCAB, seq = small_loop.SEQ,
               head = "logprobs", std = 0.4, seed = 1}
  for key, value in pairs(more or {}) do all[key] = value end
  return all
end

--- Returns a trainer. how: {mesh =, stage =, tensor =, pipeline =, context = axes, precision =, micro_batches =}, or {} for one
-- rank. more: options of the model. loss: a layer, for a model that is trained.
function small_loop.trainer(how, more, loss)
  local options = small_loop.options(more)
  options.tensor = how.tensor
  options.context = how.context and {axis = how.context, fields = FIELDS}
  local model = nn.gpt(options)
  if loss then model = model:append(loss, "policy") end
  local program = zt.program(model, {precision = how.precision or "fp64", micro_batches = loss and how.micro_batches or 1})
  if how.pipeline then program = program:apply(pipe.split{axis = how.pipeline}) end
  if how.mesh then program = program:apply(zero.shard{axis = how.mesh.dp, stage = how.stage or 0}) end
  return zt.trainer(program, {optimizer = loss and optim.sgd{lr = 0.05, momentum = 0.5} or nil, separate = not how.mesh})
end

local PROMPTS = {{1, 2, 3}, {4}, {5, 6, 7, 8}, {9, 9}, {3, 1}}

--- Returns the first `count` prompts, or those of them that a data-parallel rank has.
function small_loop.prompts(count, dp)
  local prompts, sample = {}, {}
  for i = 1, count do
    if not dp or i % dp.size == dp.rank then prompts[#prompts + 1], sample[#sample + 1] = PROMPTS[i], 40 + i end
  end
  return {prompts = prompts, sample = zt.tensor(sample, {dtype = "int64"})}
end

-- The number of tokens 3 less that of tokens 4. An answer that ends at once is dropped.
local function reward(_, _, _, tokens)
  if tokens:numel() == 1 then return nil end
  return tokens:eq(3):sum():item() - tokens:eq(4):sum():item()
end

--- Runs three iterations. how: as of small_loop.trainer, and {count = prompts, engine = more options of the engine, world = the
-- mesh whose ranks share the roll-outs}. Returns a list of what each iteration has found, and the actor.
function small_loop.run(how)
  local actor = small_loop.trainer(how, nil, rlhf.loss.grpo{kl = {}})
  local reference = small_loop.trainer(how, {seed = 2})
  local critic, judge = small_loop.trainer(how, {head = "value", seed = 3}), small_loop.trainer(how, {head = "value", seed = 4})
  local options = {trainer = actor, cache = {memory = 2 ^ 22}, stop_tokens = {small_loop.STOP}}
  for key, value in pairs(how.engine or {}) do options[key] = value end
  local engine, found = infer.engine(options), {}
  for iteration = 1, 3 do
    if how.engine then engine:update(actor) end
    local answers = rlhf.rollout{engine = engine, prompts = small_loop.prompts(how.count or #PROMPTS, how.mesh and how.mesh.dp),
                                 n = 3, max_tokens = 6, iteration = iteration, mesh = how.world or how.mesh}
    rlhf.score(answers, {reward = judge})
    local judged = answers.rewards
    rlhf.score(answers, {actor = actor, reference = reference, critic = critic, reward = reward, is = {}, rows = 3})
    rlhf.advantages(answers, {kind = "group"})
    local losses = {}
    for batch in rlhf.batches(answers, {trainer = actor, updates = 2, epochs = 2, seed = iteration}) do
      losses[#losses + 1] = actor:step(batch).loss
    end
    found[iteration] = {tokens = answers.answers, offsets = answers.answer_offsets, judged = judged, rewards = answers.rewards,
                        losses = zt.tensor(losses, {dtype = "float64"}), of_tokens = answers.of_tokens, answers = answers}
  end
  return found, actor, engine
end

return small_loop
