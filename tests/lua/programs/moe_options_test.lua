-- Tests options of mixtures that contradict each other. Runs on one rank and on two.
local lu = require "luaunit"
local zt = require "zt"
local comm, moe, nn = require "zt.comm", require "zt.moe", require "zt.nn"
local optim, zero = require "zt.optim", require "zt.zero"

local HIDDEN, VOCAB, SEQ = 16, 29, 8
local ranks = zt.world.size

local function merged(base, more)
  local out = {}
  for key, value in pairs(base) do out[key] = value end
  for key, value in pairs(more) do out[key] = value end
  return out
end

local function layers(options) return moe.layers(merged({experts = 4, hidden = HIDDEN, ffn = 8}, options)) end
local function fails(text, make, options) lu.assertErrorMsgContains(text, make, options) end

local TestOptions = {}

-- All ranks whose tokens are others must be in batch_axes.
function TestOptions:test_batch_axes()
  local losses = {}
  for _, layout in ipairs{{dp = 1, ep = ranks}, {dp = ranks, ep = 1}} do
    local mesh = comm.mesh{order = {"dp", "ep"}, dp = layout.dp, ep = layout.ep}
    local function trained(batch_axes)
      local model = nn.gpt{layers = 1, hidden = HIDDEN, heads = 2, vocab = VOCAB, seq = SEQ, seed = 1, mlp = function()
        return layers{axis = mesh.ep, router = {losses = {balance = 0.1, per = "batch"}, batch_axes = batch_axes}}
      end}
      local program = zt.program(model, {precision = "fp64"}):apply(zero.shard{stage = 1, axis = mesh:join{"dp", "ep"}})
      local tokens = zt.arange(4 * SEQ):remainder(VOCAB):view({4, SEQ}):to "int64"
      local own = tokens:narrow(0, zt.world.rank * 4 / ranks, 4 / ranks):contiguous()
      return zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}}):step{tokens = own, labels = own}.loss
    end
    losses[#losses + 1] = trained{"dp", "ep"}
    lu.assertAlmostEquals(trained{layout.ep > 1 and "ep" or "dp"}, losses[1], 1e-12)
    if ranks > 1 then
      local used = layout.ep > 1 and "ep" or "dp"
      fails(("('blocks.0.router') sums over the batch along '%s', but ranks along '%s' have other samples: give it "
        .. "batch_axes = {\"%s\"}"):format(used == "ep" and "dp" or "ep", used, used), trained, {used == "ep" and "dp" or "ep"})
    end
  end
  lu.assertAlmostEquals(losses[2], losses[1], 1e-12)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestOptions", TestOptions}})
