-- Muon written in Lua, beside optim.muon and AdamW: three trainers of one model take their steps in turns.
--
--   ztoolkit run -n 2 scripts/exp/muon.lua --stage 2
--
-- The two Muons have equal losses but for rounding, which the script checks. After 200 steps on one rank the loss is 0.596, and
-- that of AdamW 0.634; on two ranks both are 0.60. The entropy of the data is 0.65; guessing gives ln 32 = 3.47.
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local o = zt.cli{name = "muon", about = "Muon in Lua beside optim.muon and AdamW.", options = {
  {"steps", 200, "optimizer steps", at_least = 1}, {"stage", 1, "ZeRO stage", between = {0, 3}},
}}
local VOCAB, SEQ, SIZE, NOISE, MOMENTUM = 32, 32, {16, 33}, 0.1, 0.95

-- Returns the matrix with singular values near 1: five iterations of Newton and Schulz (Jordan et al., "Muon", 2024).
local function orthogonal(matrix)
  local is_tall = matrix:size(0) > matrix:size(1)
  local x = is_tall and matrix:t() or matrix
  x = x / math.max(x:norm():item(), 1e-7)
  for _ = 1, 5 do
    local gram = x:mm(x:t())
    x = x * 3.4445 + (gram * -4.775 + gram:mm(gram) * 2.0315):mm(x)
  end
  return is_tall and x:t() or x
end

local muon = zt.optimizer{
  name = "lua_muon", lr = 2e-2, weight_decay = 0.1, scope = "tensor", states = {average = "like", square = "like"},
  step = function(info, p, g, state)
    if info.is_matrix and not info.name:find "embed" and not info.name:find "head" then
      state.average:lerp_(g, 1 - MOMENTUM)
      local rate = info.lr * math.max(1, p:size(0) / p:size(1)) ^ 0.5
      p:mul_(1 - info.lr * info.decay):sub_(orthogonal(g:lerp(state.average, MOMENTUM)) * rate)
    else -- AdamW
      state.average:lerp_(g, 0.1)
      state.square:lerp_(g * g, 0.001)
      local root = (state.square / (1 - 0.999 ^ info.step)):sqrt():add_(1e-8)
      p:mul_(1 - info.lr * info.decay):sub_(state.average / root * (info.lr / (1 - 0.9 ^ info.step)))
    end
  end,
}
local mesh = comm.mesh{dp = -1}
local model = nn.gpt{layers = 2, hidden = 64, heads = 2, vocab = VOCAB, seq = SEQ, family = "llama", seed = 1}
local function trainer_of(optimizer)
  return zt.trainer(zt.program(model):apply(zero.shard{stage = o.stage, axis = mesh.dp}), {optimizer = optimizer, clip = 1})
end
local trainers = {
  trainer_of(muon), trainer_of(optim.muon{lr = 2e-2, ns_dtype = "fp32"}),
  trainer_of(optim.adamw{lr = 2e-2, weight_decay = 0.1}),
}
-- Each token is the one before it plus 1, but for some noise.
local function batch(step)
  local draw = zt.generator(1000 * step + zt.world.rank)
  local noise = zt.rand(SIZE, {generator = draw}):lt(NOISE) * zt.randint(VOCAB, SIZE, {generator = draw})
  local all = (noise + 1):cumsum(1):remainder(VOCAB):to "int64"
  return {tokens = all:narrow(1, 0, SEQ):contiguous(), labels = all:narrow(1, 1, SEQ):contiguous()}
end
for step = 1, o.steps do
  local data, losses = batch(step), {}
  for i, each in ipairs(trainers) do losses[i] = each:step(data).loss end
  assert(math.abs(losses[1] - losses[2]) < 1e-4, "the two Muons differ")
  if zt.world.rank == 0 and step % 50 == 0 then
    print(("step %4d  optim.adamw %.4f  optim.muon %.4f  in Lua: loss %.4f"):format(step, losses[3], losses[2], losses[1]))
  end
end
