--- Functions of the scripts that learn from their own answers.
local experiment, models, records = require "parts.experiment", require "parts.models", require "parts.records"
local sort = require "parts.sort"
local zt = require "zt"
local ckpt, data, rlhf = require "zt.ckpt", require "zt.data", require "zt.rlhf"

local rollouts = {SHOWN = {"reward", "entropy", "length"}}

--- Returns the rows of the options: those of roll-outs with other defaults, and more. without: the set of those that have no
-- effect in this script, or nil.
function rollouts.options(defaults, more, without)
  local rows = {
    {"iterations", 60, "roll-outs, each with its updates", at_least = 1},
    {"prompts", defaults.prompts or 32, "prompts per iteration, over all ranks", at_least = 1},
    {"n", defaults.n or 1, "answers to each prompt", at_least = 1, peers = {"num_generations", "rloo_k"}},
    {"max_tokens", nil, "the most tokens of an answer", type = "integer", at_least = 1, task = sort.MAX_TOKENS,
     peers = {"max_answer_seq_len", "max_completion_length", "max_new_tokens", "response_length"}},
    {"max_prompt_tokens", nil, "most tokens of a prompt; longer ones are left out; default: what --seq leaves beside the answer",
     type = "integer", at_least = 1, peers = {"max_prompt_seq_len", "max_prompt_length"}},
    {"temperature", 1, "of the samples", type = "number", above = 0},
    {"updates", 1, "optimizer steps per epoch of an iteration", at_least = 1},
    {"epochs", 1, "how often the answers of an iteration are used", at_least = 1,
     peers = {"ppo_epochs", "num_ppo_epochs", "num_iterations"}},
    {"old", "sampler", "whose log-probabilities are the old ones: those of the engine, or of another forward of the trainer",
     one_of = {"trainer", "sampler"}},
    {"clip_ratio", 0.2, "the ratio of the policies counts from 1 - this to 1 + this", between = {0, 1},
     peers = {"epsilon", "cliprange"}},
    {"clip_high", nil, "the upper bound alone: 1 + this", type = "number", at_least = 0, peers = {"epsilon_high"}},
    {"reward", nil, "a .lua file that returns the reward function, or the run of a reward model", type = "string",
     peers = {"reward_model_path", "critic_model_name_or_path", "reward_funcs"}},
    {"rows", 32, "rows that a model computes at once when answers are scored", at_least = 1},
    {"tensor", 1, "ranks that share the matrices when answers are sampled", at_least = 1, peers = {"inference_tp_size"}},
    {"gather_layers", false, "at stage 3: sample with a layer's parameters gathered when it computes, not with whole ones"},
    {"release_cache", false, "free the memory for keys and values after each roll-out"},
    {"stop_kl", 0, "end the run when the KL divergence of an update is above this; 0: never", type = "number", at_least = 0},
    {"print_answers", 8, "answers of an iteration that samples.jsonl gets; 0: all", at_least = 0},
  }
  local kept = {}
  for _, list in ipairs{rows, more} do
    for _, row in ipairs(list) do
      if not without or not without[row[1]] then kept[#kept + 1] = row end
    end
  end
  return kept
end

-- Options of these that have an effect with others only, as of experiment.options.
local NEEDS = {
  {"gather_layers", function(o) return o.stage == 3 and o.tensor == 1 end,
   "is how --stage 3 samples without --tensor: change these, or leave it out"},
}

--- Returns the needs of the options: those of roll-outs, and more.
function rollouts.needs(more)
  local all = {}
  for _, list in ipairs{NEEDS, more} do
    for _, need in ipairs(list) do all[#all + 1] = need end
  end
  return all
end

--- Returns the stream of prompts and the path of their file. base: the model that answers them.
function rollouts.prompts(o, mesh, base)
  local path, room = records.data(o, mesh, "prompts"), o.seq - o.max_tokens
  if room < 1 then error(("--max-tokens %d leaves no room for a prompt in --seq %d"):format(o.max_tokens, o.seq), 0) end
  if o.max_prompt_tokens and o.max_prompt_tokens > room then
    error(("--max-prompt-tokens %d and --max-tokens %d are more than --seq %d: give less"):format(o.max_prompt_tokens,
      o.max_tokens, o.seq), 0)
  end
  local stream = data.prompts{path = path, batch = o.prompts, axis = mesh.dp, seed = o.seed, validation = 0,
                              max_prompt_tokens = o.max_prompt_tokens or room, phase = records.phase(o, 2)}
  models.check_tokenizer(base, stream.tokenizer, "the data have")
  return stream, path
end

--- Returns the reward of --reward: a function, or the trainer of a reward model. Without it, that of the task of sorting. base:
-- the model that is rewarded.
function rollouts.reward(o, mesh, base)
  if not o.reward then
    if o.data then error("give --reward: a .lua file that returns a reward function, or the run of a reward model", 0) end
    return sort.reward
  end
  if o.reward:find "%.lua$" then
    local fn = dofile(o.reward)
    o.reward_digest = ckpt.digest(zt.fs.read(o.reward)) -- a run that goes on with another one says so
    if type(fn) ~= "function" then error(("'%s' must return a function"):format(o.reward), 0) end
    return fn
  end
  local judge = ckpt.pretrained(o.reward)
  if judge.options.head ~= "value" then
    error(("--reward: '%s' is a model of language: give a run of reward.lua, or a .lua file with a function"):format(o.reward), 0)
  end
  models.check_tokenizer(base, judge.tokenizer, "the reward model has")
  return models.frozen(o, mesh, judge, "value")
end

--- Returns a sampler for the parameters of a trainer: begin() returns an engine that has its current ones, finish() ends the
-- phase. The engine reads them where they lie, or with --tensor or at stage 3 it has a layout of its own, which begin() fills.
function rollouts.sampler(o, mesh, trainer, tokenizer, stop_tokens)
  local layout
  if o.tensor > 1 or o.stage == 3 and not o.gather_layers then
    local own = mesh:refactor{dp = -1, tp = o.tensor, order = {"dp", "tp"}}
    layout = {mesh = own, tensor = o.tensor > 1 and own.tp or nil, data = own.dp}
  end
  local sampler, engine = {}, nil
  function sampler.begin()
    if not engine then engine = models.engine(o, trainer, tokenizer, stop_tokens, layout)
    elseif layout then engine:update(trainer) end
    return engine
  end
  function sampler.finish()
    if not o.release_cache then return end
    engine:release()
    engine = nil
  end
  return sampler
end

--- Samples the answers of an iteration.
function rollouts.answers(o, mesh, sampler, prompts, iteration)
  local engine = sampler.begin()
  local answers = rlhf.rollout{engine = engine, prompts = prompts, n = o.n, max_tokens = o.max_tokens,
                               temperature = o.temperature, seed = o.seed, iteration = iteration, mesh = mesh}
  sampler.finish()
  return answers
end

--- Makes the steps of a trainer over the answers. Returns the result of the last one.
function rollouts.update(o, answers, trainer, iteration, ptx)
  local result
  for batch in rlhf.batches(answers, {trainer = trainer, updates = o.updates, epochs = o.epochs, seq = o.seq, ptx = ptx,
                                      seed = o.seed + iteration}) do
    result = trainer:step(batch)
  end
  return result
end

--- The same for actor and critic at once, which both update or neither. Returns the results of the last steps.
function rollouts.update_both(o, answers, actor, critic, iteration, ptx)
  local function of(trainer, text)
    return rlhf.batches(answers, {trainer = trainer, updates = o.updates, epochs = o.epochs, seq = o.seq, ptx = text,
                                  seed = o.seed + iteration})
  end
  local of_critic, results = of(critic), nil
  for batch in of(actor, ptx) do results = rlhf.align_overflow{{actor, batch}, {critic, of_critic()}} end
  return results[1], results[2]
end

local warned, warned_of_length = {}, {} -- runs

-- Warns, once per run, if the policy hardly draws anything but one answer, or if many answers are cut.
local function warn_of_answers(run, answers, iteration)
  local entropy, truncated = answers.metrics.entropy, answers.metrics.truncated
  if truncated > 0.2 and not warned_of_length[run.path] then
    warned_of_length[run.path] = true
    zt.log.warn("iteration %d: %.0f %% of the answers were not finished within --max-tokens", iteration, 100 * truncated)
  end
  if entropy < 0.01 and not warned[run.path] then
    warned[run.path] = true
    zt.log.warn("iteration %d: the entropy of the answers has fallen to %.4f nats per token: the policy hardly explores",
                iteration, entropy)
  end
end

--- Logs an iteration: the metrics of its answers, and the results of updates by name.
function rollouts.log(o, run, samples, iteration, answers, results)
  local values = {}
  for key, value in pairs(answers.metrics) do values[key] = value end
  for name, result in pairs(results) do
    values[name .. "_loss"], values[name .. "_grad_norm"] = result.loss, result.grad_norm
    for key, value in pairs(result.stats or {}) do values[key] = value end
    values.loss = name == "policy" and result.loss or values.loss
  end
  run:log(iteration, values)
  samples:add(iteration, answers)
  if zt.world.rank == 0 then warn_of_answers(run, answers, iteration) end
  local moved = values["policy.moved"]
  if moved and (o.stop_kl or 0) > 0 and moved > o.stop_kl then
    error(("iteration %d: the policy has moved by a KL divergence of %.4g in its update, and stop_kl is %.4g: lower the rate or "
      .. "give fewer updates"):format(iteration, moved, o.stop_kl), 0)
  end
end

--- Saves the model with the averages of the actor's parameters (rlhf.ema) in the folder ema of the run.
function rollouts.save_average(o, mesh, run, base, actor)
  local average = models.frozen(o, mesh, base, "logprobs", {temperature = o.temperature})
  rlhf.take_ema(actor, average)
  ckpt.save(run.path .. "/ema", {trainer = average}, {step = o.iterations, tokenizer = o.tokenizer or base})
  experiment.say("the averages of the parameters are in %s/ema", run.path)
end

--- Ends the run of a policy (experiment.finish).
function rollouts.finish(o, mesh, run, sampler, more)
  experiment.finish(o, mesh, run, sampler.begin, o.iterations, more)
end

return rollouts
