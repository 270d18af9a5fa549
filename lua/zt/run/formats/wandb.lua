--- Writes a run as an offline run of Weights & Biases, which `wandb sync` sends: FOLDER/offline-run-TIME-ID/run-ID.wandb.
--
-- The file begins with ":W&B", a number and a version. It is a log of LevelDB (leveldb/doc/log_format.md) with the CRC-32 of
-- zlib: blocks of 32 KiB with records of type FULL, or FIRST, MIDDLE, ..., LAST. Each record is a message `Record` of
-- wandb_internal.proto: a header, the run with its options, the history, the last values, and the run's end.

local check = require "zt.check"
local core = require "zt.core"
local crc = require "zt.run.formats.crc"
local fail = require "zt.fail"
local fs = require "zt.fs"
local methods = require "zt.methods"
local protobuf = require "zt.run.formats.protobuf"
local recorded = require "zt.run.formats.recorded"

local MAGIC, VERSION = 0xbee1, 0
local BLOCK, HEADER = 32768, 7
local FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4

-- Numbers of the fields of the messages.
local RECORD = {number = 1, history = 2, summary = 3, run = 17, exit = 18, header = 21}
local RUN = {id = 1, project = 3, config = 4, display_name = 8, start_time = 17}
local ITEM = {key = 1, json = 16} -- of the history, the summary and the configuration
local ITEMS = 1 -- the items of these three
local HISTORY_STEP, STEP_NUMBER = 2, 1
local HEADER_VERSION, PRODUCER, MIN_CONSUMER = 1, 1, 2
local TIME_SECONDS = 1
local EXIT = {code = 1, runtime = 2}
local CODES = {killed = 1, stopped = 75} -- of the process, by the state of a run; 0 for others

local wandb = {}
local Log = {__name = "Log"}

-- Writes a part of a record. Requires that it fits into the block.
function Log:write_part(kind, data)
  self.file:write(protobuf.unsigned(32, crc.ieee(string.char(kind) .. data)) .. protobuf.unsigned(16, #data)
    .. string.char(kind) .. data)
  self.place = (self.place + HEADER + #data) % BLOCK
end

-- Writes a record in as many parts as there are blocks.
function Log:write_data(data)
  local kind = FULL
  while true do
    local room = BLOCK - self.place
    if room < HEADER then
      self.file:write(("\0"):rep(room))
      self.place, room = 0, BLOCK
    end
    if #data <= room - HEADER then return self:write_part(kind == FULL and FULL or LAST, data) end
    self:write_part(kind == FULL and FIRST or MIDDLE, data:sub(1, room - HEADER))
    data, kind = data:sub(room - HEADER + 1), MIDDLE
  end
end

-- Writes the message `content` as a record's field `field`.
function Log:add(field, content)
  self.number = self.number + 1
  self:write_data(protobuf.integer(RECORD.number, self.number) .. protobuf.bytes(field, content))
end

methods(Log, "log", {})

local function open_log(path)
  fs.remove(path)
  local log = setmetatable({file = fs.append(path), place = HEADER, number = 0}, Log)
  log.file:write(":W&B" .. protobuf.unsigned(16, MAGIC) .. string.char(VERSION))
  return log
end

local function item(name, value)
  return protobuf.bytes(ITEMS, protobuf.bytes(ITEM.key, name) .. protobuf.bytes(ITEM.json, core.json.encode(value)))
end

-- Returns the items of `values`, sorted by name.
local function items(values)
  local out = {}
  for index, name in ipairs(check.sorted_keys(values)) do out[index] = item(name, values[name]) end
  return table.concat(out)
end

-- Returns the id of the run: eight digits, equal for each export of a run. W&B takes two runs with one id for the same run.
local function id_of(run) return ("%08x"):format(crc.castagnoli(run.name .. "\n" .. run.started)) end

local function add_run(log, run, id, project)
  log:add(RECORD.header, protobuf.bytes(HEADER_VERSION, protobuf.bytes(PRODUCER, "ztoolkit")
    .. protobuf.bytes(MIN_CONSUMER, "0.13.0")))
  log:add(RECORD.run, protobuf.bytes(RUN.id, id) .. protobuf.bytes(RUN.project, project)
    .. protobuf.bytes(RUN.config, items(run.options)) .. protobuf.bytes(RUN.display_name, run.name)
    .. protobuf.bytes(RUN.start_time, protobuf.integer(TIME_SECONDS, run.began)))
end

-- Writes a record of the history for each step: W&B wants one per step, with ascending steps. Returns the last values.
local function add_history(log, run)
  local step, values, latest = nil, {}, {}
  local function flush()
    if step == nil then return end
    log:add(RECORD.history, items(values) .. protobuf.bytes(HISTORY_STEP, protobuf.integer(STEP_NUMBER, step)))
  end
  for line in recorded.lines(run) do
    if line.step ~= step then
      flush()
      step, values = line.step, {}
    end
    values._step, values._timestamp, values._runtime = line.step, line.time, line.time - run.began
    for _, scalar in ipairs(line.scalars) do values[scalar[1]] = scalar[2] end
    for name, value in pairs(values) do latest[name] = value end
  end
  flush()
  return latest
end

--- Writes the run (recorded.lua) below the folder `folder`, for the project `project`. An earlier export of the run is replaced.
-- Returns the folder of the offline run. Fails if the earlier one was sent.
function wandb.write(run, folder, project)
  local id = id_of(run)
  local path = ("%s/offline-run-%s-%s"):format(folder, os.date("!%Y%m%d_%H%M%S", run.began), id)
  local file = path .. "/run-" .. id .. ".wandb"
  if core.exists(file .. ".synced") then
    fail("'%s' was sent by wandb sync, which sends no run twice: to send it again, remove this folder, and the run in W&B", path)
  end
  core.mkdir_p(path .. "/files")
  core.mkdir_p(path .. "/logs")
  local log = open_log(file)
  add_run(log, run, id, project)
  local latest = add_history(log, run)
  log:add(RECORD.summary, items(latest))
  if run.state ~= "running" then
    log:add(RECORD.exit, protobuf.integer(EXIT.code, CODES[run.state] or 0)
      .. protobuf.integer(EXIT.runtime, math.floor(latest._runtime or 0)))
  end
  log.file:close()
  return path
end

return wandb
