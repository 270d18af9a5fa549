-- PowerSGD written in Lua: matrices are sent as products of two thin ones, and what a rank has not sent it adds to its next
-- gradient (Vogels et al., "PowerSGD", 2019). Beside it, zero.compress does the same in C++, and a third trainer sends whole
-- gradients.
--
--   ztoolkit run -n 2 scripts/exp/passes/powersgd.lua --rank 2
--
-- On two ranks the final losses are 0.62 in Lua, 0.70 in C++ (0.60 to 0.63 with the seeds 1 to 5) and 0.60 with whole gradients.
-- The entropy of the data is 0.65; guessing gives ln 32 = 3.47. The buffers are saved with checkpoints: --folder DIR continues a
-- run that was killed, bit for bit. With --tp 2, pairs of ranks share the matrices, and each sends thin matrices of its part.
local zt = require "zt"
local ckpt, comm, nn = require "zt.ckpt", require "zt.comm", require "zt.nn"
local optim, zero = require "zt.optim", require "zt.zero"

local o = zt.cli{name = "powersgd", about = "Gradients of low rank.", options = {
  {"steps", 200, "optimizer steps", at_least = 1}, {"stage", 1, "ZeRO stage", between = {0, 2}},
  {"rank", 2, "columns of the thin matrices", at_least = 1},
  {"tp", 1, "ranks that share each matrix", at_least = 1},
  {"folder", "", "of checkpoints, from which a run continues; empty: none"},
  {"save_every", 50, "steps between two of them", at_least = 1},
}}
local VOCAB, SEQ, SIZE, NOISE = 32, 32, {16, 33}, 0.1
local mesh = comm.mesh{dp = -1, tp = o.tp}

-- Calls visit(param, rows, columns, place of its Q) for matrices that become smaller, and visit(param) for other parameters: of
-- each, what this rank holds. Returns the number of elements of all Q.
local function each_part(params, visit)
  local place = 0
  for _, param in ipairs(params) do
    local rows, columns = param.local_shape[1], param.local_shape[2]
    if #param.local_shape == 2 and o.rank * (rows + columns) < rows * columns then
      visit(param, rows, columns, place)
      place = place + o.rank * columns
    else
      visit(param)
    end
  end
  return place
end

-- REDUCE_GRAD writes the buffers NAME_next. At the end of the step, KEEP_UNSENT_IN_LUA copies them to the buffers NAME. It does
-- not run in a step that is skipped or has failed, so such a step changes nothing that is kept.
local function thin_shape(unit, info)
  local params = {}
  for index, param in ipairs(unit.params) do params[index] = info.params[param + 1] end
  return {each_part(params, function() end)}
end
local residence = o.tp > 1 and "local" or "whole" -- of the thin matrices; the ranks along tp have others
local buffers = {
  zt.buffer{name = "unsent", residence = "own"}, zt.buffer{name = "unsent_next", residence = "own"},
  zt.buffer{name = "thin", shape = thin_shape, residence = residence},
  zt.buffer{name = "thin_next", shape = thin_shape, residence = residence},
}

local function orthonormal(matrix) -- by Gram and Schmidt
  for column = 0, o.rank - 1 do
    local own = matrix:select(1, column)
    for before = 0, column - 1 do
      local other = matrix:select(1, before)
      own:sub_(other * (own * other):sum())
    end
    own:div_(own:norm() + 1e-20)
  end
  return matrix
end

local function start(ctx)
  local unit, unsent = ctx.unit, ctx.buffer.unsent
  local thin = ctx.buffer.thin_next:copy_(ctx.buffer.thin)
  local own = unit.grad:clone()
  own:narrow(0, 0, unsent:numel()):add_(unsent)
  local sum = own:clone()
  each_part(unit.params, function(param, rows, columns, place)
    local numel = 1
    for _, size in ipairs(param.local_shape) do numel = numel * size end
    local kept, all = own:narrow(0, param.offset, numel), sum:narrow(0, param.offset, numel)
    if not rows then
      mesh.dp:all_reduce(all)
      kept:zero_()
      return
    end
    local matrix, q = kept:view{rows, columns}, thin:narrow(0, place, o.rank * columns):view{columns, o.rank}
    if q:abs():sum():item() == 0 then q:copy_(zt.randn({columns, o.rank}, {generator = zt.generator(unit.index + place)})) end
    local p = matrix:mm(q)
    mesh.dp:all_reduce(p)
    orthonormal(p)
    q:copy_(matrix:t():mm(p))
    matrix:sub_(p:mm(q:t())) -- what this rank has not sent
    mesh.dp:all_reduce(q)
    all:copy_(p:mm(q:t()):view{-1})
    q:div_(q:norm(2, {0}, true) + 1e-20)
  end)
  ctx.buffer.unsent_next:copy_(own:narrow(0, 0, unsent:numel()))
  ctx.out:copy_(sum:narrow(0, unit.first, ctx.out:numel()))
end
local keep = zt.action{name = "KEEP_UNSENT_IN_LUA", role = "update", buffers = buffers, start = function(ctx)
  ctx.buffer.unsent:copy_(ctx.buffer.unsent_next)
  ctx.buffer.thin:copy_(ctx.buffer.thin_next)
end}
local low_rank = zt.pass{
  name = "low_rank", phase = "reduction", mesh = mesh, buffers = buffers, differs_along = {"tp"},
  actions = {zt.action{replaces = "REDUCE_GRAD", buffers = buffers, start = start}, keep},
  apply = function(program, info)
    for _, unit in ipairs(program.mode == "train" and info.units or {}) do
      if unit.trainable then table.insert(program.actions, keep(unit.index)) end
    end
    return program
  end,
}

local model = nn.gpt{layers = 2, hidden = 64, heads = 2, vocab = VOCAB, seq = SEQ, family = "llama", seed = 1,
                     tensor = mesh.tp}
local function trainer_of(pass)
  local program = zt.program(model):apply(zero.shard{stage = o.stage, axis = mesh.dp})
  return zt.trainer(pass and program:apply(pass) or program, {optimizer = optim.adamw{lr = 1e-2, weight_decay = 0.1}, clip = 1})
end
local objects = {lua = trainer_of(low_rank), whole = trainer_of()}
objects.cpp = trainer_of(zero.compress{kind = "powersgd", rank = o.rank})
-- Each token is the one before it plus 1, but for some noise.
local function batch(step)
  local draw = zt.generator(1000 * step + mesh.dp.rank)
  local noise = zt.rand(SIZE, {generator = draw}):lt(NOISE) * zt.randint(VOCAB, SIZE, {generator = draw})
  local all = (noise + 1):cumsum(1):remainder(VOCAB):to "int64"
  return {tokens = all:narrow(1, 0, SEQ):contiguous(), labels = all:narrow(1, 1, SEQ):contiguous()}
end
objects.done = 0 -- steps
if o.folder ~= "" and ckpt.latest(o.folder) then objects.done = ckpt.load(o.folder, objects).done end
for step = objects.done + 1, o.steps do
  local data, losses = batch(step), {}
  for _, name in ipairs{"whole", "cpp", "lua"} do losses[name] = objects[name]:step(data).loss end
  if o.folder ~= "" and step % o.save_every == 0 then
    objects.done = step
    ckpt.save(o.folder, objects, {step = step})
  end
  if zt.world.rank == 0 and (step % 50 == 0 or step == o.steps) then
    local line = "step %4d  whole gradients %.4f  zero.compress %.4f  in Lua: loss %.4f"
    print(line:format(step, losses.whole, losses.cpp, losses.lua))
  end
end
