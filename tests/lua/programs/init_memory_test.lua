-- Tests that initial values are made in their final buffers: no rank ever holds more than its shards and some layers. Runs on 4
-- ranks.
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local LAYERS, HIDDEN = 40, 512
local LAYER = 12 * HIDDEN * HIDDEN + 13 * HIDDEN
local SLACK = 6 * 2 ^ 20 -- bytes for the allocator, the blocks in which initial values are drawn, and code that runs first

-- Returns a field of /proc/self/status in bytes.
local function status(field)
  for line in io.lines "/proc/self/status" do
    local kib = line:match("^" .. field .. ":%s*(%d+) kB")
    if kib then return 1024 * tonumber(kib) end
  end
end

-- Calls make(). Returns the increase of the peak resident memory in bytes, and the result of make().
local function peak_of(make)
  collectgarbage()
  local reset = assert(io.open("/proc/self/clear_refs", "w"))
  reset:write "5"
  reset:close()
  local before = status "VmHWM"
  local made = make()
  return status "VmHWM" - before, made
end

local mesh = comm.mesh{dp = -1, backend = zt.world.size > 1 and "mpi" or nil}

local function trainer(layers, has_optimizer)
  local model = nn.gpt{layers = layers, hidden = HIDDEN, heads = 8, vocab = 512, seq = 16, tied = false}
  local program = zt.program(model, {precision = {params = "bf16", grads = "bf16"}})
    :apply(zero.shard{stage = 3, axis = mesh.dp, node_shared = false})
  return zt.trainer(program, {optimizer = has_optimizer and optim.adamw{lr = 1e-3} or nil})
end

local TestInit = {}

function TestInit:setUp() lu.skipIf(os.getenv "ZT_TEST_SANITIZER", "a sanitizer keeps what was freed") end

function TestInit:test_parameters_alone()
  trainer(1, false) -- takes the memory that the first trainer of a process needs
  local peak = peak_of(function() return trainer(LAYERS, false) end)
  local shard = 2 * LAYERS * LAYER / mesh.dp.size
  lu.assertTrue(peak >= 0.9 * shard, ("%.1f MiB held at most, %.1f MiB are the shard"):format(peak / 2 ^ 20, shard / 2 ^ 20))
  lu.assertTrue(peak <= shard + 2 * LAYER + SLACK,
                ("%.1f MiB were held, the shard is %.1f"):format(peak / 2 ^ 20, shard / 2 ^ 20))
end

function TestInit:test_with_what_the_optimizer_keeps()
  trainer(1, true)
  local peak = peak_of(function() return trainer(LAYERS, true) end)
  local shards = 16 * LAYERS * LAYER / mesh.dp.size -- parameters, gradients, master, two averages of Adam
  lu.assertTrue(peak <= shards + 4 * LAYER + SLACK,
                ("%.1f MiB were held, the shards are %.1f"):format(peak / 2 ^ 20, shards / 2 ^ 20))
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestInit", TestInit}})
