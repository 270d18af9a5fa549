-- Tests that dropout of cut matrices and tokens has the masks of one rank, element by element. Also runs on two and four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local ranks = zt.world.size
local VOCAB, TOKENS, SAMPLES, HEADS, COLUMNS, P = 17, 11, 2, 6, 7, 0.5

local function batch()
  local tokens = zt.arange(SAMPLES * TOKENS):remainder(TOKENS):view{SAMPLES, TOKENS}:to "int64"
  return {tokens = tokens, labels = tokens}
end

local meshes = {comm.mesh{dp = 1, cp = 1, tp = -1}, comm.mesh{dp = 1, cp = -1, tp = 1}}
if ranks == 4 then meshes[3] = comm.mesh{dp = 1, cp = 2, tp = 2} end

-- Returns what the rank has of a tensor [samples, tokens, ...] of whole samples.
local function own_tokens(whole, tokens)
  local parts = {}
  for i, range in ipairs(tokens.of_rank[tokens.rank + 1]) do parts[i] = whole:narrow(1, range.begin, range.count) end
  return zt.cat(parts, 1)
end

-- Makes a step of the model, of which the layer `look` puts what it sees into a list. Returns the list and the layer's tokens.
local function seen_by(layers, values, mesh, seen)
  local model = nn.sequential(layers)
  model:initialise(values)
  local program = zt.program(model, {precision = "fp64"})
  if mesh then program = program:apply(zero.shard{axis = mesh.dp}) end
  zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}, separate = not mesh}):step(batch())
  return seen
end

-- Returns a layer that calls look(h, ctx) in training and returns h.
local function looking(look, options)
  options.forward = function(self, h, ctx)
    look(h, ctx, self)
    return h
  end
  return nn.layer(options)
end

local function context_of(mesh, method) return mesh and {axis = mesh.cp, method = method} end

-- Dropout of layers in Lua, of tokens, and of columns that are cut.
local function masks_in_lua(mesh)
  local seen, context = {}, mesh and {axis = mesh.cp}
  local function look(h, ctx, layer)
    seen.tokens = ctx.tokens
    seen.lua = ctx:dropout(h:detach() * 0 + 1, P)
    local first, last = 0, COLUMNS
    if mesh then
      local tp = mesh.tp
      first, last = math.ceil(tp.rank * COLUMNS / tp.size), math.ceil((tp.rank + 1) * COLUMNS / tp.size)
    end
    seen.first = first
    local ones = zt.ones({h:size(0), h:size(1), last - first}, {dtype = h:dtype()})
    seen.columns = layer.drop:forward(ones, ctx):detach()
  end
  local drop = nn.dropout{p = P, tensor = mesh and mesh.tp, columns = mesh and COLUMNS or nil}
  local layers = {
    {"embedding", nn.embedding{vocab = VOCAB, hidden = 3}},
    {"look", looking(look, {layers = {drop = drop}, context = context})}, {"head", nn.lm_loss{vocab = VOCAB, hidden = 3}},
  }
  return seen_by(layers, {}, mesh, seen)
end

-- Dropout of the embedding and of the branch: of a model whose embedding is 1 everywhere, and whose branch is 100.
local function masks_of_stream(mesh, sequence)
  local seen, tensor = {}, mesh and mesh.tp
  local function look(h, ctx) seen.tokens, seen.h = ctx.tokens, h:detach():clone() end
  local options = {hidden = 12, heads = HEADS, norm = "none", dropout = P, tensor = tensor, sequence_parallel = sequence,
                   context = context_of(mesh, "ring")}
  local layers = {
    {"embedding", nn.embedding{vocab = VOCAB, hidden = 12, dropout = P, tensor = tensor, sequence_parallel = sequence}},
    {"half", nn.attention_block(options)}, {"look", looking(look, {})},
    {"add", nn.residual{tensor = tensor, sequence_parallel = sequence}},
    {"head", nn.lm_loss{vocab = VOCAB, hidden = 12, tensor = tensor, sequence_parallel = sequence}},
  }
  local values = {["embedding.weight"] = zt.ones{VOCAB, 12}, ["half.attention.out.weight"] = zt.zeros{12, 12},
                  ["half.attention.out.bias"] = zt.full({12}, 100)}
  return seen_by(layers, values, mesh, seen)
end

-- Dropout of attention's weights. Token t is the t-th unit vector, all scores are 0, and values are the tokens. So the output of
-- token i has at j the sum over heads h of 4^h / (i + 1) / (1 - P), if head h keeps the weight of i for j.
local function masks_of_attention(mesh, method)
  local seen, columns = {}, HEADS * TOKENS
  local function look(h, ctx) seen.tokens, seen.h = ctx.tokens, h:detach():clone() end
  local attention = nn.attention{hidden = TOKENS, heads = HEADS, head_dim = TOKENS, bias = false, dropout = P,
                                 tensor = mesh and mesh.tp, context = context_of(mesh, method)}
  local layers = {
    {"embedding", nn.embedding{vocab = VOCAB, hidden = TOKENS}}, {"attention", attention}, {"look", looking(look, {})},
    {"head", nn.lm_loss{vocab = VOCAB, hidden = TOKENS}},
  }
  local units, qkv, out = zt.zeros{VOCAB, TOKENS}, zt.zeros{3 * columns, TOKENS}, zt.zeros{TOKENS, columns}
  for t = 0, TOKENS - 1 do
    units:select(0, t):narrow(0, t, 1):fill_(1)
    for head = 0, HEADS - 1 do
      qkv:select(0, 2 * columns + head * TOKENS + t):narrow(0, t, 1):fill_(1)
      out:select(0, t):narrow(0, head * TOKENS + t, 1):fill_(4 ^ head)
    end
  end
  local values = {["embedding.weight"] = units, ["attention.qkv.weight"] = qkv, ["attention.out.weight"] = out}
  return seen_by(layers, values, mesh, seen)
end

local TestCutMasks = {}

function TestCutMasks.test_layers_in_lua()
  local wanted = masks_in_lua()
  lu.assertTrue(wanted.lua:eq(0):any():item() and wanted.columns:eq(0):any():item())
  for number, mesh in ipairs(meshes) do
    local own = masks_in_lua(mesh)
    lu.assertTrue(own.lua:equal(own_tokens(wanted.lua, own.tokens)), "mesh " .. number)
    local columns = own_tokens(wanted.columns, own.tokens):narrow(2, own.first, own.columns:size(2))
    lu.assertTrue(own.columns:equal(columns), "columns, mesh " .. number)
  end
end

function TestCutMasks.test_residual_stream()
  local wanted = masks_of_stream().h
  local kinds = zt.zeros({4}, {dtype = "int64"}) -- neither, the embedding, the branch, both
  for i, value in ipairs{0, 2, 200, 202} do kinds[i - 1] = wanted:eq(value):sum():item() end
  lu.assertEquals(kinds:sum():item(), wanted:numel())
  lu.assertTrue(kinds:gt(0):all():item())
  for number, mesh in ipairs(meshes) do
    for _, sequence in ipairs{false, true} do
      local own = masks_of_stream(mesh, sequence)
      lu.assertTrue(own.h:equal(own_tokens(wanted, own.tokens)), ("mesh %d, %s"):format(number, sequence))
    end
  end
end

function TestCutMasks.test_weights_of_attention()
  local wanted = masks_of_attention().h
  for number, mesh in ipairs(meshes) do
    for _, method in ipairs{"ring", "gather", "ulysses"} do
      if method ~= "ulysses" or math.floor(HEADS / mesh.tp.size) >= mesh.cp.size then
        local own = masks_of_attention(mesh, method)
        local off = (own.h - own_tokens(wanted, own.tokens)):abs():max():item()
        lu.assertTrue(off < 1e-10, ("mesh %d, %s: %g"):format(number, method, off)) -- another mask is off by 2 / TOKENS at least
      end
    end
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCutMasks", TestCutMasks}})
