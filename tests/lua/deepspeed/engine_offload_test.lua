-- Tests zt.initialize with the JSON's keys of offloading: an engine trains with the same bits, wherever its data lie. Also runs
-- on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm = require "zt.comm"
local nn = require "zt.nn"
local small = require "support.small_engine"
local stand_ins = require "support.stand_ins"
local temporary = require "support.temporary"

local assert_same, batch = require("support.small_trainer").assert_same, small.batch
local ranks = comm.mesh{dp = -1}:world()
local ADAM = {type = "AdamW", params = {lr = 0.01, weight_decay = 0.1}}

-- Units of more than 4,096 elements, so that a rank owns several slices.
local function gpt()
  return nn.gpt{layers = 2, hidden = 48, heads = 2, vocab = small.vocab, seq = small.seq, seed = 3}
end

local function engine_of(zero, more)
  zero.sub_group_size = 4096
  local config = {optimizer = ADAM, zero_optimization = zero}
  for key, value in pairs(more or {}) do config[key] = value end
  return small.engine_of(config, {model = gpt()})
end

local TestEngineOffload = {}

function TestEngineOffload:setUp()
  self.folder = temporary()
  self.made = self.folder .. "/deep/inside" -- the engine makes it
end

function TestEngineOffload:tearDown()
  ranks:barrier()
  if zt.world.rank == 0 then os.execute("rm -rf '" .. self.folder .. "'") end
end

-- Returns the keys of zero_optimization that move data to files, by stage; `more` goes to the optimizer's block.
function TestEngineOffload:in_files(stage, more)
  local zero = {stage = stage, offload_optimizer = {device = "nvme", nvme_path = self.made}}
  for key, value in pairs(more or {}) do zero.offload_optimizer[key] = value end
  if stage == 3 then zero.offload_param = {device = "nvme", nvme_path = self.made} end
  return zero
end

function TestEngineOffload:test_files_change_no_bit()
  for _, stage in ipairs {1, 3} do
    for _, more in ipairs {{}, {bf16 = {enabled = true}}} do
      local plain, moved = engine_of({stage = stage}, more), engine_of(self:in_files(stage), more)
      lu.assertTrue(moved.trainer:memory().files.predicted > 0)
      lu.assertNil(plain.trainer:memory().files)
      for step = 0, 1 do
        lu.assertEquals(moved:train_batch(batch(step)), plain:train_batch(batch(step)))
        lu.assertEquals(moved:get_global_grad_norm(), plain:get_global_grad_norm())
      end
      lu.assertEquals(small.three_calls(moved, 2), small.three_calls(plain, 2))
      lu.assertEquals(moved:eval_batch(batch(3)), plain:eval_batch(batch(3)))
      assert_same(plain.trainer, moved.trainer)
    end
  end
end

function TestEngineOffload:test_host_memory_changes_no_bit()
  local plain = engine_of{stage = 3}
  local moved = engine_of{stage = 3, offload_optimizer = {device = "cpu"}, offload_param = {device = "cpu"}}
  lu.assertNil(moved.trainer:memory().files)
  for step = 0, 1 do lu.assertEquals(moved:train_batch(batch(step)), plain:train_batch(batch(step))) end
  assert_same(plain.trainer, moved.trainer)
end

function TestEngineOffload:test_a_share_travels()
  local function files(zero) return engine_of(zero).trainer:memory().files.predicted end
  local all = files(self:in_files(1))
  local half = files(self:in_files(1, {ratio = 0.5}))
  lu.assertTrue(half > 0 and half < 0.75 * all, half / all) -- files have whole blocks
  local zero = self:in_files(3)
  local whole = files(zero)
  zero.offload_param.max_in_cpu = 5000
  lu.assertTrue(files(zero) < whole - 5000)
end

function TestEngineOffload:test_the_disk()
  local plain = engine_of{stage = 1}
  local moved = engine_of(self:in_files(1), {aio = {block_size = 4096, queue_depth = 2}})
  for step = 0, 1 do lu.assertEquals(moved:train_batch(batch(step)), plain:train_batch(batch(step))) end
end

-- A checkpoint of an engine with offloading loads without it, and the other way round.
function TestEngineOffload:test_checkpoints()
  local plain, moved = engine_of{stage = 1}, engine_of(self:in_files(3))
  moved:train_batch(batch(0))
  moved:save_checkpoint(self.folder, "moved")
  plain:load_checkpoint(self.folder, "moved")
  assert_same(plain.trainer, moved.trainer)
  plain:train_batch(batch(1))
  plain:save_checkpoint(self.folder, "plain")
  moved:load_checkpoint(self.folder, "plain")
  assert_same(plain.trainer, moved.trainer)
end

function TestEngineOffload:test_what_passes_get()
  local function built(zero)
    local _, given = stand_ins.build{zero_optimization = zero, aio = {block_size = 8192, queue_depth = 4}}
    return given
  end
  local given = built(self:in_files(1, {ratio = 0.5}))
  lu.assertEquals(given.passes, {"shard", "move"})
  lu.assertEquals(given.offload, {optimizer = "nvme", gradients = "nvme", folder = {self.made}, ratio = 0.5, block = 8192,
                                  depth = 4})
  lu.assertEquals({given.made, given.shard.node_shared}, {self.made, nil})
  lu.assertEquals(built(self:in_files(3)).shard.node_shared, false)
  given = built{stage = 3, offload_param = {device = "cpu"}}
  lu.assertEquals({given.offload, given.made, given.shard.node_shared}, {{parameters = "host"}, nil, nil})
  given = built{stage = 3}
  lu.assertEquals({given.passes, given.offload, given.shard.node_shared}, {{"shard"}, nil, nil})
end

function TestEngineOffload:test_mistakes()
  zt.mkdir_p(self.folder)
  ranks:barrier()
  if zt.world.rank == 0 then zt.write_file(self.folder .. "/deep", "a file where a folder is needed") end
  ranks:barrier()
  lu.assertErrorMsgContains("cannot make the folder '" .. self.made .. "'", engine_of, self:in_files(1))
  os.remove(self.folder .. "/deep")
  lu.assertErrorMsgContains("muon updates ", engine_of, self:in_files(1), {optimizer = {type = "Muon"}})
end

-- One rank cannot make its folder: all of them say so.
function TestEngineOffload:test_a_folder_that_one_rank_cannot_make()
  local undo = stand_ins.replace{{zt, "mkdir_p", function()
    if zt.world.rank == zt.world.size - 1 then error("cannot make it", 0) end
  end}}
  local is_done, message = pcall(engine_of, self:in_files(1))
  undo()
  lu.assertFalse(is_done)
  lu.assertStrContains(message, "cannot make it")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestEngineOffload", TestEngineOffload}})
