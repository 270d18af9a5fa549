-- Distillation: a small student learns from the probabilities of a trained teacher. Two models, three trainers, one script.
--
--   ztoolkit run -n 2 scripts/exp/distil.lua
--
-- A teacher is trained, a trainer without an optimizer takes its values, and the student's loss is the mean of the cross entropy
-- with the labels and with the teacher's probabilities. After 200 steps on two ranks the teacher's loss is 0.60, and the
-- student's, which counts both, 0.59.
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local o = zt.cli{name = "distil", about = "A student learns from a teacher.", options = {
  {"steps", 200, "optimizer steps of the teacher, and of the student", at_least = 1},
  {"stage", 1, "ZeRO stage", between = {0, 3}}, {"alpha", 0.5, "weight of the teacher's probabilities", between = {0, 1}},
}}
local VOCAB, SEQ, SIZE, NOISE = 32, 32, {16, 33}, 0.1
local mesh = comm.mesh{dp = -1}

-- Each token is the one before it plus 1, but for some noise.
local function batch(step)
  local draw = zt.generator(1000 * step + zt.world.rank)
  local noise = zt.rand(SIZE, {generator = draw}):lt(NOISE) * zt.randint(VOCAB, SIZE, {generator = draw})
  local all = (noise + 1):cumsum(1):remainder(VOCAB):to "int64"
  return {tokens = all:narrow(1, 0, SEQ):contiguous(), labels = all:narrow(1, 1, SEQ):contiguous()}
end

local function trainer_of(model, optimizer)
  local program = zt.program(model):apply(zero.shard{stage = o.stage, axis = mesh.dp})
  return zt.trainer(program, optimizer and {optimizer = optimizer, clip = 1})
end

local function train(name, trainer, data)
  for step = 1, o.steps do
    local result = trainer:step(data(step))
    if zt.world.rank == 0 and step % 50 == 0 then print(("%s step %4d  loss %.4f"):format(name, step, result.loss)) end
  end
end

local large = nn.gpt{layers = 2, hidden = 64, heads = 2, vocab = VOCAB, seq = SEQ, family = "llama", seed = 1}
local learning = trainer_of(large, optim.adamw{lr = 1e-2})
train("teacher", learning, batch)
local teacher = trainer_of(large)
for _, name in ipairs(learning:parameters()) do teacher:set_parameter(name, learning:master(name)) end

local small = nn.gpt{layers = 1, hidden = 16, heads = 1, vocab = VOCAB, seq = SEQ, family = "llama", seed = 2, loss = false}
local student = trainer_of(small:append(zt.loss(function(out, ctx)
  local logits, labels = out.logits:flatten(0, 1), ctx:batch "labels"
  local soft = -(ctx:batch "teacher":flatten(0, 1) * logits:log_softmax(-1)):sum(-1):mean()
  return zt.cross_entropy_loss(logits, labels:flatten()) * (1 - o.alpha) + soft * o.alpha
end)), optim.adamw{lr = 1e-2})
train("student", student, function(step)
  local data = batch(o.steps + step)
  data.teacher = teacher:infer(data).logits:softmax(-1)
  return data
end)
