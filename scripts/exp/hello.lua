-- Shows the collectives, each with a result that is easy to compute by hand.
--
--   ztoolkit run -n 4 scripts/exp/hello.lua
--   ztoolkit run --threads 4 scripts/exp/hello.lua
local zt = require "zt"
local comm = require "zt.comm"

zt.cli{name = "hello", about = "Shows the collectives.", options = {}}

local mesh = comm.mesh{dp = -1} -- all ranks along one axis, "dp"
local dp = mesh.dp
local rank, size = dp.coordinate, dp.size
print(("hello from rank %d of %d"):format(rank, size))
dp:barrier()

-- Prints the `text` of every rank, on rank 0. Collective.
local function show(what, text)
  local all = dp:gather_values(text) -- any plain Lua value
  if rank == 0 then print(("%-15s %s"):format(what, table.concat(all, "   "))) end
end
local function row(tensor) return "[" .. table.concat(tensor:tolist(), " ") .. "]" end

-- all_reduce: every rank gets the sum. Each rank gives rank + 1, so the sum over W ranks is W(W+1)/2.
local x = zt.full({3}, rank + 1)
dp:all_reduce(x)
assert(x:eq(size * (size + 1) / 2):all():item())
show("all_reduce", row(x))

local largest = zt.full({1}, rank)
dp:all_reduce(largest, {op = "max"})
assert(largest:item() == size - 1)
show("... max", row(largest))

-- broadcast: every rank gets the root's tensor. Here the root is the last rank.
local b = zt.full({2}, rank)
dp:broadcast(b, size - 1)
show("broadcast", row(b))

-- all_gather: every rank gets the parts of all ranks, in rank order.
local gathered = zt.empty({size})
dp:all_gather(gathered, zt.full({1}, 10 * rank))
assert(gathered:eq(zt.arange(size) * 10):all():item())
show("all_gather", row(gathered))

-- reduce_scatter: every rank gets its part of the sum.
local part = zt.empty({2})
dp:reduce_scatter(part, zt.arange(2 * size, {dtype = "float32"}))
assert(part:eq(zt.tensor{2 * rank, 2 * rank + 1} * size):all():item())
show("reduce_scatter", row(part))

-- all_to_all: part p of a rank's tensor goes to rank p.
local swapped = zt.empty({size})
dp:all_to_all(swapped, zt.arange(size, {dtype = "float32"}) + 100 * rank)
assert(swapped:eq(zt.arange(size) * 100 + rank):all():item())
show("all_to_all", row(swapped))

-- send and recv: a number travels around the ring of ranks, and each rank adds its own number. One rank alone cannot send.
if size > 1 then
  local number = zt.zeros({1})
  if rank > 0 then dp:recv(number, rank - 1) end
  dp:send(number + rank, (rank + 1) % size)
  if rank == 0 then
    dp:recv(number, size - 1)
    assert(number:item() == size * (size - 1) / 2)
  end
  show("ring", row(number))
end

-- async: the call returns at once; the result is valid after wait().
local slow = zt.ones({1000000})
local work = dp:all_reduce(slow, {async = true})
local meanwhile = zt.ones({100, 100}):mm(zt.ones({100, 100})):sum():item() -- overlaps with the all_reduce
work:wait()
assert(slow:eq(size):all():item() and meanwhile == 1e6)
show("async", slow[0]:item())

if rank == 0 then print "all as expected" end
