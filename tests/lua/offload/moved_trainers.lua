-- Small GPTs whose data lie in files, on all ranks, and the folder of these files. With the variable ZT_NCCL they are on a
-- device, over nccl, with sums in the order of other backends.
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, offload, optim, zero = require "zt.comm", require "zt.nn", require "zt.offload", require "zt.optim",
  require "zt.zero"
local assert_same = require("support.small_trainer").assert_same
local temporary = require "support.temporary"

local SEQ, VOCAB = 12, 41
local rank, ranks = zt.world.rank, zt.world.size
local is_on_device = os.getenv "ZT_NCCL" ~= nil
local mesh = comm.mesh{dp = -1, backend = is_on_device and "nccl" or nil, sum_order = is_on_device and "fixed" or nil}

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

-- Options of a case: frozen, tied, stage, every, bucket_bytes, precision, recompute, layers.
function small.program_of(options)
  local model = nn.gpt{layers = options.layers or 2, hidden = 48, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3,
                       tied = options.tied}
  if options.frozen then model:freeze(options.frozen) end
  local shard = {axis = mesh.dp, stage = options.stage, reduce_every = options.every, bucket_bytes = options.bucket_bytes}
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

-- Makes a step by hand, of two micro-batches.
function small.step_by_hand(trainer, step)
  local half = 4 / ranks / 2
  for index = 0, 1 do
    local tokens = small.batch(step).tokens:narrow(0, index * half, half):contiguous()
    trainer:forward{tokens = tokens, labels = tokens}
    trainer:backward()
  end
  trainer:finish_step()
end

-- Checks that steps which fail change nothing: `b` fails twice, then both make a step.
function small.check_failing_steps(a, b)
  local wrong = small.batch(2)
  wrong.tokens = wrong.tokens + VOCAB
  for _ = 1, 2 do lu.assertErrorMsgContains("embedding", b.step, b, wrong) end
  a:step(small.batch(2))
  b:step(small.batch(2))
  assert_same(a, b, " after an error")
end

-- Runs the tests of a suite, removes the folder, and ends the process. Collective.
function small.run(name, suite)
  local code = lu.LuaUnit.new():runSuiteByInstances{{name, suite}}
  mesh:world():barrier()
  if rank == 0 then os.execute("rm -rf '" .. small.folder .. "'") end
  os.exit(code)
end

return small
