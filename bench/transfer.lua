-- Measures zt.transfer beside copying the same bytes once between the ranks, over the same backend.
--
--   mpirun -n 2 --bind-to core build/release/bin/ztoolkit run bench/transfer.lua [--hidden 1024] [--layers 8] [--repeats 5]
--
-- The limit is one all_to_all of as many bytes, from and to memory of the processes: those that a rank sends, and those that stay
-- on it. The two alternate; a row has the medians. "ratio" is the time of the copy divided by that of the transfer.
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local o = zt.cli{name = "transfer", about = "the rate of zt.transfer", options = {
  {"hidden", 1024, "of the GPT", at_least = 64},
  {"layers", 8, "of the GPT", at_least = 1},
  {"repeats", 5, "measurements of each", at_least = 1},
  {"bucket", 64 * 2 ^ 20, "bytes of the buffer", at_least = 64},
}}
local ranks, rank = zt.world.size, zt.world.rank
local mesh = comm.mesh{dp = -1}
local cut = comm.mesh{dp = 1, tp = -1, order = {"dp", "tp"}}
local world = mesh:world()

local function model_of(tensor)
  return nn.gpt{layers = o.layers, hidden = o.hidden, heads = 8, vocab = 4096, seq = 64, family = "llama", tensor = tensor,
                seed = 1}
end

-- Returns a trainer of the model: with stages of ZeRO over all ranks, cut over all ranks, or whole on each.
local LAYOUTS = {
  zero3 = function(precision, trains)
    local program = zt.program(model_of(), {precision = precision})
      :apply(zero.shard{axis = mesh.dp, stage = 3, node_shared = false})
    return zt.trainer(program, {optimizer = trains and optim.sgd{lr = 1} or nil, separate = true})
  end,
  tp = function(precision)
    local program = zt.program(model_of(cut.tp), {precision = precision}):apply(zero.shard{axis = cut.dp, stage = 0})
    return zt.trainer(program, {separate = true})
  end,
  whole = function(precision) return zt.trainer(zt.program(model_of(), {precision = precision}), {separate = true}) end,
}

local function median(values)
  table.sort(values)
  return values[math.floor(#values / 2) + 1]
end

-- Returns the largest of the ranks' numbers.
local function largest(seconds)
  local all = zt.tensor({seconds}, {dtype = "float64"})
  world:all_reduce(all, {op = "max"})
  return all[0]:item()
end

local function timed(fn)
  world:barrier()
  local begin = zt.now()
  fn()
  return largest(zt.now() - begin)
end

-- Returns a function that moves what a transfer does, once: the bytes that ranks send, in equal parts to all others, and those
-- that stay on a rank, from one memory to another.
local function copy_of(report)
  local most = largest(report.sent_bytes)
  local part, own = math.floor(most / math.max(1, ranks - 1) / 64) * 64, math.floor(largest(report.local_bytes) / 64) * 64
  local splits, total = {}, own + part * (ranks - 1)
  for peer = 1, ranks do splits[peer] = peer - 1 == rank and own or part end
  local given, taken = zt.ones({total}, {dtype = "uint8"}), zt.ones({total}, {dtype = "uint8"})
  return function() world:all_to_all(taken, given, {out_splits = splits, in_splits = splits}) end
end

local function row(name, from, to)
  local plan = timed(function() zt.transfer(from, to, {bucket_bytes = o.bucket}) end)
  local report = zt.transfer(from, to, {bucket_bytes = o.bucket})
  local copy = copy_of(report)
  copy()
  local moves, copies = {}, {}
  for repeats = 1, o.repeats do
    moves[repeats] = timed(function() zt.transfer(from, to, {bucket_bytes = o.bucket}) end)
    copies[repeats] = timed(copy)
  end
  local move, limit = median(moves), median(copies)
  if rank == 0 then
    local bytes = report.sent_bytes + report.local_bytes
    print(("%-22s %6.1f MB sent, %6.1f MB local, %5.2f GB/s, copy %5.2f GB/s, ratio %.2f, first call %.3f s, then %.3f s")
      :format(name, report.sent_bytes / 1e6, report.local_bytes / 1e6, bytes / move / 1e9, bytes / limit / 1e9,
        limit / move, plan, move))
  end
  collectgarbage()
end

if ranks < 2 then zt.log.warn("transfer.lua: a single rank sends nothing: run it under mpirun -n 2") end
row("zero3 to whole, fp32", LAYOUTS.zero3("fp32"), LAYOUTS.whole("fp32"))
row("zero3 to whole, bf16", LAYOUTS.zero3("bf16"), LAYOUTS.whole("bf16"))
row("fp32 masters to bf16", LAYOUTS.zero3("fp32"), LAYOUTS.whole("bf16"))
row("zero3 to tp, bf16", LAYOUTS.zero3("bf16"), LAYOUTS.tp("bf16"))
row("tp to zero3, fp32", LAYOUTS.tp("fp32"), LAYOUTS.zero3("fp32"))
