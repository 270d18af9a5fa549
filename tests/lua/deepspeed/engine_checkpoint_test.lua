-- Tests the engine's save_checkpoint, load_checkpoint and save_16bit_model. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local small = require "support.small_engine"
local temporary = require "support.temporary"
local safetensors = require "support.safetensors"

local batch, engine_of, assert_same = small.batch, small.engine_of, small.assert_same

local ADAM = {type = "Adam", params = {lr = 0.01}}
local SCHEDULE = {
  type = "WarmupLR", params = {warmup_min_lr = 0, warmup_max_lr = 0.1, warmup_num_steps = 10, warmup_type = "linear"},
}

local function adam(stage, more)
  local config = {optimizer = ADAM, scheduler = SCHEDULE, zero_optimization = {stage = stage}}
  for key, value in pairs(more or {}) do config[key] = value end
  return engine_of(config)
end

local function trained(stage, steps)
  local engine = adam(stage)
  for step = 0, steps - 1 do engine:train_batch(batch(step)) end
  return engine
end

local TestEngineCheckpoint = {}

function TestEngineCheckpoint:setUp()
  zt.log.set_level "error"
  self.folder = temporary()
end

function TestEngineCheckpoint:test_it_goes_on_at_any_stage()
  local engine = trained(1, 3)
  lu.assertTrue(engine:save_checkpoint(self.folder, nil, {epoch = 2, name = "x"}))
  for stage = 0, 3 do
    local other = adam(stage)
    local path, client = other:load_checkpoint(self.folder)
    lu.assertEquals(path, self.folder .. "/global_step3")
    lu.assertEquals(client, {epoch = 2, name = "x"})
    lu.assertEquals({other.global_steps, other.micro_steps, other.global_samples},
                    {engine.global_steps, engine.micro_steps, engine.global_samples})
    lu.assertEquals(other:get_lr(), engine:get_lr())
    assert_same(other, engine)
  end
  local other = adam(1)
  other:load_checkpoint(self.folder, "global_step3")
  for step = 3, 5 do lu.assertEquals(other:train_batch(batch(step)), engine:train_batch(batch(step))) end
  assert_same(other, engine)
end

function TestEngineCheckpoint:test_tags_and_latest()
  local engine = trained(2, 1)
  engine:save_checkpoint(self.folder, "first")
  engine:train_batch(batch(1))
  engine:save_checkpoint(self.folder, "second")
  local other = adam(0)
  lu.assertEquals((other:load_checkpoint(self.folder)), self.folder .. "/second")
  assert_same(other, engine)
  lu.assertEquals((other:load_checkpoint(self.folder, "first")), self.folder .. "/first")
  lu.assertEquals(other.global_steps, 1)
  engine:save_checkpoint(self.folder, "first") -- replaces the first one
  other:load_checkpoint(self.folder, "first")
  assert_same(other, engine)
  lu.assertErrorMsgContains("there is no checkpoint in", other.load_checkpoint, other, self.folder, "third")
  for _, tag in ipairs {"", "a/b", "..", "latest"} do
    lu.assertErrorMsgContains("a tag is the name of a folder", engine.save_checkpoint, engine, self.folder, tag)
  end
  local path, client = other:load_checkpoint(self.folder .. "/none")
  lu.assertNil(path)
  lu.assertEquals(client, {})
end

function TestEngineCheckpoint:test_parts()
  local engine = trained(1, 3)
  engine:save_checkpoint(self.folder)
  local module_only = trained(1, 1)
  module_only:load_checkpoint(self.folder, nil, {load_module_only = true})
  assert_same(module_only, engine)
  lu.assertEquals(module_only.global_steps, 1)

  local fresh = adam(1)
  fresh:load_checkpoint(self.folder, nil, {load_optimizer_states = false})
  assert_same(fresh, engine)
  lu.assertEquals(fresh.global_steps, 3)
  lu.assertEquals(fresh.trainer:optimizer_state("embedding.weight").exp_avg:abs():max():item(), 0)

  local schedule = adam(1)
  schedule:load_checkpoint(self.folder, nil, {load_lr_scheduler_states = false})
  lu.assertEquals(schedule:get_lr(), adam(1):get_lr())
  lu.assertErrorMsgContains("unknown option 'load_modul_only': did you mean 'load_module_only'?", fresh.load_checkpoint, fresh,
                            self.folder, nil, {load_modul_only = true})
end

function TestEngineCheckpoint:test_another_checkpoint()
  local engine = trained(1, 2)
  require("zt.ckpt").save(self.folder .. "/plain", {trainer = engine.trainer}, {async = false, mesh = engine.mesh})
  local other = adam(1)
  lu.assertErrorMsgContains("not in the checkpoint", other.load_checkpoint, other, self.folder, "plain")
  lu.assertEquals(other.global_steps, 0)
  local _, client = other:load_checkpoint(self.folder, "plain", {load_module_strict = false})
  lu.assertEquals(client, {})
  assert_same(other, engine)
end

-- 3 steps read 3 batches; an engine with twice the samples per step continues with the samples after them.
function TestEngineCheckpoint:test_the_data_stream_continues()
  local data = require "zt.data"
  local tokens = temporary() .. zt.world.rank
  zt.write_file(tokens .. ".txt", ("\1\2\3\4\5\6\7\8"):rep(200))
  data.tokenize{input = tokens .. ".txt", output = tokens .. ".npy", tokenizer = data.tokenizer.bytes()}
  local mesh = require("zt.comm").mesh{dp = -1}
  local function engine_with(parts)
    local stream = data.tokens{
      path = tokens .. ".npy", seq = small.seq, batch = small.micro * parts * zt.world.size, seed = 1, axis = mesh.dp,
    }
    local config = {optimizer = ADAM, gradient_accumulation_steps = parts}
    return engine_of(config, {data = stream, mesh = mesh, axis = mesh.dp}), stream
  end
  local engine, stream = engine_with(2)
  for _ = 1, 3 do engine:train_batch() end
  lu.assertEquals(stream.step, 3)
  engine:save_checkpoint(self.folder)
  local other, next_stream = engine_with(4)
  other:load_checkpoint(self.folder)
  local rows = small.micro * 4
  lu.assertEquals(next_stream:batch(3).sample:tolist()[1], 3 * stream.batch_size + zt.world.rank * rows)
  other:train_batch()
  lu.assertEquals(next_stream.step, 4)
end

-- One rank gives a tag and the other does not.
function TestEngineCheckpoint:test_a_tag_on_one_rank()
  if zt.world.size == 1 then return end
  local engine = trained(1, 1)
  engine:save_checkpoint(self.folder, "first")
  local tag = zt.world.rank == 0 and "first" or nil
  lu.assertEquals((adam(1):load_checkpoint(self.folder, tag)), self.folder .. "/first")
  local strict = adam(0, {checkpoint = {tag_validation = "fail"}})
  lu.assertErrorMsgContains("'first' on rank 0, 'nil' on rank 1", strict.load_checkpoint, strict, self.folder, tag)
end

function TestEngineCheckpoint:test_tags_that_differ_between_ranks()
  if zt.world.size == 1 then return end
  local tag = "rank" .. zt.world.rank
  local strict = adam(0, {checkpoint = {tag_validation = "fail"}})
  lu.assertErrorMsgContains("ranks name different tags: 'rank0' on rank 0, 'rank1' on rank 1", strict.save_checkpoint, strict,
                            self.folder, tag)
  adam(0):save_checkpoint(self.folder, tag)
  lu.assertTrue(zt.exists(self.folder .. "/rank0/latest"))
  lu.assertFalse(zt.exists(self.folder .. "/rank1"))
end

function TestEngineCheckpoint:test_in_the_middle_of_a_step()
  local engine = adam(0)
  engine:backward(engine:forward(small.micro_batch(0, 0)))
  lu.assertErrorMsgContains("engine:save_checkpoint: a step is under way", engine.save_checkpoint, engine, self.folder)
end

function TestEngineCheckpoint:test_save_16bit_model()
  for stage = 0, 3, 3 do
    local engine = adam(stage, {bf16 = {enabled = true}})
    engine:train_batch(batch(0))
    lu.assertErrorMsgContains("give a name that ends in .safetensors", engine.save_16bit_model, engine, self.folder,
                              "pytorch_model.bin")
    engine:save_16bit_model(self.folder, stage .. ".safetensors")
    engine.mesh:world():barrier()
    local tensors = safetensors.read(self.folder .. "/" .. stage .. ".safetensors")
    for _, name in ipairs(engine.trainer:parameters()) do
      local values = engine.trainer:parameter(name)
      lu.assertEquals(tensors[name]:dtype(), "bfloat16")
      lu.assertTrue(tensors[name]:equal(values))
    end
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestEngineCheckpoint", TestEngineCheckpoint}})
