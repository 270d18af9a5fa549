-- Transfers again and again until rank 1, which kills its own process, is gone. For killed_transfer_test.lua.
package.path = "tests/lua/?.lua;" .. package.path
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local mesh = comm.mesh{dp = -1}
local function program() return zt.program(nn.gpt{layers = 4, hidden = 256, heads = 4, vocab = 512, seq = 16}) end
local from = zt.trainer(program():apply(zero.shard{axis = mesh.dp, stage = 3}), {optimizer = optim.sgd{lr = 1}})
local to = zt.trainer(program(), {separate = true})
zt.transfer(from, to)
if zt.world.rank == 1 then os.execute "(sleep 0.3; kill -9 $PPID) &" end
for _ = 1, 1e7 do zt.transfer(from, to, {bucket_bytes = 4096}) end
