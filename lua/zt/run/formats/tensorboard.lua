--- Writes event files of TensorBoard: numbers by name and step.
--
--   local events = tensorboard.open("runs/gpt/tensorboard")
--   events:add(0, {{"loss", 2.5}, {"lr", 0.1}})
--   events:close()
--
-- A file is a sequence of records of TFRecord: the length (8 bytes), its check, the data, their check. The data are an `Event` of
-- tensorflow/core/util/event.proto. Each call of `open` makes a file of its own, as TensorBoard expects of each start: it reads
-- the files of a folder in the order of their names, which begin with the time, and each to its end.

local bit = require "bit"
local core = require "zt.core"
local crc = require "zt.run.formats.crc"
local ffi = require "ffi"
local fs = require "zt.fs"
local methods = require "zt.methods"
local protobuf = require "zt.run.formats.protobuf"
local wall_time = require "zt.run.formats.wall_time"

ffi.cdef "int getpid(void);"

-- Numbers of the fields of the messages.
local EVENT = {wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7}
local SUMMARY = {value = 1}
local VALUE = {tag = 1, simple_value = 2}
local SESSION_LOG = {status = 1}

local START = 1 -- SessionLog.START: TensorBoard forgets what earlier records say of this step and later ones
local NAME = "events.out.tfevents."

local tensorboard = {}
local Events = {__name = "Events"}

-- Returns the check of TFRecord: CRC-32C, rotated and added to a constant, so that checks of checks do not cancel.
local function check_of(text)
  return protobuf.unsigned(32, (bit.ror(crc.castagnoli(text), 15) + 0xa282ead8) % 2^32)
end

local function record(data)
  local length = protobuf.unsigned(64, #data)
  return length .. check_of(length) .. data .. check_of(data)
end

function Events:write(fields) self.file:write(record(protobuf.double(EVENT.wall_time, wall_time()) .. fields)) end

--- Writes the numbers of step `step`, a list {{name, value}, ...}. The system has them when the call returns. A number is rounded
-- to 32 bits. Does nothing for an empty list.
function Events:add(step, scalars)
  if #scalars == 0 then return end
  local values = {}
  for index, scalar in ipairs(scalars) do
    values[index] = protobuf.bytes(SUMMARY.value, protobuf.bytes(VALUE.tag, scalar[1])
      .. protobuf.float(VALUE.simple_value, scalar[2]))
  end
  self:write(protobuf.integer(EVENT.step, step) .. protobuf.bytes(EVENT.summary, table.concat(values)))
end

--- Tells TensorBoard that the run goes on at step `step`: it shows no earlier record of this step and later ones, in no file.
function Events:restart(step)
  self:write(protobuf.integer(EVENT.step, step)
    .. protobuf.bytes(EVENT.session_log, protobuf.integer(SESSION_LOG.status, START)))
end

function Events:close() self.file:close() end

methods(Events, "events", {})

-- Returns the seconds for the name of a new file: now, or later if a file with that time exists.
local function seconds_of(folder)
  local seconds = math.floor(wall_time())
  for _, name in ipairs(fs.list(folder)) do
    local earlier = name:sub(1, #NAME) == NAME and tonumber(name:match("^%d+", #NAME + 1))
    if earlier then seconds = math.max(seconds, earlier + 1) end
  end
  return seconds
end

--- Makes a new file in `folder`, which it makes too. Its name comes after those of the earlier files.
function tensorboard.open(folder)
  core.mkdir_p(folder)
  local host = fs.read("/proc/sys/kernel/hostname"):match "%S+" or "localhost"
  local path = ("%s/%s%010d.%s.%d.0"):format(folder, NAME, seconds_of(folder), host, ffi.C.getpid())
  local self = setmetatable({path = path, file = fs.append(path)}, Events)
  self:write(protobuf.bytes(EVENT.file_version, "brain.Event:2"))
  return self
end

--- Removes the files that `open` has made in `folder`, and the folder if nothing else is in it.
function tensorboard.remove(folder)
  if not core.exists(folder) then return end
  for _, name in ipairs(fs.list(folder)) do
    if name:sub(1, #NAME) == NAME then fs.remove(folder .. "/" .. name) end
  end
  if #fs.list(folder) == 0 then fs.remove(folder) end
end

return tensorboard
