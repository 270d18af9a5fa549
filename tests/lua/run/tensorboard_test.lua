-- Tests the event files of TensorBoard that zt.run{tensorboard = true} writes, with a reader of its own.
-- tests/oracle/read_tensorboard.py reads such files with TensorBoard's own code.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local crc = require "zt.run.formats.crc"
local decode = require "support.decode"
local protobuf = require "zt.run.formats.protobuf"
local temporary = require "support.temporary"

-- Returns the events of a file: {time =, step =, version =, restart =, scalars = {name = value}}.
local function events_of(path)
  local out = {}
  for index, data in ipairs(decode.tfrecords(zt.fs.read(path))) do
    local event = {}
    for _, field in ipairs(decode.message(data)) do
      local number, value = field[1], field[2]
      if number == 1 then event.time = value end
      if number == 2 then event.step = value end
      if number == 3 then event.version = value end
      if number == 7 then event.restart = decode.message(value) end
      if number == 5 then
        event.scalars = {}
        for _, item in ipairs(decode.message(value)) do
          local scalar = decode.message(item[2])
          lu.assertEquals({item[1], scalar[1][1], scalar[2][1], #scalar}, {1, 1, 2, 2})
          event.scalars[scalar[1][2]] = scalar[2][2]
        end
      end
    end
    out[index] = event
  end
  return out
end

local TestTensorboard = {}

function TestTensorboard:setUp()
  zt.log.set_level "error"
  self.folder = temporary()
end

function TestTensorboard:open(more)
  local options = {name = "a", folder = self.folder, steps = 1000, tensorboard = true}
  for key, value in pairs(more or {}) do options[key] = value end
  return zt.run(options)
end

function TestTensorboard:files() return zt.fs.list(self.folder .. "/a/tensorboard") end
function TestTensorboard:events(place) return events_of(self.folder .. "/a/tensorboard/" .. self:files()[place]) end

function TestTensorboard:test_every_number_is_written()
  local before = os.time()
  local run = self:open()
  run:log(0, {loss = 0.1, count = 3, text = "x", flag = true, terms = {main = 2}, stats = {["a.load"] = {1, 2}, norm = 0.5}})
  local values = {loss = 0 / 0, huge = math.huge}
  run:log(300, values)
  run:log(300, {text = "no number"})
  lu.assertEquals(#self:events(1), 3) -- the system has them before the run ends
  run:finish()
  lu.assertEquals(#self:files(), 1)
  lu.assertStrMatches(self:files()[1], "events%.out%.tfevents%.%d%d%d%d%d%d%d%d%d%d%.[^/]+%.%d+%.0")
  local events = self:events(1)
  lu.assertEquals(events[1].version, "brain.Event:2")
  for _, event in ipairs(events) do lu.assertTrue(event.time >= before and event.time <= os.time() + 1) end
  local rounded = decode.number("float", protobuf.float(1, 0.1), 2)
  lu.assertAlmostEquals(rounded, 0.1, 2^-27)
  lu.assertEquals(events[2].step, 0)
  lu.assertEquals(events[2].scalars, {loss = rounded, count = 3, ["terms/main"] = 2, ["stats/norm"] = 0.5})
  lu.assertEquals(events[3].step, 300)
  lu.assertTrue(events[3].scalars.loss ~= events[3].scalars.loss)
  lu.assertEquals(events[3].scalars.huge, math.huge)
end

function TestTensorboard:test_a_resumed_run_restarts()
  local run = self:open()
  for step = 0, 3 do run:log(step, {loss = step}) end
  run:finish()
  run = self:open{resume = true}
  lu.assertEquals(#self:files(), 1) -- nothing changes before the checkpoint is there
  run:rewind(2)
  run:log(2, {loss = 20})
  run:finish()
  lu.assertEquals(#self:files(), 2)
  local events = self:events(2)
  lu.assertEquals({events[1].version, events[2].step, events[2].restart}, {"brain.Event:2", 2, {{1, 1}}})
  lu.assertEquals({events[3].step, events[3].scalars}, {2, {loss = 20}})
  lu.assertEquals(#self:events(1), 5)
end

function TestTensorboard:test_names_ascend_and_overwrite_removes_them()
  local path = self.folder .. "/a/tensorboard/"
  self:open():finish()
  zt.write_file(path .. "events.out.tfevents.9999999998.other.1.0", "")
  self:open{resume = true}:finish()
  lu.assertStrContains(self:files()[3], "tfevents.9999999999.")
  zt.write_file(path .. "notes", "mine")
  self:open{overwrite = true, tensorboard = false}:finish()
  lu.assertEquals(self:files(), {"notes"})
  os.remove(path .. "notes")
  self:open{overwrite = true}:finish()
  lu.assertEquals(#self:files(), 1)
  self:open{overwrite = true, tensorboard = false}:finish()
  lu.assertFalse(zt.exists(path))
end

local TestBytes = {}

-- The check values of the catalogue of parametrised CRC algorithms, and examples of the encoding's documentation.
function TestBytes:test_known_values()
  lu.assertEquals(crc.castagnoli "123456789", 0xe3069283)
  lu.assertEquals(crc.ieee "123456789", 0xcbf43926)
  lu.assertEquals({crc.castagnoli "", crc.ieee ""}, {0, 0})
  lu.assertEquals(protobuf.integer(1, 150), "\8\150\1")
  lu.assertEquals(protobuf.integer(1, 0), "\8\0")
  lu.assertEquals(protobuf.bytes(2, "testing"), "\18\7testing")
  lu.assertEquals(decode.message(protobuf.integer(20, 2^53)), {{20, 2^53}})
  lu.assertEquals(decode.message(protobuf.double(3, -0.1)), {{3, -0.1}})
  lu.assertEquals(protobuf.unsigned(32, 0x01020304), "\4\3\2\1")
  local text = {}
  for byte = 0, 255 do text[#text + 1] = string.char(byte) end
  text = table.concat(text)
  lu.assertEquals(crc.castagnoli(text), decode.crc(0x82f63b78, text))
  lu.assertEquals(crc.ieee(text), decode.crc(0xedb88320, text))
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestTensorboard", TestTensorboard}, {"TestBytes", TestBytes}})
