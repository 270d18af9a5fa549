--- The monitors csv_monitor and tensorboard of DeepSpeed: they write numbers by the count of samples. Used on rank 0.
--
--   local monitor = monitors.open(config.reports)
--   monitor:add(samples, {{"Train/Samples/train_loss", 2.5}})

local core = require "zt.core"
local fs = require "zt.fs"
local tensorboard = require "zt.run.formats.tensorboard"

local monitors = {}

local Csv = {}
Csv.__index = Csv

-- Returns the number as Python writes it, so that programs which read DeepSpeed's files read these.
local function shown(value)
  if value ~= value then return "nan" end
  if math.abs(value) == math.huge then return value > 0 and "inf" or "-inf" end
  return core.json.encode(value)
end

-- Returns the file of `name`, which lies in the folder as in DeepSpeed: Train/Samples/lr is Train_Samples_lr.csv, with the
-- heading step,lr. A file of an earlier start is continued.
function Csv:file_of(name)
  local file = self.files[name]
  if file then return file end
  file = fs.append(("%s/%s.csv"):format(self.folder, (name:gsub("[/ ]", "_"))))
  if file.size == 0 then file:write(("step,%s\n"):format(name:match "[^/]*$")) end
  self.files[name] = file
  return file
end

function Csv:add(samples, scalars)
  for _, scalar in ipairs(scalars) do self:file_of(scalar[1]):write(("%s,%s\n"):format(shown(samples), shown(scalar[2]))) end
end

function Csv.restart() end -- as in DeepSpeed, the files have the lines of all starts

local function open_csv(folder)
  core.mkdir_p(folder)
  return setmetatable({folder = folder, files = {}}, Csv)
end

local Monitors = {}
Monitors.__index = Monitors

--- Writes a list {{name, value}, ...} at a count of samples.
function Monitors:add(samples, scalars)
  for _, writer in ipairs(self) do writer:add(samples, scalars) end
end

--- Says that the run goes on after `samples` samples: what was written of later ones is not valid.
function Monitors:restart(samples)
  for _, writer in ipairs(self) do writer:restart(samples + 1) end
end

--- Opens the monitors of `wanted`, the field `reports` of a configuration. Makes their folders.
function monitors.open(wanted)
  local self = setmetatable({}, Monitors)
  if wanted.csv_monitor then self[#self + 1] = open_csv(wanted.csv_monitor.folder) end
  if wanted.tensorboard then self[#self + 1] = tensorboard.open(wanted.tensorboard.folder) end
  return self
end

return monitors
