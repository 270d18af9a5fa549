-- Trains a small GPT and saves often, for tests that kill or stop the run. A restart resumes from the latest checkpoint.
local zt = require "zt"
local ckpt = require "zt.ckpt"
local comm = require "zt.comm"
local data = require "zt.data"
local nn = require "zt.nn"
local offload = require "zt.offload"
local optim = require "zt.optim"
local zero = require "zt.zero"

local o = zt.cli{
  name = "save_loop",
  options = {
    {"data", "", "the token file"},
    {"folder", "runs", "where runs are kept"},
    {"name", "loop", "name of the run"},
    {"steps", 100, "steps", at_least = 1},
    {"every", 2, "steps between two saves", at_least = 1},
    {"stage", 1, "ZeRO stage", between = {0, 3}},
    {"move", "", "a folder for all data of steps, at stage 3; empty: they stay in memory"},
    {"pause", 0, "seconds of sleep per step", type = "number"},
  },
}

local mesh = comm.mesh{dp = -1}
local text = data.tokens{path = o.data, split = "train", seq = 16, batch = 12, axis = mesh.dp, seed = 5}
local model = nn.gpt{layers = 2, hidden = 96, heads = 2, vocab = text.vocab, seq = 16, seed = 5, dropout = 0.1}
local shard = {stage = o.stage, axis = mesh.dp}
if o.move ~= "" then shard.node_shared = false end
local program = zt.program(model):apply(zero.shard(shard))
if o.move ~= "" then
  program = program:apply(offload.move{
    optimizer = "nvme", gradients = "nvme", parameters = "nvme", activations = "nvme", activation_bytes = 1, slice = 4096,
    folder = {o.move},
  })
elseif o.stage <= 2 then -- what ranks keep is saved, too
  program = program:apply(zero.compress{kind = "powersgd", rank = 2})
end
local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 1e-3}})
local run = zt.run{
  name = o.name, folder = o.folder, resume = true, mesh = mesh, trainer = trainer, data = text, steps = o.steps, trace = false,
}
local done = ckpt.resume(run)
if zt.world.rank == 0 then
  print("resumes from step " .. done)
  io.stdout:flush()
end
for step, batch in text:steps(o.steps) do
  run:log(step, trainer:step(batch))
  ckpt.save(run, step + 1, {every = o.every, keep = 2, keep_every = 50})
  if o.pause > 0 then zt.sleep(o.pause) end
end
run:finish()
