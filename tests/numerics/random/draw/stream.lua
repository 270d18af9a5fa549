--- Makes the items of a residual stream whose matrices and tokens may be cut over ranks: blocks, and layers between the halves of
-- a block. Their codes use the locals `tp`, `sp`, `context`, `recompute` and `overlap` that render.lua makes of `case.cut`.
local stream = {}

local function list(parts, ...)
  for _, part in ipairs{...} do parts[#parts + 1] = part end
  return parts
end

-- Code of the options of attention. `how`: {heads =, kv_heads =, head_dim =, bias =, rotary =, qk_norm =, window =, dropout =,
-- method =, [qkv_bias =], [rope_scaling = code], [heads_at_once =]}.
local function attention_options(hidden, how)
  local form = "hidden = %d, heads = %d, kv_heads = %d, head_dim = %d"
  local parts = {form:format(hidden, how.heads, how.kv_heads, how.head_dim)}
  list(parts, ("bias = %s, rotary = %s"):format(how.bias, how.rotary))
  if how.qk_norm then list(parts, "qk_norm = true") end
  if how.qkv_bias ~= nil then list(parts, ("qkv_bias = %s"):format(how.qkv_bias)) end
  if how.rope_scaling then list(parts, "rope_scaling = " .. how.rope_scaling) end
  if how.window > 0 then list(parts, "window = " .. how.window) end
  if how.dropout > 0 then list(parts, ("dropout = %.14g"):format(how.dropout)) end
  list(parts, "std = 0.3, tensor = tp, recompute = recompute, overlap = overlap")
  list(parts, ("context = context(%q, %s)"):format(how.method, how.heads_at_once))
  return table.concat(parts, ", ")
end

-- Code of the options of a layer of the stream. With `how.is_inner` it sees all tokens.
local function stream_options(hidden, how)
  local own = ("norm = %q%s"):format(how.norm, how.is_inner and "" or ", sequence_parallel = sp")
  return attention_options(hidden, how) .. ", " .. own
end

--- Returns the item of attention without a residual.
function stream.attention(name, hidden, how)
  return {name = name, kind = "cut attention", positions = 1, code = ("nn.attention{%s}"):format(attention_options(hidden, how))}
end

--- Returns the item of a block. `how` has the options of its attention, `ffn`, `activation` and `tile`.
function stream.block(name, hidden, how)
  local mlp = ("ffn = %d, activation = %q, mlp_tile = %d"):format(how.ffn, how.activation, how.tile)
  local code = ("nn.block{%s, %s}"):format(stream_options(hidden, how), mlp)
  return {name = name, kind = "cut block", positions = 1, code = code}
end

--- Returns the items of a block with `inner` between its halves, which reads and outputs h of all its tokens.
function stream.around(name, hidden, how, inner)
  local first = {
    name = name .. "_attention", kind = "cut attention_block", positions = 1,
    code = ("nn.attention_block{%s}"):format(stream_options(hidden, how)),
  }
  local last = {
    name = name .. "_add", kind = "residual", positions = 1, needs = {first.name},
    code = ("nn.residual{dropout = %.14g, tensor = tp, sequence_parallel = sp, recompute = recompute}"):format(how.dropout),
  }
  return list(list({first}, unpack(inner)), last)
end

--- Returns the item of an MLP in Lua.
function stream.lua_mlp(name, hidden, inner, seed, dropout)
  local code = ("layers.cut_mlp(tp, %d, %d, %d, %.14g)"):format(hidden, inner, seed, dropout)
  return {name = name, kind = "cut mlp in Lua", positions = 1, code = code}
end

--- Returns the item of two matrices with dropout between them.
function stream.pair(name, hidden, inner)
  return {name = name, kind = "cut pair", positions = 3, code = ("layers.cut_pair(tp, %d, %d)"):format(hidden, inner)}
end

--- Returns the item of a layer that mixes all tokens of a sample.
function stream.token_mean(name, hidden, seed)
  return {
    name = name, kind = "mean of cut tokens", positions = 1,
    code = ('layers.token_mean(context("ring"), %d, %d)'):format(hidden, seed),
  }
end

--- Returns the item of a layer that gathers the tokens of a sample and has a result for each of its own.
function stream.running_mean(name, hidden, seed, dropout)
  return {
    name = name, kind = "running mean of cut tokens", positions = 1,
    code = ('layers.running_mean(context("gather"), %d, %d, %.14g)'):format(hidden, seed, dropout),
  }
end

return stream
