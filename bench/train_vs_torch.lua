-- The ztoolkit side of train_vs_torch.py. Reads batches.i64, [steps, batch, seq + 1] tokens, from the folder it is given; with
-- --export it writes its initial parameters there instead of training. Prints one line of JSON.
local zt = require "zt"
local comm = require "zt.comm"
local nn = require "zt.nn"
local optim = require "zt.optim"
local zero = require "zt.zero"

local o = zt.cli{
  name = "train_vs_torch", about = "Times training steps; started by train_vs_torch.py.",
  options = {
    {"folder", nil, "where the files are", type = "string"},
    {"export", false, "write the initial parameters and stop"},
    {"layers", 5, "blocks"}, {"hidden", 192, "width"}, {"heads", 3, "attention heads"}, {"vocab", 4096, "tokens"},
    {"seq", 128, "tokens a sample"}, {"batch", 8, "samples a step"}, {"steps", 40, "steps"}, {"warmup", 5, "steps not timed"},
    {"stage", 1, "ZeRO stage"}, {"lr", 1e-3, "learning rate"},
  },
}

local mesh = comm.mesh{dp = -1}
local model = nn.gpt{layers = o.layers, hidden = o.hidden, heads = o.heads, vocab = o.vocab, seq = o.seq, seed = 1}
local program = zt.program(model, {micro_batches = 1}):apply(zero.shard{stage = o.stage, axis = mesh.dp})
local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = o.lr, betas = {0.9, 0.95}, weight_decay = 0.1}, clip = 1})

-- parameters.f32 and parameters.json: all parameters one after the other, and {name, shape} of each in that order.
local function export()
  local parameters, elements = {}, 0
  for index, name in ipairs(trainer:parameters()) do
    local values = trainer:parameter(name)
    parameters[index] = {name = name, shape = values:size(), values = values}
    elements = elements + values:numel()
  end
  local file = zt.from_file(o.folder .. "/parameters.f32", true, elements, {dtype = "float32"})
  local first = 0
  for _, parameter in ipairs(parameters) do
    local count = parameter.values:numel()
    file:narrow(0, first, count):copy_(parameter.values:reshape({-1}))
    first, parameter.values = first + count, nil
  end
  zt.write_file(o.folder .. "/parameters.json", zt.json.encode(parameters))
end

local function train()
  local all = zt.from_file(o.folder .. "/batches.i64", false, o.steps * o.batch * (o.seq + 1), {dtype = "int64"})
  all = all:view({o.steps, o.batch, o.seq + 1})
  local rows = o.batch / mesh.dp.size
  local losses, began = {}, nil
  for step = 0, o.steps - 1 do
    if step == o.warmup then
      mesh.dp:barrier()
      began = zt.now()
    end
    local mine = all:select(0, step):narrow(0, mesh.dp.coordinate * rows, rows)
    local s = trainer:step{tokens = mine:narrow(1, 0, o.seq):contiguous(), labels = mine:narrow(1, 1, o.seq):contiguous()}
    losses[step + 1] = s.loss
  end
  mesh.dp:barrier()
  local seconds = zt.now() - began
  return {losses = losses, tokens_per_second = (o.steps - o.warmup) * o.batch * o.seq / seconds}
end

if o.export then
  export()
else
  local result = train()
  if zt.world.rank == 0 then print(zt.json.encode(result)) end
end
