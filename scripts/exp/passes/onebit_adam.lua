-- 1-bit Adam in Lua (Tang et al., 2021): after a warm-up, Adam's second moment stays as it is, and the ranks send only the signs
-- of their first moments, with one scale per unit. What a rank has not sent it adds to the next.
--
--   ztoolkit run -n 2 scripts/exp/passes/onebit_adam.lua --warmup 60
--
-- The final loss is 0.60 on two ranks, and that of AdamW 0.61. The entropy of the data is 0.65; guessing gives ln 32 = 3.47.
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local o = zt.cli{name = "onebit_adam", about = "Adam whose ranks send signs.", options = {
  {"steps", 200, "optimizer steps", at_least = 1}, {"warmup", 60, "steps of Adam before", at_least = 1},
}}
local VOCAB, SEQ, SIZE, NOISE, BETA1, BETA2 = 32, 32, {16, 33}, 0.1, 0.9, 0.99
local mesh = comm.mesh{dp = -1}
local residual, moment = zt.buffer{name = "unsent_signs", residence = "own"}, zt.buffer{name = "moment"}

-- In the warm-up, the sum of gradients. Then the sum of first moments, of which the optimizer below takes the mean as it is.
local function start(ctx)
  local numel = ctx.buffer.moment:numel()
  local grad, moment_so_far = ctx.unit.grad, ctx.buffer.moment
  local mean = ctx.out:narrow(0, 0, numel)
  if ctx.step < o.warmup then
    mesh.dp:all_reduce(ctx.out, grad)
    moment_so_far:mul_(BETA1):add_(mean * ((1 - BETA1) / ctx.grad_divisor))
    return
  end
  local own = moment_so_far * BETA1 + grad:narrow(0, 0, numel) * ((1 - BETA1) * mesh.dp.size / ctx.grad_divisor)
  own:add_(ctx.buffer.unsent_signs)
  local scale = own:abs():mean()
  local signs = own:ge(0):to "float32" * 2 - 1
  ctx.buffer.unsent_signs:copy_(own - signs * scale)
  -- A program in C++ would send bits (zero.compress{kind = "onebit"}); what counts here is what they say.
  local sum = signs * scale
  mesh.dp:all_reduce(sum)
  moment_so_far:copy_(sum / mesh.dp.size)
  mean:copy_(moment_so_far * ctx.grad_divisor)
end
local onebit = zt.pass{
  name = "onebit", phase = "reduction", mesh = mesh, buffers = {residual, moment}, differs_along = {},
  actions = {zt.action{replaces = "REDUCE_GRAD", buffers = {residual, moment}, start = start}},
}
-- In the warm-up, g is a gradient, and afterwards a first moment.
local adam = zt.optimizer{
  name = "onebit_adam", lr = 1e-2, weight_decay = 0.1, states = {exp_avg = "like", exp_avg_sq = "like"},
  step = function(info, p, g, state)
    if info.step <= o.warmup then
      state.exp_avg:mul_(BETA1):add_(g * (1 - BETA1))
      state.exp_avg_sq:mul_(BETA2):add_(g * g * (1 - BETA2))
    else
      state.exp_avg:copy_(g)
    end
    local seen = math.min(info.step, o.warmup)
    local root = (state.exp_avg_sq / (1 - BETA2 ^ seen)):sqrt():add_(1e-8)
    p:mul_(1 - info.lr * info.decay):sub_(state.exp_avg / root * (info.lr / (1 - BETA1 ^ info.step)))
  end,
}
local model = nn.gpt{layers = 2, hidden = 64, heads = 2, vocab = VOCAB, seq = SEQ, family = "llama", seed = 1}
local program = zt.program(model):apply(zero.shard{stage = 0, axis = mesh.dp})
local trainers = {
  zt.trainer(program, {optimizer = optim.adamw{lr = 1e-2, betas = {BETA1, BETA2}, weight_decay = 0.1}}),
  zt.trainer(program:apply(onebit), {optimizer = adam}),
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
  if zt.world.rank == 0 and (step % 50 == 0 or step == o.steps) then
    print(("step %4d  optim.adamw %.4f  1-bit Adam: loss %.4f"):format(step, losses[1], losses[2]))
  end
end
