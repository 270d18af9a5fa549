-- An MLP written in Lua whose matrices the ranks of an axis share: one by rows, one by columns, with one sum over the ranks.
-- Attention, the embedding and the head are cut by the option `tensor` of nn.gpt.
--
--   ztoolkit run -n 2 scripts/exp/tensor_parallel.lua --tp 2
--   ztoolkit run -n 4 scripts/exp/tensor_parallel.lua --tp 2 --stage 3 --sequence-parallel --check
--   ztoolkit plan scripts/exp/tensor_parallel.lua --ranks 8 --tp 4
--
-- With --check, the script computes in fp64 and compares the first losses with those of one rank. The final loss is 0.74 on any
-- mesh. The entropy of the data is 0.65; guessing gives ln 32 = 3.47.
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local VOCAB, SEQ, HIDDEN, NOISE, SEED = 32, 32, 64, 0.1, 1

local o = zt.cli{name = "tensor_parallel", about = "Cuts an MLP written in Lua over the ranks of an axis.", options = {
  {"tp", 1, "ranks that share the matrices; the others are data parallel", at_least = 1},
  {"sequence_parallel", false, "share the tokens between the matrices, too"},
  {"stage", 1, "ZeRO stage", between = {0, 3}},
  {"ffn", 130, "columns inside the MLP; the ranks need not divide it", at_least = 1},
  {"batch", 16, "samples per step, over all ranks", at_least = 1},
  {"steps", 200, "optimizer steps", at_least = 1},
  {"lr", 1e-2, "learning rate", above = 0},
  {"check", false, "compute in fp64, and compare the first losses with those of one rank"},
}}
local mesh = comm.mesh{dp = -1, tp = o.tp} -- neighbouring ranks share the matrices
if o.batch % mesh.dp.size ~= 0 then
  error(("--batch %d does not divide into %d data-parallel ranks: give a multiple of %d"):format(o.batch, mesh.dp.size,
                                                                                             mesh.dp.size), 0)
end

-- Returns a gated linear unit (Dauphin et al. 2017): down(value * sigmoid(gate)). `up` has the rows of the values, then those of
-- the gates. Each rank has some rows of both groups, and the columns of `down` for them. So its result is one part of a sum.
local function mlp(axis, seed)
  local function weight(rows, columns, number) return zt.randn({rows, columns}, {seed = 10 * seed + number}) * 0.02 end
  return nn.layer{
    tensor_axes = {axis},
    params = {
      up = {values = weight(2 * o.ffn, HIDDEN, 1), cut = {axis = axis, dim = 0, groups = {o.ffn, o.ffn}}},
      down = {values = weight(HIDDEN, o.ffn, 2), cut = {axis = axis, dim = 1}},
    },
    forward = function(self, h, ctx)
      local parts = zt.linear(ctx:copy_to(axis, h), self.up):chunk(2, -1)
      return ctx:reduce_from(axis, zt.linear(parts[1] * parts[2]:sigmoid(), self.down))
    end,
  }
end

local function model_of(axis)
  return nn.gpt{
    layers = 2, hidden = HIDDEN, heads = 4, vocab = VOCAB, seq = SEQ, family = "llama", seed = SEED,
    tensor = axis, sequence_parallel = o.sequence_parallel,
    mlp = function(block) return {{"mlp", mlp(axis, block + 1)}} end,
  }
end

local function trainer_of(program, separate)
  return zt.trainer(program, {optimizer = optim.adamw{lr = o.lr}, clip = 1, separate = separate})
end

-- Returns the samples [first, first + count) of the global batch of a step. Each token is the one before it plus 1, but for some
-- noise.
local function batch(step, first, count)
  local draw, size = zt.generator(1000 * SEED + step), {o.batch, SEQ + 1}
  local noise = zt.rand(size, {generator = draw}):lt(NOISE) * zt.randint(VOCAB, size, {generator = draw})
  local all = (noise + 1):cumsum(1):remainder(VOCAB):to("int64"):narrow(0, first, count)
  return {tokens = all:narrow(1, 0, SEQ):contiguous(), labels = all:narrow(1, 1, SEQ):contiguous()}
end

local settings = {precision = o.check and "fp64" or "fp32"}
local trainer = trainer_of(zt.program(model_of(mesh.tp), settings):apply(zero.shard{axis = mesh.dp, stage = o.stage}))
local alone = o.check and trainer_of(zt.program(model_of(comm.mesh{dp = -1, tp = 1}.tp), settings), true)
local samples = o.batch / mesh.dp.size -- all ranks of mesh.tp get the same ones
for step = 0, o.steps - 1 do
  local loss = trainer:step(batch(step, mesh.dp.rank * samples, samples)).loss
  if alone and step < 3 then -- in later steps, rounding would have grown
    local expected = alone:step(batch(step, 0, o.batch)).loss
    assert(math.abs(loss - expected) < 1e-12 * expected, ("step %d: loss %.15g, on one rank %.15g"):format(step, loss, expected))
  end
  if zt.world.rank == 0 and (step % 50 == 0 or step == o.steps - 1) then print(("step %4d  loss %.4f"):format(step, loss)) end
end
