-- Trains a GPT whose optimizer state, gradients, parameters and activations lie in files between their uses, and says what that
-- saves.
--
--   ztoolkit run -n 2 scripts/exp/offload.lua --folder /path/on/a/disk
--   ztoolkit run scripts/exp/offload.lua --layers 12 --hidden 1024 --heads 16 --vocab 32000 --seq 256 --steps 10 --slice 1048576
--   ztoolkit run scripts/exp/offload.lua --optimizer nvme --gradients device --parameters device --ratio 0.5
--
-- Losses and weights have the same bits as without the pass: --check trains a second model in memory and compares. With the
-- second command the model has 184 million parameters. In memory, parameters, gradients and states take 3.4 GB; with the pass a
-- rank holds 1.0 GB of them, half of it for the matrix of the vocabulary. After 200 steps with the default options the loss is
-- below 1; the entropy of the data is 0.65, and guessing gives ln 64 = 4.16.
local zt = require "zt"
local comm, nn, offload, optim, zero = require "zt.comm", require "zt.nn", require "zt.offload", require "zt.optim",
  require "zt.zero"

local WHERE = {"device", "host", "nvme"}
local o = zt.cli{
  name = "offload", about = "A GPT whose data lie in files between their uses.",
  options = {
    {"layers", 4, "blocks", at_least = 1},
    {"hidden", 128, "width", at_least = 1},
    {"heads", 4, "attention heads", at_least = 1},
    {"vocab", 64, "tokens", at_least = 2},
    {"seq", 32, "tokens per sample", at_least = 1},
    {"batch", 8, "samples per rank and step", at_least = 1},
    {"steps", 200, "optimizer steps", at_least = 1},
    {"precision", "fp32", "type of parameters and arithmetic", one_of = {"fp32", "bf16"}},
    {"folder", "/tmp", "the folder for the files, on a disk"},
    {"optimizer", "nvme", "where optimizer state lies", one_of = WHERE},
    {"gradients", "nvme", "where gradients lie", one_of = WHERE},
    {"parameters", "nvme", "where parameters lie", one_of = WHERE},
    {"activations", "nvme", "where activations lie", one_of = WHERE},
    {"activation_bytes", 2 ^ 14, "bytes of the smallest tensor of activations that leaves", at_least = 1},
    {"ratio", 1, "share of these data that travels", type = "number", between = {0, 1}},
    {"slice", 2 ^ 14, "most elements that move together, a multiple of 4096", at_least = 4096},
    {"staging", nil, "MiB of memory for each kind of data under way", type = "integer", at_least = 1},
    {"checksum", false, "compare what is read with what was written"},
    {"check", false, "train a second model in memory, and compare"},
  },
}
local mesh = comm.mesh{dp = -1}
local function say(...)
  if zt.world.rank == 0 then print(string.format(...)) end
end

local function trainer_of(move)
  local model = nn.gpt{layers = o.layers, hidden = o.hidden, heads = o.heads, vocab = o.vocab, seq = o.seq, seed = 1}
  local program = zt.program(model, {precision = o.precision})
    :apply(zero.shard{stage = 3, axis = mesh.dp, node_shared = false})
  if move then program = program:apply(offload.move(move)) end
  return zt.trainer(program, {optimizer = optim.adamw{lr = 3e-3, weight_decay = 0.1}, clip = 1})
end

local trainer = trainer_of{
  optimizer = o.optimizer, gradients = o.gradients, parameters = o.parameters, folder = {o.folder}, ratio = o.ratio,
  activations = o.activations, activation_bytes = o.activations ~= "device" and o.activation_bytes or nil,
  slice = o.slice, staging = o.staging and o.staging * 2 ^ 20, checksum = o.checksum,
}
local in_memory = o.check and trainer_of()

-- Each token is the one before it plus 1, but for some noise.
local function batch(step)
  local draw, size = zt.generator(1000 * step + zt.world.rank), {o.batch, o.seq + 1}
  local noise = zt.rand(size, {generator = draw}):lt(0.1) * zt.randint(o.vocab, size, {generator = draw})
  local all = (noise + 1):cumsum(1):remainder(o.vocab):to "int64"
  return {tokens = all:narrow(1, 0, o.seq):contiguous(), labels = all:narrow(1, 1, o.seq):contiguous()}
end

local begin = zt.now()
for step = 1, o.steps do
  local data = batch(step)
  local result = trainer:step(data)
  if in_memory then
    local other = in_memory:step(data)
    assert(result.loss == other.loss and result.grad_norm == other.grad_norm, "the losses differ from those in memory")
  end
  if step == 1 then
    begin = zt.now()
    say("%s", zt.memory_text(trainer))
  elseif step % math.max(1, math.floor(o.steps / 4)) == 0 then
    say("step %4d  loss %.4f  %.1f ms per step", step, result.loss, 1e3 * (zt.now() - begin) / (step - 1))
  end
end
for _, name in ipairs(in_memory and trainer:parameters() or {}) do
  assert(trainer:master(name):equal(in_memory:master(name)), name .. " differs from that in memory")
end
if in_memory then say "losses, norms and weights are those in memory, bit for bit" end
