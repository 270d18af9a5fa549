-- Prints what a training step of adapters costs beside one of all parameters: seconds, in turns, and bytes, planned and measured.
--
--   ztoolkit run bench/nn/adapter_steps.lua                      a GPT of 27.4 M parameters in bf16
--   ztoolkit run bench/nn/adapter_steps.lua --targets all        adapters of all matrices of the blocks
local zt = require "zt"
local nn, optim = require "zt.nn", require "zt.optim"

local o = zt.cli{
  name = "adapter_steps", about = "Measures training steps of adapters.",
  options = {
    {"precision", "bf16", "precision of the steps", one_of = {"fp32", "bf16"}},
    {"targets", "qv", "which matrices have adapters", one_of = {"qv", "all"}},
    {"rank", 16, "of the adapters", at_least = 1},
    {"rows", 8, "samples of 256 tokens per step", at_least = 1},
    {"steps", 3, "steps per repetition", at_least = 1},
    {"repetitions", 5, "repetitions", at_least = 1},
  },
}
local TARGETS = {qv = {"q", "v"}, all = {"q", "k", "v", "out", "up", "down"}}
local SHAPE = {family = "gpt2", layers = 8, hidden = 512, heads = 8, vocab = 4096, seq = 256}

-- By row: the option `lora`, and the format of the frozen matrices.
local ROWS = {
  {"all parameters"}, {"adapters", true}, {"adapters, int8 base", true, "int8"}, {"adapters, int4 base", true, "int4"},
  {"adapters, nf4 base", true, "nf4"},
}

-- `values_of`: a trainer of the same model whose matrices are packed.
local function trainer_of(has_lora, format, values_of)
  local options = {}
  for key, value in pairs(SHAPE) do options[key] = value end
  options.lora = has_lora and {rank = o.rank, targets = TARGETS[o.targets]} or nil
  local model = nn.gpt(options)
  local names = format and model:pack{format = format} or {}
  local trainer = zt.trainer(zt.program(model, {precision = o.precision}), {optimizer = optim.adamw{lr = 1e-4}, clip = 1})
  for _, name in ipairs(names) do
    local plain = name == "head.weight" and "embedding.weight" or name
    trainer:set_parameter(name, values_of:parameter(plain))
  end
  return trainer
end

local tokens = zt.randint(SHAPE.vocab, {o.rows, SHAPE.seq + 1}, {generator = zt.generator(1), dtype = "int64"})
local batch = {tokens = tokens:narrow(1, 0, SHAPE.seq):contiguous(), labels = tokens:narrow(1, 1, SHAPE.seq):contiguous()}

local trainers, seconds = {}, {}
for i, row in ipairs(ROWS) do
  trainers[i], seconds[i] = trainer_of(row[2], row[3], trainers[2]), {}
  trainers[i]:step(batch)
end
for _ = 1, o.repetitions do
  for i, trainer in ipairs(trainers) do
    local begin = zt.now()
    for _ = 1, o.steps do
      local result = trainer:step(batch)
      assert(result.loss == result.loss, "the loss is not finite")
    end
    table.insert(seconds[i], (zt.now() - begin) / o.steps)
  end
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

local heads = {"", "s/step", "ratio", "min .. max", "gradients + state, MB", "all, planned / measured"}
print(("%-24s %10s %7s %16s %22s %24s"):format(unpack(heads)))
for i, row in ipairs(ROWS) do
  local memory, own, list = trainers[i]:memory(), 0, seconds[i]
  for kind, line in pairs(memory) do
    if kind == "gradients" or kind == "optimizer" or kind == "master" then own = own + (line.measured or 0) end
  end
  local middle = median(list)
  local form = "%-24s %10.4f %7.2f %7.4f..%7.4f %22.1f %14.1f / %.1f"
  print(form:format(row[1], middle, middle / median(seconds[1]), list[1], list[#list], own / 1e6, memory.total.predicted / 1e6,
    memory.total.measured / 1e6))
end
