-- Small language models whose matrices are cut over the axis `tp` of a mesh, and runs of them beside one rank.
local zt = require "zt"
local one_rank = require "support.one_rank"
local comm, nn, optim, pipe, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.pipe", require "zt.zero"

local cut_runs = {SAMPLES = 4, TOKENS = 9}

-- Models of different heads, vocabularies that no number of ranks divides, and all that a layer may have.
cut_runs.MODELS = {
  {family = "gpt2", heads = 3, hidden = 12, vocab = 17, dropout = 0.2},
  {family = "gpt2", heads = 4, hidden = 16, vocab = 127, tied = false, bias = false},
  {family = "llama", heads = 6, kv_heads = 3, hidden = 12, head_dim = 4, vocab = 17, qk_norm = true, ffn = 13},
  {family = "llama", heads = 6, kv_heads = 2, hidden = 12, head_dim = 2, vocab = 19, tied = true, ffn = 11, dropout = 0.1,
   qkv_bias = true},
  {family = "llama", heads = 4, kv_heads = 1, hidden = 8, head_dim = 2, vocab = 21, qk_norm = true, ffn = 9, bias = true},
}

--- Returns meshes over all ranks. The first has all of them along `tp`; a fourth has stages.
function cut_runs.meshes()
  local meshes = {comm.mesh{dp = 1, tp = -1}}
  if zt.world.size == 4 then
    meshes[2] = comm.mesh{dp = 2, tp = 2}
    meshes[3] = comm.mesh{tp = 2, dp = 2, order = {"tp", "dp"}}
    meshes[4] = comm.mesh{pp = 2, dp = 1, tp = 2}
  end
  return meshes
end

--- Returns the global batch of a step, or the part of a data-parallel rank.
function cut_runs.batch(step, dp, vocab)
  local generator = zt.generator(step)
  local shape = {cut_runs.SAMPLES, cut_runs.TOKENS}
  local tokens = zt.randint(vocab, shape, {generator = generator, dtype = "int64"})
  local labels = zt.randint(vocab, shape, {generator = generator, dtype = "int64"})
  labels:narrow(1, 0, 2):fill_(-100)
  local count = dp and cut_runs.SAMPLES / dp.size or cut_runs.SAMPLES
  local first = dp and dp.rank * count or 0
  return {tokens = tokens:narrow(0, first, count):contiguous(), labels = labels:narrow(0, first, count):contiguous()}
end

--- Returns a model of these options, cut over `tensor`, with `more` options.
function cut_runs.model_of(options, tensor, more)
  local all = {layers = 2, seq = cut_runs.TOKENS, seed = 3, std = 0.3, tensor = tensor}
  for _, given in ipairs{options, more or {}} do
    for key, value in pairs(given) do all[key] = value end
  end
  return nn.gpt(all)
end

--- Trains a model: without a mesh on one rank, else cut over mesh.tp. `how`: {stage =, dp =, stages = axis, recompute =,
--- precision =, model = more options}. Returns what one_rank.run returns, and the trainer.
function cut_runs.train(options, mesh, how)
  how = how or {}
  local model = cut_runs.model_of(options, mesh and mesh.tp, mesh and how.model)
  local program = zt.program(model, {precision = how.precision or "fp64"})
  if mesh and how.stages then program = program:apply(pipe.split{axis = how.stages}) end
  if mesh then program = program:apply(zero.shard{axis = how.dp, stage = how.stage}) end
  if how.recompute then program = program:apply(zt.recompute{}) end
  local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, clip = 0.5, separate = not mesh})
  return one_rank.run(trainer, function(step) return cut_runs.batch(step, mesh and how.dp, options.vocab) end), trainer
end

--- Trains all models that the meshes can cut, with `more` options. Each mesh has each stage of zero.shard with some model. Fails
--- unless they train as on one rank.
function cut_runs.compare_with_one_rank(more)
  local meshes = cut_runs.meshes()
  for index, options in ipairs(cut_runs.MODELS) do
    local wanted, alone = cut_runs.train(options)
    for number, mesh in ipairs(meshes) do
      local stages = number == 4 and mesh.pp or nil
      if options.heads >= mesh.tp.size then
        local stage = (index + number) % 4
        local what = ("model %d, mesh %d, stage %d"):format(index, number, stage)
        local results, trainer = cut_runs.train(options, mesh, {stage = stage, recompute = stage == 2, stages = stages,
                                                                dp = mesh.dp, model = more})
        one_rank.assert_trains_alike(results, trainer, wanted, alone, what)
      end
    end
  end
end

return cut_runs
