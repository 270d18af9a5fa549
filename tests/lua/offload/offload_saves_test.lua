-- Tests checkpoints of data that lie in files. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt = require "zt.ckpt"
local assert_same = require("support.small_trainer").assert_same
local small = require "offload.moved_trainers"
local program_of, moved, trainer_of, batch = small.program_of, small.moved, small.trainer_of, small.batch
local folder, mesh = small.folder, small.mesh

local TestOffloadSaves = {}

-- A checkpoint of data in files loads where they lie in memory, and the other way round.
function TestOffloadSaves:test_checkpoints()
  local options = {stage = 3, precision = "bf16"}
  local a, b = trainer_of(program_of(options), options), trainer_of(moved(options), options)
  for step = 1, 2 do
    a:step(batch(step))
    b:step(batch(step))
  end
  ckpt.save(folder .. "/plain", {trainer = a}, {step = 2, async = false})
  ckpt.save(folder .. "/moved", {trainer = b}, {step = 2})
  b:step(batch(3)) -- the save is complete
  for _, name in ipairs{"plain", "moved"} do
    local c, d = trainer_of(moved(options), options), trainer_of(program_of({stage = 1, precision = "bf16"}), options)
    ckpt.load(folder .. "/" .. name, {trainer = c})
    assert_same(a, c, " loaded by " .. name)
    ckpt.load(folder .. "/" .. name, {trainer = d})
    assert_same(a, d, " loaded at another stage from " .. name)
    lu.assertEquals(c:step(batch(3)).loss, d:step(batch(3)).loss)
  end
end

-- Waits for the save in the background, and raises its error.
local function wait_for_save() ckpt.save(folder .. "/other", {note = 1}, {mesh = mesh, async = false}) end

-- The next steps change the data while a thread writes them.
function TestOffloadSaves:test_steps_beside_a_save()
  for i, move in ipairs{{}, {ratio = 0.5, checksum = true}} do
    local options = {stage = 3, precision = "bf16"}
    local a, b = trainer_of(program_of(options), options), trainer_of(moved(options, move), options)
    for step = 1, 6 do
      b:step(batch(step))
      ckpt.save(folder .. "/beside" .. i, {trainer = b}, {step = step})
    end
    wait_for_save()
    for step = 1, 3 do a:step(batch(step)) end
    local third = trainer_of(moved(options), options)
    ckpt.load(folder .. "/beside" .. i .. "/step_00000003", {trainer = third})
    assert_same(a, third, " saved beside steps")
    for step = 4, 6 do a:step(batch(step)) end
    assert_same(a, b, " after saves")
  end
end

-- A save that fails keeps nothing from being changed.
function TestOffloadSaves:test_a_save_that_fails()
  local options = {stage = 1}
  local a, b = trainer_of(program_of(options), options), trainer_of(moved(options), options)
  b:step(batch(1))
  ckpt.save(folder .. "/lost", {trainer = b}, {step = 1})
  mesh:world():barrier()
  if zt.world.rank == 0 then os.execute(("rm -rf '%s/lost'"):format(folder)) end
  for step = 2, 4 do b:step(batch(step)) end
  pcall(wait_for_save)
  for step = 1, 4 do a:step(batch(step)) end
  assert_same(a, b, " after a save that may have failed")
end

small.run("TestOffloadSaves", TestOffloadSaves)
