-- Tests data that lie in host memory or in files while ranks compute on a device with memory of its own: the test device
-- (tests/support/test_device). Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt = require "zt.ckpt"
local nn, offload, zero = require "zt.nn", require "zt.offload", require "zt.zero"
local assert_same = require("support.small_trainer").assert_same
local small = require "offload.moved_trainers"
local batch, folder, mesh = small.batch, small.folder, small.mesh

local function trainer_of(options, move)
  local program = small.program_of(options)
  if move then
    move.folder, move.slice = {folder}, 4096
    program = program:apply(offload.move(move))
  end
  return small.trainer_of(program, options)
end

local TestOffloadDevice = {}

function TestOffloadDevice:test_is_on_the_device()
  local trainer = trainer_of{stage = 0}
  lu.assertEquals(trainer:parameter(trainer:parameters()[1]):device(), "test:0")
end

-- The bytes of each kind are measured as they are predicted.
function TestOffloadDevice:test_memory()
  for _, move in ipairs{
    {optimizer = "host"}, {optimizer = "host", step_on = "device"}, {optimizer = "nvme"},
    {optimizer = "nvme", step_on = "device"},
    {parameters = "host", gradients = "host"}, {optimizer = "host", parameters = "nvme", gradients = "nvme"},
    {activations = "host", activation_bytes = 1}, {activations = "nvme", optimizer = "host", activation_bytes = 1, ratio = 0.5},
  } do
    local trainer = trainer_of({stage = 3, precision = "bf16", recompute = 1}, move)
    trainer:step(batch(1))
    local memory = trainer:memory()
    for kind, bytes in pairs(memory) do
      if kind ~= "total" and kind ~= "activations" then lu.assertEquals(bytes.measured, bytes.predicted, kind) end
    end
    local moves_to = {}
    for _, kind in ipairs{"optimizer", "gradients", "parameters", "activations"} do
      if move[kind] then moves_to[move[kind]] = true end
    end
    local gradients_follow = move.optimizer and move.step_on ~= "device"
    lu.assertEquals(memory.host ~= nil, moves_to.host or gradients_follow or false)
    lu.assertEquals(memory.files ~= nil, moves_to.nvme or false)
  end
end

-- The text says where updates work.
function TestOffloadDevice:test_text()
  local on_host = trainer_of({stage = 1}, {optimizer = "host"}):text()
  lu.assertStrContains(on_host, "memory=host")
  lu.assertStrContains(on_host, "grads_home=host")
  local on_device = trainer_of({stage = 1}, {optimizer = "host", step_on = "device"}):text()
  lu.assertNotStrContains(on_device, "memory=host")
  lu.assertNotStrContains(on_device, "grads_home")
end

-- A checkpoint of data in host memory loads where they lie elsewhere. One that is saved beside steps has its own values.
function TestOffloadDevice:test_checkpoints()
  local options = {stage = 3, precision = "bf16"}
  local function moves() return {optimizer = "host", gradients = "host", parameters = "host"} end
  local a, b = trainer_of(options), trainer_of(options, moves())
  for step = 1, 5 do
    b:step(batch(step))
    ckpt.save(folder .. "/beside", {trainer = b}, {step = step})
    if step <= 3 then a:step(batch(step)) end
  end
  ckpt.save(folder .. "/other", {note = 1}, {mesh = mesh, async = false}) -- waits for the save
  for _, move in ipairs{moves(), {optimizer = "nvme", parameters = "nvme"}, false} do
    local loaded = trainer_of(options, move or nil)
    ckpt.load(folder .. "/beside/step_00000003", {trainer = loaded})
    assert_same(a, loaded, " loaded")
  end
  for step = 4, 5 do a:step(batch(step)) end
  assert_same(a, b, " after saves")
end

-- Evicted data go to host memory or to files, and come back; so do those that offload.move keeps in host memory.
function TestOffloadDevice:test_phases()
  local options = {stage = 2, precision = "bf16"}
  for _, move in ipairs{false, {optimizer = "host"}, {optimizer = "host", step_on = "device"}, {optimizer = "nvme"}} do
    local a, b = trainer_of(options), trainer_of(options, move or nil)
    for step, to in ipairs{"host", "nvme", "host"} do
      a:step(batch(step))
      b:step(batch(step))
      local held = b:memory()
      b:evict({"optimizer", "gradients", "parameters"}, {to = to, folder = to == "nvme" and folder or nil})
      local away = b:memory()
      lu.assertEquals({away.optimizer.measured, away.gradients.measured, away.parameters.measured}, {0, 0, 0})
      lu.assertTrue(away[to == "host" and "host" or "files"].measured >= held.parameters.measured)
      if move and move.optimizer == "host" and to == "nvme" then lu.assertEquals(away.host.measured, 0) end
      b:fetch()
      lu.assertEquals(b:memory().parameters.measured, held.parameters.measured)
      assert_same(a, b, " after " .. to)
    end
    lu.assertEquals(b:step(batch(4)).loss, a:step(batch(4)).loss)
  end
end

-- A Lua optimizer updates in host memory.
function TestOffloadDevice:test_lua_optimizer()
  local devices = {}
  local function optimizer()
    return zt.optimizer{name = "signs", scope = "element", lr = 1e-2, states = {sum = "like"}, step = function(info, p, g, state)
      devices[p:device()] = true
      state.sum:add_(g)
      p:add_(state.sum:sign(), {alpha = -info.lr})
    end}
  end
  local function trainer(move)
    local model = nn.gpt{layers = 1, hidden = 48, heads = 2, vocab = small.VOCAB, seq = small.SEQ, seed = 3}
    local program = zt.program(model):apply(zero.shard{axis = mesh.dp, stage = 1})
    if move then program = program:apply(offload.move(move)) end
    return zt.trainer(program, {optimizer = optimizer()})
  end
  local a, b = trainer(), trainer{optimizer = "host", slice = 4096}
  for step = 1, 3 do
    a:step(batch(step))
    b:step(batch(step))
  end
  assert_same(a, b, " after updates in Lua")
  lu.assertEquals(devices, {cpu = true, ["test:0"] = true})
end

small.run("TestOffloadDevice", TestOffloadDevice)
