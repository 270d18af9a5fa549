-- Local SGD with an inner and an outer optimizer (Douillard et al., "DiLoCo", 2023): each rank takes --every steps of AdamW
-- alone; then the ranks average how far they have come, and Nesterov momentum takes this as its gradient. The inner optimizer's
-- state is averaged with it, so a checkpoint right after is the same from each rank.
--
--   ztoolkit run -n 2 scripts/exp/passes/local_sgd.lua --every 10
--
-- The final loss is 0.73 on two ranks, with a tenth of AdamW's messages, and 0.69 on one. The entropy of the data is 0.65;
-- guessing gives ln 32 = 3.47.
local zt = require "zt"
local ckpt, comm, nn, optim = require "zt.ckpt", require "zt.comm", require "zt.nn", require "zt.optim"

local o = zt.cli{name = "local_sgd", about = "Local steps and an outer optimizer.", options = {
  {"steps", 300, "optimizer steps", at_least = 1}, {"every", 10, "steps between two averages", at_least = 1},
  {"outer_lr", 0.7, "learning rate of the outer optimizer", above = 0},
  {"momentum", 0.9, "of the outer optimizer", between = {0, 1}},
  {"folder", "", "of a checkpoint after the last average; empty: none"},
}}
local VOCAB, SEQ, SIZE, NOISE = 32, 32, {16, 33}, 0.1
local mesh = comm.mesh{dp = -1}
local anchor, velocity = zt.buffer{name = "anchor"}, zt.buffer{name = "velocity"}

local function average(tensor)
  mesh.dp:all_reduce(tensor)
  return tensor:div_(mesh.dp.size)
end
local before = zt.action{
  name = "FIRST_ANCHOR", role = "update", reads = {"master"}, buffers = {anchor},
  start = function(ctx)
    if ctx.step == 0 then ctx.buffer.anchor:copy_(ctx.unit.master:narrow(0, 0, ctx.buffer.anchor:numel())) end
  end,
}
local outer = zt.action{
  name = "OUTER_STEP", role = "update", reads = {"master"}, writes = {"master", "param", "state"}, buffers = {anchor, velocity},
  axes = {"dp"},
  start = function(ctx)
    if (ctx.step + 1) % o.every ~= 0 then return end
    local from, v = ctx.buffer.anchor, ctx.buffer.velocity
    local change = from - average(ctx.unit.master):narrow(0, 0, from:numel())
    v:mul_(o.momentum):add_(change)
    from:sub_((change + v * o.momentum) * o.outer_lr)
    ctx.unit.master:narrow(0, 0, from:numel()):copy_(from)
    average(ctx.unit.state.exp_avg)
    average(ctx.unit.state.exp_avg_sq)
  end,
}
local diloco = zt.pass{
  name = "diloco", phase = "overlap", mesh = mesh, actions = {before, outer}, buffers = {anchor, velocity}, differs_along = {},
  apply = function(program)
    local list = {}
    for _, action in ipairs(program.actions) do
      if action.kind == "STEP" then list[#list + 1] = before(action.target) end
      list[#list + 1] = action
      if action.kind == "STEP" then list[#list + 1] = outer(action.target) end
    end
    program.actions = list
    return program
  end,
}
local model = nn.gpt{layers = 2, hidden = 64, heads = 2, vocab = VOCAB, seq = SEQ, family = "llama", seed = 1}
local trainer = zt.trainer(zt.program(model):apply(diloco), {optimizer = optim.adamw{lr = 1e-2, weight_decay = 0.1}, clip = 1})
-- Each token is the one before it plus 1, but for some noise.
local function batch(step)
  local draw = zt.generator(1000 * step + zt.world.rank)
  local noise = zt.rand(SIZE, {generator = draw}):lt(NOISE) * zt.randint(VOCAB, SIZE, {generator = draw})
  local all = (noise + 1):cumsum(1):remainder(VOCAB):to "int64"
  return {tokens = all:narrow(1, 0, SEQ):contiguous(), labels = all:narrow(1, 1, SEQ):contiguous()}
end
for step = 1, o.steps do
  local loss = trainer:step(batch(step)).loss -- of this rank
  if o.folder ~= "" and step == o.steps - o.steps % o.every then ckpt.save(o.folder, {trainer = trainer}, {step = step}) end
  if step % 50 == 0 or step == o.steps then
    local mean = 0
    for _, one in ipairs(mesh.dp:gather_values(loss)) do mean = mean + one / mesh.dp.size end
    if zt.world.rank == 0 then print(("step %4d  loss %.4f"):format(step, mean)) end
  end
end
