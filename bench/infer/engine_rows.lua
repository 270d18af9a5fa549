-- Prints the rows of bench/README.md about engines: rates of answers and prompts, gaps between tokens, the prefix cache, and what
-- a step takes besides layers.
--
--   ztoolkit run bench/infer/engine_rows.lua                       a GPT of 27.4 M parameters
--   ztoolkit run bench/infer/engine_rows.lua --model llama_1b      a model of Llama's kind of 0.98 B parameters
--   ztoolkit run bench/infer/engine_rows.lua --weights int8,int4   only answers and prompts, with matrices in these formats
local zt = require "zt"
local infer, nn = require "zt.infer", require "zt.nn"

local o = zt.cli{
  name = "engine_rows", about = "Measures engines.",
  options = {
    {"model", "gpt_27m", "the model", one_of = {"gpt_27m", "llama_1b"}},
    {"dtype", "bf16", "type of the parameters", one_of = {"fp32", "bf16"}},
    {"tokens", 32, "tokens of an answer", at_least = 4},
    {"weights", "", "formats of matrices: panels, int8, int4, nf4, int8+int8 and int4+int8 (with activations of 8 bits)"},
  },
}
local MODELS = {
  gpt_27m = {family = "gpt2", layers = 8, hidden = 512, heads = 8, vocab = 4096, seq = 4096},
  llama_1b = {family = "llama", layers = 16, hidden = 2048, ffn = 5632, heads = 32, kv_heads = 8, vocab = 32000, seq = 4096},
}
local shape = MODELS[o.model]
local model = nn.gpt(shape)
local trainer = zt.trainer(zt.program(model, {precision = o.dtype}), {})
local seeds = 0

local function prompt(length)
  seeds = seeds + 1
  return zt.randint(shape.vocab, {length}, {generator = zt.generator(seeds)})
end

local function engine_of(more)
  local options = {trainer = trainer, cache = {prefix = false, memory = 3e9}}
  for key, value in pairs(more or {}) do options[key] = value end
  return infer.engine(options)
end

-- Returns the least seconds of three runs of `run`.
local function least(run)
  local best
  for _ = 1, 3 do best = math.min(best or math.huge, run()) end
  return best
end

-- Returns the seconds of a step in which `count` answers get one token each, and of these outside of layers.
local function step_of(engine, count)
  local others
  local seconds = least(function()
    for _ = 1, count do engine:submit{prompt = prompt(8), max_tokens = o.tokens, temperature = 0} end
    engine:step()
    local before = engine:stats()
    while engine:step() do end
    local after = engine:stats()
    local steps = after.steps - before.steps
    others = (after.seconds - before.seconds - after.layer_seconds + before.layer_seconds) / steps
    return (after.seconds - before.seconds) / steps
  end)
  return seconds, others
end

local function first_token_of(engine, length)
  return least(function() return engine:generate{prompt = prompt(length), max_tokens = 1}[1].first_seconds end)
end

-- Returns the 95th percentile of the seconds of steps while 8 answers run and, with `length`, a prompt enters, and its tokens/s.
local function gaps_of(engine, length)
  for _ = 1, 8 do engine:submit{prompt = prompt(8), max_tokens = 60, temperature = 0} end
  for _ = 1, 5 do engine:step() end
  if length then engine:submit{prompt = prompt(length), max_tokens = 1} end
  local seconds, before = {}, engine:stats()
  repeat
    local begin = zt.now()
    local step = engine:step()
    seconds[#seconds + 1] = step and zt.now() - begin or nil
  until not step
  local after = engine:stats()
  table.sort(seconds)
  local computed = after.prompt_tokens + after.new_tokens - before.prompt_tokens - before.new_tokens
  return seconds[math.ceil(0.95 * #seconds)], computed / (after.seconds - before.seconds)
end

-- Returns the least seconds of the matmuls of a prompt's layers alone, by the usual choice of GEMMs.
local function matmuls_of(length)
  local hidden, ffn = shape.hidden, shape.ffn or 4 * shape.hidden
  local qkv = hidden + 2 * hidden / shape.heads * (shape.kv_heads or shape.heads)
  local function linear(columns, rows_of) return nn.linear{["in"] = columns, out = rows_of, bias = false} end
  local layers = {nn.layer{io = {inputs = {}}, forward = function(_, ctx) return ctx:batch "x" end}}
  for place = 1, shape.layers do
    layers[place + 1] = nn.layer{
      layers = {qkv = linear(hidden, qkv), out = linear(hidden, hidden), up = linear(hidden, ffn), down = linear(ffn, hidden),
                gate = shape.family == "llama" and linear(hidden, ffn) or nil},
      forward = function(own, h, ctx)
        own.qkv:forward(h, ctx)
        own.out:forward(h, ctx)
        if own.gate then own.gate:forward(h, ctx) end
        return own.down:forward(own.up:forward(h, ctx), ctx)
      end,
    }
  end
  local alone = zt.trainer(zt.program(nn.sequential(layers), {precision = o.dtype}), {})
  local x = zt.randn({1, length, hidden}, {generator = zt.generator(1)}):to(o.dtype == "bf16" and "bfloat16" or "float32")
  return least(function()
    local begin = zt.now()
    alone:infer{x = x}
    return zt.now() - begin
  end)
end

local rows = {{"row", "value"}}
local function add(name, form, ...) rows[#rows + 1] = {name, form:format(...)} end

-- Returns the bytes of parameters that a step reads.
local function bytes_of(engine)
  local parameters, has_head, bytes = engine.trainer.model:parameters(), false, 0
  for _, parameter in ipairs(parameters) do has_head = has_head or parameter.name == "head.weight" end
  for _, parameter in ipairs(parameters) do
    local is_read = not parameter.name:find "^embedding%." or (not has_head and parameter.name == "embedding.weight")
    local of_all = parameter.format == "plain" and parameter.numel * (o.dtype == "bf16" and 2 or 4) or parameter.room
    bytes = bytes + (is_read and of_all or 0)
  end
  return bytes
end

local function print_rows(rate)
  print(("%s, %s, %d threads; memory is read at %.1f GB/s"):format(o.model, o.dtype, zt.num_threads(), rate / 1e9))
  print(zt.text.columns(rows))
end

if o.weights ~= "" then
  local rate = infer.read_rate(1)
  local plain = first_token_of(engine_of(), 512)
  rows = {{"weights", "MiB", "1 answer: ms, GB/s, share of the rate", "16 over 1", "prompt of 512: ms, rate over plain"}}
  for word in o.weights:gmatch "[^,]+" do
    local format, activations = word:match "^(%w+)%+?(%w*)$"
    local engine = engine_of{weights = {format = format, activations = activations ~= "" and activations or nil}}
    local read, one, sixteen = bytes_of(engine), step_of(engine, 1), step_of(engine, 16)
    local first = first_token_of(engine, 512)
    rows[#rows + 1] = {word, ("%.0f"):format(read / 2^20),
                       ("%.2f, %.1f, %.2f"):format(one * 1e3, read / one / 1e9, read / one / rate),
                       ("%.1f"):format(16 * one / sixteen), ("%.1f, %.2f"):format(first * 1e3, plain / first)}
  end
  print_rows(rate)
  os.exit(0)
end

local engine = engine_of()
local bytes = bytes_of(engine)
local one, other_one = step_of(engine, 1)
local sixteen, other_sixteen = step_of(engine, 16)
local rate = infer.read_rate(1)
add("1 answer: ms per step, GB/s, share of the rate of reading", "%.2f, %.1f, %.2f", one * 1e3, bytes / one / 1e9,
    bytes / one / rate)
add("16 answers: ms per step, tokens/s over 1 answer", "%.2f, %.1f", sixteen * 1e3, 16 * one / sixteen)
add("outside of layers: share of a step with 1, with 16 answers", "%.3f, %.3f", other_one / one, other_sixteen / sixteen)
local invariant, fast = first_token_of(engine, 512), first_token_of(engine_of{numerics = "fast"}, 512)
add("prompt of 512: ms; rate over numerics = \"fast\"", "%.1f, %.2f", invariant * 1e3, fast / invariant)
add("prompt of 512: share of its matmuls alone, with numerics = \"fast\"", "%.2f", matmuls_of(512) / fast)
add("1 answer: rate over numerics = \"fast\"", "%.2f", (step_of(engine_of{numerics = "fast"}, 1)) / one)
local alone = gaps_of(engine)
for _, budget in ipairs{24, 64, 512, 4096} do
  local gap, tokens = gaps_of(engine_of{token_budget = budget, max_sequences = 9}, 2048)
  add(("gaps (p95) of 8 answers beside a prompt of 2,048, budget %d: over those alone; tokens/s"):format(budget), "%.1f, %.0f",
      gap / alone, tokens)
end
local shared = engine_of{cache = {memory = 3e9}}
local same = prompt(1024)
local first = shared:generate{prompt = same, max_tokens = 1}[1].first_seconds
add("first token of the same 1,024 tokens again, over the first time", "%.3f",
    shared:generate{prompt = same, max_tokens = 1}[1].first_seconds / first)
print_rows(rate)
