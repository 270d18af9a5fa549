-- ztoolkit infer bench: the rates of prompts and answers of a model, beside the limit that reading memory sets.

local cli = require "zt.cli"
local core = require "zt.core"
local fail = require "zt.fail"
local infer = require "zt.infer"
local parameters = require "zt.ckpt.pretrained.parameters"
local text = require "zt.text"

local BYTES = {fp32 = 4, bf16 = 2, fp16 = 2, fp64 = 8}

-- Returns random tokens of a prompt. No two prompts begin alike.
local function prompt_of(length, vocabulary, seed)
  return core.randint(vocabulary, {length}, {generator = core.generator(seed)})
end

-- Returns the bytes of parameters that a step reads for `count` answers: all, but not of an embedding that is not the head, too,
-- and of experts only those that may be chosen.
local function weight_bytes(engine, options, dtype, count)
  local bytes, is_tied = 0, parameters.is_tied(engine.trainer.model)
  for _, parameter in ipairs(engine.trainer.model:parameters()) do
    local share = 1
    if parameter.name:find "%.experts%." then
      share = math.min(1, count * (options.moe.top_k or 2) / parameter.shape[1])
    elseif parameter.name:find "^embedding%." and not (is_tied and parameter.name == "embedding.weight") then
      share = 0
    end
    local of_all = parameter.format == "plain" and parameter.numel * BYTES[dtype] or parameter.room
    bytes = bytes + of_all * share
  end
  return bytes
end

-- Runs requests and returns what the engine's statistics have gained.
local function run(engine, requests)
  local before, gained = engine:stats(), {}
  for _, answer in ipairs(engine:generate(requests)) do
    if answer.error then fail("%s", answer.error) end
  end
  for key, value in pairs(engine:stats()) do gained[key] = value - before[key] end
  return gained
end

local function prompt_row(engine, length, seed)
  local best
  for repetition = 1, 3 do
    local prompt = prompt_of(length, engine.vocabulary, seed + repetition)
    local seconds = run(engine, {prompt = prompt, max_tokens = 1}).seconds
    best = math.min(best or seconds, seconds)
  end
  return {tostring(length), ("%.1f"):format(length / best), ("%.2f"):format(best * 1e3)}
end

-- Answers `count` prompts of `context` tokens. Only the steps without a prompt count. Returns nil, and says so, if no step has
-- all of the answers.
local function answer_row(engine, o, count, bytes_of, rate)
  local requests = {}
  for place = 1, count do
    requests[place] = {prompt = prompt_of(o.context, engine.vocabulary, 1000 * count + place), max_tokens = o.tokens,
                       temperature = 0, seed = place, ignore_eos = true}
  end
  for _, request in ipairs(requests) do engine:submit(request) end
  local steps, seconds, tokens = 0, 0, 0
  repeat
    local before = engine:stats()
    local step = engine:step()
    local after = engine:stats()
    if step and after.prompt_tokens == before.prompt_tokens and after.running == count then
      steps, seconds = steps + 1, seconds + after.seconds - before.seconds
      tokens = tokens + after.new_tokens - before.new_tokens
    end
  until not step
  if steps == 0 then
    print(("left out: %d answers, because the first of them end before the prompts of all, %d tokens each, are read: raise "
      .. "--tokens, which is %d, or lower --context"):format(count, o.context, o.tokens))
    return nil
  end
  local of_step, bytes = seconds / steps, bytes_of(count, o.context + o.tokens / 2)
  return {tostring(count), ("%.1f"):format(tokens / seconds), ("%.2f"):format(of_step * 1e3), text.bytes(math.floor(bytes)),
          ("%.0f %%"):format(100 * bytes / of_step / rate)}
end

local function check_counts(name, counts)
  if #counts == 0 then fail("--%s is empty: give numbers such as 1,4,16", name) end
  for _, count in ipairs(counts) do
    if type(count) ~= "number" or count < 1 or count % 1 ~= 0 then
      fail("--%s must be numbers of at least 1, such as 1,4,16, got '%s'", name, tostring(count))
    end
  end
end

-- The defaults of --prompts, and of --context and --tokens. A model with a short context has smaller ones.
local PROMPTS, TOKENS = {128, 512}, 32

-- Returns the prompts to measure. Of the default ones leaves out, and says so, those that the context of the model is too short
-- for; if that is all of them, returns the longest that fits.
local function prompts_of(o, longest)
  if o.prompts then
    for _, length in ipairs(o.prompts) do
      if length > longest then
        fail("--prompts: a prompt of %d tokens and its answer exceed the model's context of %d", length, longest + 1)
      end
    end
    return o.prompts
  end
  local prompts, left_out = {}, {}
  for _, length in ipairs(PROMPTS) do table.insert(length <= longest and prompts or left_out, length) end
  if #prompts == 0 then prompts[1] = longest end
  if #left_out > 0 then
    print(("left out: prompts of %s tokens, because the model's context has %d"):format(table.concat(left_out, " and "),
                                                                                       longest + 1))
  end
  return prompts
end

-- Returns the tokens before the answers, and those of each answer. By default both have half of a short context, or what the
-- other one leaves.
local function answers_of(o, most)
  local context = o.context or math.max(1, math.min(TOKENS, most - (o.tokens or math.min(TOKENS, math.floor(most / 2)))))
  local tokens = o.tokens or math.max(3, math.min(TOKENS, most - context))
  if context + tokens > most then
    fail("--context %d and --tokens %d exceed the model's context of %d: lower them", context, tokens, most)
  end
  return context, tokens
end

local function engine_of(o, most)
  local weights = o.weights ~= "plain" and {format = o.weights, group = o.group} or nil
  if o.activations ~= "float" then
    weights = weights or {}
    weights.activations = o.activations
  end
  return infer.engine{
    model = o.model, weights = weights, dtype = o.dtype, numerics = o.numerics, max_sequences = most,
    token_budget = math.max(512, most), cache = {prefix = false},
  }
end

return function()
  local o = cli{
    name = "infer bench", usage = "ztoolkit infer bench",
    about = "Measures how fast a model reads prompts and makes answers, and how near answers are to the limit: the bytes that a "
      .. "step reads (parameters, keys and values) over the rate at which memory is read.",
    options = {
      {"dtype", nil, "type of the parameters; default: that of the folder", type = "string",
       one_of = {"fp32", "bf16", "fp16", "fp64"}},
      {"weights", "plain", "the format of matrices", one_of = {"plain", "int8", "int4", "nf4", "panels"}},
      {"group", nil, "with int8 and int4: columns that share a scale; default: 64", type = "integer"},
      {"activations", "float", "with int8 and int4: int8 rounds to 8 bits before a GEMM", one_of = {"float", "int8"}},
      {"prompts", nil, "tokens of prompts; default: 128,512, or what the model's context allows", type = "list"},
      {"answers", {1, 4, 16}, "answers at once"},
      {"context", nil, "tokens before the answers; default: 32, or what the model's context allows", type = "integer",
       at_least = 1},
      {"tokens", nil, "tokens of each answer; default: 32, or what the model's context allows", type = "integer", at_least = 3},
      {"numerics", "invariant", "how matrices are multiplied", one_of = {"invariant", "fast"}},
    },
    positional = {{"model", "the folder of a run, of a checkpoint, or of a model as Hugging Face writes it"}},
  }
  if core.world.size > 1 then
    fail("one rank is measured, and this run has %d, which would take memory's rate from one another: start it without "
      .. "mpirun", core.world.size)
  end
  if o.prompts then check_counts("prompts", o.prompts) end
  check_counts("answers", o.answers)
  local opened = require("zt.ckpt.pretrained.folder").open(o.model)
  local dtype, most = o.dtype or opened.dtype, 1
  for _, count in ipairs(o.answers) do most = math.max(most, count) end
  local engine = engine_of(o, most)
  o.context, o.tokens = answers_of(o, engine.max_context)
  local prompts = prompts_of(o, engine.max_context - 1)
  local rate = infer.read_rate(1)
  local format = opened.weights and opened.weights.format or o.weights
  print(("%s, %s, weights %s, %s threads; memory is read at %.1f GB/s"):format(o.model, dtype, format, core.num_threads(),
                                                                             rate / 1e9))
  local rows = {{"prompt", "tokens/s", "ms"}}
  for place, length in ipairs(prompts) do rows[#rows + 1] = prompt_row(engine, length, 10 * place) end
  print(text.columns(rows))
  local stats = engine:stats()
  local kept = stats.cache_bytes / (stats.blocks * 16) -- of a token
  local function bytes_of(count, context)
    return weight_bytes(engine, opened.options, dtype, count) + count * context * kept
  end
  rows = {{"answers", "tokens/s", "ms per step", "bytes read", "of the limit"}}
  for _, count in ipairs(o.answers) do rows[#rows + 1] = answer_row(engine, o, count, bytes_of, rate) end
  print(text.columns(rows))
end
