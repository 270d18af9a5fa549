--- Makes a case of the random tests from a combination of the cover.
local dimensions = require "dimensions"
local stream = require "draw.stream"

local cases = {}

local POSITIONS = 33

local function hidden_of(of) return of.hidden or 12 end

local STYLES = {
  gpt2 = {norm = "layernorm", bias = true, rotary = false, activation = "gelu_tanh", ffn = 14},
  llama = {norm = "rmsnorm", bias = false, rotary = true, activation = "swiglu", ffn = 9},
  qk_norm = {norm = "rmsnorm", bias = false, rotary = true, activation = "swiglu", ffn = 11, qk_norm = true},
}

local function block_options(of)
  local how = {heads = of.heads, kv_heads = of.kv_heads, window = of.window, dropout = of.dropout, tile = of.tile}
  how.head_dim = hidden_of(of) / of.heads
  for key, value in pairs(STYLES[of.style]) do how[key] = value end
  how.method, how.heads_at_once = of.context:match "%a+" or "ring", of.heads_at_once > 0 and of.heads_at_once or nil
  return how
end

-- The layers of the second block's MLP, in place of that of an nn.block.
local inner = {}

function inner.lua(hidden, seed, dropout)
  return {
    stream.lua_mlp("mlp", hidden, 7, seed, dropout), stream.token_mean("mean", hidden, seed + 5),
    stream.running_mean("sums", hidden, seed + 6, dropout), stream.pair("pair", hidden, 10),
  }
end

function inner.experts(hidden, seed)
  local router = seed % 2 == 0 and "losses = {balance = 0.1, z = 0.01}" or 'score = "sigmoid", noise = "jitter"'
  local where = 'axis = mesh.ep, tensor = tp, context = context("ring", 1)'
  local code = ("moe.layers{experts = 4, hidden = %d, top_k = 2, %s, ffn = 5, router = {std = 0.7, %s}}")
    :format(hidden, where, router)
  return {{name = "experts", kind = "mixture", positions = 4, code = code}}
end

local function items_of(of, seed)
  local hidden, how = hidden_of(of), block_options(of)
  local items = {stream.block("one", hidden, how)}
  local make = inner[of.mlp]
  if not make then
    items[2] = stream.block("two", hidden, how)
    return items
  end
  for _, item in ipairs(stream.around("two", hidden, how, make(hidden, seed, of.dropout))) do items[#items + 1] = item end
  return items
end

-- The range {first, last} of share `index` of `total` tokens in `parts` shares.
local function share(total, parts, index)
  return {math.ceil(index * total / parts), math.ceil((index + 1) * total / parts) - 1}
end

-- The tokens of the last rank, as ranges {first, last}.
local function last_ranks_tokens(of, cp)
  if of.context:find "contiguous" then return {share(of.tokens, cp, cp - 1)} end
  local before, after = 0, 0 -- the halves that the other ranks have
  for rank = 0, cp - 2 do
    local first, last = unpack(share(of.tokens, cp, rank))
    before, after = before + math.ceil((last - first + 1) / 2), after + math.floor((last - first + 1) / 2)
  end
  return {{before, of.tokens - after - 1}}
end

local function layout_of(of, sizes, micro_batches)
  local layout = {
    axes = {}, micro_batches = micro_batches, eval_micro_batches = 1, shard = {stage = of.stage, reduce_every = "step"},
    recompute = of.recompute == "full" and 1 or nil, selective = of.recompute == "selective" or nil,
    overlap = of.overlap or nil, backend = of.backend,
  }
  for name in of.order:gmatch "%a+" do
    local is_optional = name == "pp" or name == "ep"
    if sizes[name] > 1 or not is_optional then layout.axes[#layout.axes + 1] = {name, sizes[name]} end
  end
  if sizes.pp > 1 then layout.split = {schedule = {name = of.pipeline}, partition = "uniform"} end
  return layout
end

--- Returns the case of combination number `number`, from 0.
function cases.of(combination, number)
  local of, sizes = combination, dimensions.sizes(combination)
  local rows = sizes.pp == 1 and number % 2 == 1 and {1} or {1, 1} -- samples of each micro-batch
  local case = {
    seed = number, vocab = of.vocab, hidden = hidden_of(of), steps = 3, steps_of_bits = 2, frozen = {},
    by_hand = number % 4 == 1 and sizes.pp == 1, -- a pipeline has no steps by hand
    cut = {sequence = of.tensor:find "sequence" ~= nil, layout = of.context:match "%a+$" or "balanced"},
    items = items_of(of, number), is_tied = of.tied, norm = STYLES[of.style].norm, packed = of.packed,
    positions = of.style == "gpt2" and POSITIONS or nil, dropout = of.dropout > 0 and of.dropout or nil,
    head_tile = of.tile > 0 and of.tile or nil,
    rows = rows, seq = {of.tokens}, empty = {}, ignored = of.ignored and last_ranks_tokens(of, sizes.cp) or nil,
    reference_in_one = number % 2 == 0, events = {{}, number % 4 == 0 and {"evaluate", "infer", "generate"} or {"evaluate"}},
    precision = of.precision, optimizer = {"adamw", {lr = 0.01, weight_decay = 0.1}}, clip = of.clip,
  }
  case.layout = layout_of(of, sizes, #rows)
  return case
end

--- Returns a line that says what the combination is. `list`: its dimensions, if they are not those of cut layers.
function cases.text(combination, list)
  local parts = {}
  for _, dimension in ipairs(list or dimensions.list) do
    parts[#parts + 1] = dimension[1] .. " " .. tostring(combination[dimension[1]])
  end
  return table.concat(parts, ", ")
end

return cases
