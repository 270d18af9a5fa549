-- Small GPTs whose data lie in files, on all ranks, and the folder of these files.
local zt = require "zt"
local comm, nn, offload, optim, zero = require "zt.comm", require "zt.nn", require "zt.offload", require "zt.optim",
  require "zt.zero"
local temporary = require "support.temporary"

local SEQ, VOCAB = 12, 41
local rank, ranks = zt.world.rank, zt.world.size
local mesh = comm.mesh{dp = -1}

local small = {mesh = mesh, VOCAB = VOCAB, SEQ = SEQ, folder = temporary()}
if rank == 0 then zt.mkdir_p(small.folder) end
mesh:world():barrier()

local function merged(...)
  local all = {}
  for _, list in ipairs{...} do
    for key, value in pairs(list) do all[key] = value end
  end
  return all
end

-- Options of a case: frozen, tied, stage, every, precision, recompute, layers.
function small.program_of(options)
  local model = nn.gpt{layers = options.layers or 2, hidden = 48, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3,
                       tied = options.tied}
  if options.frozen then model:freeze(options.frozen) end
  local shard = {axis = mesh.dp, stage = options.stage, reduce_every = options.every}
  if options.stage == 3 then shard.node_shared = false end
  local program = zt.program(model, {precision = options.precision, micro_batches = 2})
  if options.recompute then program = program:apply(zt.recompute{every = options.recompute}) end
  return program:apply(zero.shard(shard))
end

small.MOVES = {optimizer = "nvme", gradients = "nvme", folder = {small.folder}, slice = 4096}

function small.moved(options, move)
  local parameters = options.stage == 3 and "nvme" or nil
  return small.program_of(options):apply(offload.move(merged(small.MOVES, {parameters = parameters}, move or {})))
end

function small.trainer_of(program, options)
  return zt.trainer(program, {optimizer = options.optimizer or optim.adamw{lr = 1e-2, weight_decay = 0.1}, clip = 0.5})
end

function small.batch(step)
  local all = (zt.arange(4 * SEQ) * 5 + step):remainder(VOCAB):view{4, SEQ}:to "int64"
  local tokens = all:narrow(0, rank * 4 / ranks, 4 / ranks):contiguous()
  return {tokens = tokens, labels = tokens}
end

-- Runs the tests of a suite, removes the folder, and ends the process. Collective.
function small.run(name, suite)
  local code = require("luaunit").LuaUnit.new():runSuiteByInstances{{name, suite}}
  mesh:world():barrier()
  if rank == 0 then os.execute("rm -rf '" .. small.folder .. "'") end
  os.exit(code)
end

return small
