-- Tests zt.deepspeed.config: the keys of offloading, which become the options of offload.move.
local lu = require "luaunit"
local ds = require "zt.deepspeed.config"
local offload = require "zt.offload"

-- Reads a configuration with the keys `zero` of zero_optimization at stage 3, and `more` at the top level.
local function read(zero, more)
  return ds.read(("{train_batch_size: 8, zero_optimization: {stage: 3, %s}, %s}"):format(zero, more or ""), {world = 4})
end

local function offload_of(...) return read(...).offload end

local function assert_refused(expected, ...) lu.assertErrorMsgContains(expected, read, ...) end

local function reasons_of(config)
  local out = {}
  for _, note in ipairs(config.notes) do out[note.key] = note.reason end
  return out
end

local OPTIMIZER = 'offload_optimizer: {device: "nvme", nvme_path: "/a"%s}'
local PARAMETERS = 'offload_param: {device: "nvme", nvme_path: "/b"%s}'
local function optimizer(more) return OPTIMIZER:format(more or "") end
local function parameters(more) return PARAMETERS:format(more or "") end

local TestOffload = {}

function TestOffload:test_places()
  lu.assertNil(offload_of "")
  lu.assertNil(offload_of 'offload_optimizer: {device: "none", ratio: 0.5}, offload_param: {pin_memory: true}')
  lu.assertEquals(offload_of 'offload_optimizer: {device: "cpu"}', {optimizer = "host", gradients = "host"})
  lu.assertEquals(offload_of(optimizer()), {optimizer = "nvme", gradients = "nvme", folder = {"/a"}})
  lu.assertEquals(offload_of 'offload_param: {device: "cpu"}', {parameters = "host"})
  lu.assertEquals(offload_of(parameters()), {parameters = "nvme", folder = {"/b"}})
  lu.assertEquals(offload_of('offload_optimizer: {device: "cpu"}, ' .. parameters()),
                  {optimizer = "host", gradients = "host", parameters = "nvme", folder = {"/b"}})
end

function TestOffload:test_every_stage_moves_the_optimizer()
  for stage = 0, 3 do
    local config = ds.read({train_batch_size = 8, zero_optimization = {stage = stage, offload_optimizer = {device = "cpu"}}},
                           {world = 4})
    lu.assertEquals(config.offload, {optimizer = "host", gradients = "host"})
  end
end

function TestOffload:test_folders()
  lu.assertEquals(offload_of(optimizer() .. ", " .. parameters()).folder, {"/a", "/b"})
  local same = 'offload_optimizer: {device: "nvme", nvme_path: "/a/"}, offload_param: {device: "nvme", nvme_path: "/a"}'
  lu.assertEquals(offload_of(same).folder, {"/a"})
  lu.assertEquals(offload_of('offload_optimizer: {device: "nvme", nvme_path: "/"}').folder, {"/"})
end

function TestOffload:test_what_travels()
  lu.assertEquals(offload_of(optimizer ", ratio: 0.25").ratio, 0.25)
  for precision, bytes in pairs {fp32 = 4, bf16 = 2, fp16 = 2} do
    local block = precision == "fp32" and "" or precision .. ": {enabled: true}"
    local moved = offload_of(optimizer ", ratio: 1" .. ", " .. parameters ", max_in_cpu: 1000", block)
    lu.assertEquals({moved.memory, moved.ratio}, {1000 * bytes, nil})
  end
  lu.assertEquals(offload_of(parameters ", max_in_cpu: 0").memory, 0)
end

function TestOffload:test_the_disk()
  local moved = offload_of(optimizer(), "aio: {block_size: 8192, queue_depth: 16, single_submit: true, overlap_events: false, "
    .. "intra_op_parallelism: 4, use_gds: false}")
  lu.assertEquals({moved.block, moved.depth}, {8192, 16})
  offload.move(moved) -- has these options
end

-- Keys that need files say so where there are none.
function TestOffload:test_keys_without_files()
  local config = read('offload_optimizer: {device: "cpu", nvme_path: "/a"}, offload_param: {device: "cpu", nvme_path: "/b", '
    .. "max_in_cpu: 5}", "aio: {block_size: 8192, queue_depth: 16}")
  lu.assertEquals(config.offload, {optimizer = "host", gradients = "host", parameters = "host"})
  local reasons, why = reasons_of(config), "no effect without device 'nvme'"
  for _, key in ipairs {"offload_optimizer.nvme_path", "offload_param.nvme_path", "offload_param.max_in_cpu"} do
    lu.assertEquals(reasons["zero_optimization." .. key], why)
  end
  for _, key in ipairs {"aio.block_size", "aio.queue_depth"} do
    lu.assertEquals(reasons[key], why .. " in offload_optimizer or offload_param")
  end
  lu.assertNil(offload_of("", "aio: {block_size: 8192, queue_depth: 16}"))
  config = read(optimizer())
  lu.assertNotStrContains(reasons_of(config)["zero_optimization.offload_optimizer.nvme_path"], "no effect")
end

function TestOffload:test_activations()
  lu.assertEquals(offload_of("", "activation_checkpointing: {cpu_checkpointing: true}"), {activations = "host"})
  lu.assertNil(offload_of("", "activation_checkpointing: {cpu_checkpointing: false}"))
end

function TestOffload:test_the_former_keys()
  lu.assertEquals(offload_of "cpu_offload: true", {optimizer = "host", gradients = "host"})
  lu.assertEquals(offload_of "cpu_offload_param: true, cpu_offload_use_pin_memory: false", {parameters = "host"})
  lu.assertNil(offload_of "cpu_offload: false, cpu_offload_param: false")
  lu.assertEquals(offload_of 'cpu_offload: true, offload_optimizer: {device: "cpu", ratio: 0.5}',
                  {optimizer = "host", gradients = "host", ratio = 0.5})
  assert_refused("zero_optimization.cpu_offload = true means zero_optimization.offload_optimizer.device = 'cpu', which is "
                 .. "'nvme': leave cpu_offload out", "cpu_offload: true, " .. optimizer())
  assert_refused("cpu_offload = true means zero_optimization.offload_optimizer.device = 'cpu', which is 'none'",
                 "cpu_offload: true, offload_optimizer: {ratio: 0.5}")
  assert_refused("cpu_offload_param = false means zero_optimization.offload_param.device = 'none', which is 'nvme'",
                 "cpu_offload_param: false, " .. parameters())
end

function TestOffload:test_mistakes()
  for _, block in ipairs {"offload_optimizer", "offload_param"} do
    for _, path in ipairs {"", ', nvme_path: ""', ", nvme_path: null"} do
      assert_refused(("zero_optimization.%s.device = 'nvme' needs zero_optimization.%s.nvme_path, a folder"):format(block, block),
                     block .. ': {device: "nvme"' .. path .. "}")
    end
    assert_refused("zero_optimization." .. block .. ".device must be 'none', 'cpu' or 'nvme', got 'disk'",
                   block .. ': {device: "disk"}')
  end
  assert_refused("ratio = 0.5 and zero_optimization.offload_param.max_in_cpu = 1000 both say how much stays in memory",
                 optimizer ", ratio: 0.5" .. ", " .. parameters ", max_in_cpu: 1000")
  assert_refused("zero_optimization.offload_optimizer.super_offload = true is refused: a second process",
                 optimizer ", super_offload: true")
  assert_refused("aio.block_size must be a multiple of 4096 bytes", "", "aio: {block_size: 1000}")
  assert_refused("aio.queue_depth must lie between 1 and 4096, got 5000", "", "aio: {queue_depth: 5000}")
  assert_refused("aio.use_gds = true is refused", "", "aio: {use_gds: true}")
  for key, more in pairs {
    ["offload_param.device"] = 'offload_param: {device: "cpu"}', cpu_offload_param = "cpu_offload_param: true",
  } do
    lu.assertErrorMsgContains(("zero_optimization.%s moves shards of parameters, and at stage 2"):format(key), ds.read,
                              ("{train_batch_size: 8, zero_optimization: {stage: 2, %s}}"):format(more), {world = 4})
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestOffload", TestOffload}})
