-- The ztoolkit side of train_vs_torch.py, train_vs_deepspeed.py, train_vs_products.py, pipelines.py, moe_vs_deepspeed.py and
-- tensor_parallel.py. Reads batches.i64, [steps, batch, seq + 1] tokens, from --folder and trains. With --schedule all ranks are
-- one pipeline; with --tp they share matrices, with --cp tokens; otherwise they are data parallel, and with --experts they share
-- the experts, too. With --export it writes its initial parameters to the folder instead. train_vs.py describes the files of a
-- run; `ztoolkit plan` needs none.
local zt = require "zt"
local comm = require "zt.comm"
local moe = require "zt.moe"
local nn = require "zt.nn"
local optim = require "zt.optim"
local pipe = require "zt.pipe"
local zero = require "zt.zero"

local o = zt.cli{
  name = "train_vs", about = "Times training steps; started by the scripts in bench/peers.",
  options = {
    {"folder", nil, "the folder of the files", type = "string"},
    {"export", false, "write the initial parameters and stop"},
    {"layers", 5, "blocks"}, {"hidden", 192, "width"}, {"heads", 3, "attention heads"},
    {"vocab", 4096, "tokens in the vocabulary"}, {"tied", false, "the head shares the embedding's weights"},
    {"seq", 128, "tokens per sample"}, {"batch", 8, "samples per step"}, {"steps", 40, "steps"},
    {"warmup", 5, "number of untimed first steps"}, {"stage", 1, "ZeRO stage"},
    {"precision", "fp32", "type of parameters and arithmetic"}, {"lr", 1e-3, "learning rate"},
    {"clip", 1, "largest norm of the gradient", above = 0},
    {"micro_batches", 1, "micro-batches per rank and step"},
    {"schedule", nil, "the pipeline's schedule; default: no pipeline", type = "string"},
    {"partition", nil, "the number of positions of each stage, such as 5,3", type = "string"},
    {"experts", 0, "experts in every second block; 0: none"}, {"top_k", 1, "experts per token"},
    {"aux_loss", 0.01, "weight of the experts' balancing loss"},
    {"tp", 1, "ranks that share the matrices", at_least = 1},
    {"sequence_parallel", false, "each of these has a share of the tokens between the matrices"},
    {"cp", 1, "ranks that share the tokens of samples", at_least = 1}, {"method", "ring", "how their keys and values meet"},
    {"heads_at_once", nil, "key heads that ring and gather exchange together; default: all", type = "integer"},
    {"position", "learned", "kind of positions"}, {"recompute", false, "blocks compute their activations again"},
    {"head_tile", nil, "rows whose logits exist at the same time", type = "integer"},
    {"mlp_tile", nil, "rows whose columns inside the MLPs exist at the same time", type = "integer"},
    {"costs", false, "after the steps, measure the times of the actions in as many steps again"},
    {"backend", nil, "how ranks communicate", type = "string"}, {"gemm", nil, "the GEMM provider", type = "string"},
  },
}

-- Writes this rank's mark: the file run/NAME.RANK.
local function mark(name, content)
  if not zt.world.dry then zt.write_file(("%s/run/%s.%d"):format(o.folder, name, zt.world.rank), content) end
end

-- Returns the same number as held_bytes of train_vs.py.
local function held_bytes()
  local bytes = 0
  for line in io.lines("/proc/self/smaps_rollup") do
    bytes = bytes + 1024 * (line:match("^Pss_Anon:%s*(%d+)") or line:match("^Pss_Shmem:%s*(%d+)") or 0)
  end
  return bytes
end

if o.gemm then zt.gemm{provider = o.gemm} end
local mesh = comm.mesh{
  pp = o.schedule and zt.world.size or 1, dp = -1, cp = o.cp > 1 and o.cp or nil, tp = o.tp > 1 and o.tp or nil,
  ep = o.experts > 0 and zt.world.size or nil, backend = o.backend,
}
local replicas = o.experts > 0 and mesh:join{"dp", "ep"} or mesh.dp
if not o.export then
  mesh:world():barrier()
  local pid = io.open("/proc/self/stat"):read("*n")
  mark("idle", zt.json.encode{pid = pid, bytes = held_bytes()})
end

-- Returns the experts of every second block, with the options that moe_vs_deepspeed_rank.py gives to DeepSpeed's layer.
local function experts_of(block)
  if block % 2 == 0 then return nil end
  return moe.from_deepspeed{
    hidden_size = o.hidden, num_experts = o.experts, ffn = 4 * o.hidden, k = o.top_k, axis = mesh.ep, aux_loss = o.aux_loss,
    drop_tokens = false, top2_2nd_expert_sampling = false,
  }
end

local model = nn.gpt{
  layers = o.layers, hidden = o.hidden, heads = o.heads, vocab = o.vocab, seq = o.seq, tied = o.tied, seed = 1,
  mlp = o.experts > 0 and experts_of or nil, position = o.position, head_tile = o.head_tile, mlp_tile = o.mlp_tile,
  tensor = o.tp > 1 and mesh.tp or nil, sequence_parallel = o.sequence_parallel or nil,
  context = o.cp > 1 and {axis = mesh.cp, method = o.method, heads_at_once = o.heads_at_once} or nil,
}
local program = zt.program(model, {micro_batches = o.micro_batches, precision = o.precision})
if o.schedule then
  local counts = {}
  for count in o.partition:gmatch "%d+" do counts[#counts + 1] = tonumber(count) end
  program = program:apply(pipe.split{schedule = o.schedule, axis = mesh.pp, partition = counts})
end
if o.recompute then program = program:apply(zt.recompute()) end
program = program:apply(zero.shard{stage = o.stage, axis = replicas})
local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = o.lr, betas = {0.9, 0.95}, weight_decay = 0.1}, clip = o.clip})

-- Writes parameters.f32, all parameters one after the other, and parameters.json, {name, shape} of each in that order.
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

-- Returns the samples of each step.
local function read_batches()
  if zt.world.dry then return zt.zeros({o.steps, o.batch, o.seq + 1}, {dtype = "int64"}) end
  local all = zt.from_file(o.folder .. "/batches.i64", false, o.steps * o.batch * (o.seq + 1), {dtype = "int64"})
  return all:view({o.steps, o.batch, o.seq + 1})
end

local function train()
  local all = read_batches()
  local rows = o.batch / replicas.size
  local batch
  local losses, began, first_step_at, first_step_seconds = {}, nil, nil, nil
  mark("ready", "")
  for step = 0, o.steps - 1 do
    if step == o.warmup then
      mark("timed", "")
      mesh:world():barrier()
      began = zt.now()
    end
    local step_began = zt.now()
    local mine = all:select(0, step):narrow(0, replicas.coordinate * rows, rows)
    batch = {tokens = mine:narrow(1, 0, o.seq):contiguous(), labels = mine:narrow(1, 1, o.seq):contiguous()}
    local s = trainer:step(batch)
    losses[step + 1] = s.loss
    if step == 0 then first_step_at, first_step_seconds = zt.now(), zt.now() - step_began end
  end
  mesh:world():barrier()
  local seconds = zt.now() - began
  return {
    losses = losses, tokens_per_second = (o.steps - o.warmup) * o.batch * o.seq / seconds, first_step_at = first_step_at,
    first_step_seconds = first_step_seconds, predicted_memory = trainer:memory().total.predicted,
    activations = trainer:memory().activations.measured,
    costs = o.costs and trainer:costs(batch, {steps = o.steps - o.warmup}).measured or nil,
  }
end

if o.export then
  export()
else
  local result = train()
  if zt.world.rank == 0 then zt.write_file(o.folder .. "/run/result.json", zt.json.encode(result)) end
end
