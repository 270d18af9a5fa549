--- Writes a run into a file store of MLflow, the folder that MLflow calls mlruns: an experiment "Default" with the number 0, and
-- in it a folder per run with the files meta.yaml, metrics/NAME, params/NAME and tags/NAME. Newer versions of MLflow (3.17 does)
-- read such a store with MLFLOW_ALLOW_FILE_STORE=true, or after `mlflow migrate-filestore`.

local core = require "zt.core"
local crc = require "zt.run.formats.crc"
local fail = require "zt.fail"
local ffi = require "ffi"
local fs = require "zt.fs"
local recorded = require "zt.run.formats.recorded"

local EXPERIMENT = "0" -- the number of MLflow's default experiment
local LOCAL, FINISHED = 4, 3 -- of MLflow's SourceType and RunStatus
local LINES = 4096 -- lines of a metric that are kept before they are written

ffi.cdef "char *realpath(const char *path, char *out);"

local mlflow = {}

-- Returns `text` as a scalar of YAML. A string of JSON is one, too.
local function quoted(text) return core.json.encode(tostring(text)) end

local function yaml(fields)
  local lines = {}
  for index, field in ipairs(fields) do
    local value = field[2]
    lines[index] = ("%s: %s"):format(field[1], type(value) == "number" and ("%d"):format(value) or quoted(value))
  end
  return table.concat(lines, "\n") .. "\n"
end

-- Returns the number of the run: 32 hexadecimal digits, equal for each export of a run.
local function id_of(run)
  local text, words = run.name .. "\n" .. run.started, {}
  for place = 1, 4 do words[place] = ("%08x"):format((place % 2 == 0 and crc.ieee or crc.castagnoli)(place .. text)) end
  return table.concat(words)
end

-- Returns the name of a metric or parameter with the characters that MLflow allows. A "/" makes folders.
local function named(name)
  return (name:gsub("[^%w_%-%. /:]", "_"):gsub("%f[^/%z]%.+%f[/%z]", "_"):gsub("//+", "/"):gsub("^/", ""))
end

-- Makes the folder and returns its whole path.
local function made(folder)
  core.mkdir_p(folder)
  local out = ffi.new "char[4096]"
  if ffi.C.realpath(folder, out) == nil then fail("cannot find the folder '%s'", folder) end
  return ffi.string(out)
end

-- Returns the function that returns a file for each name of a metric or parameter, below `folder`. Fails if two have one file.
local function paths_below(folder)
  local owners = {}
  return function(name)
    local path = folder .. "/" .. named(name)
    if owners[path] and owners[path] ~= name then
      fail("'%s' and '%s' have the same name in MLflow, '%s': give one of them another", owners[path], name, named(name))
    end
    owners[path] = name
    core.mkdir_p(path:match "^(.*)/")
    return path
  end
end

-- Writes a file per metric, with a line "milliseconds value step" per value. Returns the time of the last line.
local function write_metrics(run, folder)
  local files, pending, last, path_of = {}, {}, run.began, paths_below(folder .. "/metrics")
  local function flush(name)
    if not files[name] then
      local path = path_of(name)
      fs.remove(path)
      files[name] = fs.append(path)
    end
    files[name]:write(table.concat(pending[name]))
    pending[name] = {}
  end
  for line in recorded.lines(run) do
    last = line.time
    for _, scalar in ipairs(line.scalars) do
      local name = scalar[1]
      pending[name] = pending[name] or {}
      table.insert(pending[name], ("%d %.17g %d\n"):format(1000 * line.time, scalar[2], line.step))
      if #pending[name] == LINES then flush(name) end
    end
  end
  for name in pairs(pending) do flush(name) end
  for _, file in pairs(files) do file:close() end
  return last
end

local function write_experiment(folder, run)
  if core.exists(folder .. "/meta.yaml") then return end
  core.write_file(folder .. "/meta.yaml", yaml{
    {"artifact_location", "file://" .. folder}, {"creation_time", 1000 * run.began}, {"experiment_id", EXPERIMENT},
    {"last_update_time", 1000 * run.began}, {"lifecycle_stage", "active"}, {"name", "Default"},
  })
end

--- Writes the run (recorded.lua) into the store `store`, which it makes if needed. An earlier export of the run is replaced.
-- Returns the run's folder.
function mlflow.write(run, store)
  local id, experiment = id_of(run), made(store .. "/" .. EXPERIMENT)
  write_experiment(experiment, run)
  local folder = experiment .. "/" .. id
  for _, part in ipairs{"artifacts", "metrics", "params", "tags"} do core.mkdir_p(folder .. "/" .. part) end
  local last, path_of = write_metrics(run, folder), paths_below(folder .. "/params")
  for name, value in pairs(run.options) do
    core.write_file(path_of(name), type(value) == "table" and core.json.encode(value) or tostring(value))
  end
  core.write_file(folder .. "/tags/mlflow.runName", run.name)
  core.write_file(folder .. "/tags/mlflow.source.name", run.command)
  core.write_file(folder .. "/meta.yaml", yaml{
    {"artifact_uri", "file://" .. folder .. "/artifacts"}, {"end_time", 1000 * last}, {"entry_point_name", ""},
    {"experiment_id", EXPERIMENT}, {"lifecycle_stage", "active"}, {"run_id", id}, {"run_name", run.name}, {"run_uuid", id},
    {"source_name", run.command}, {"source_type", LOCAL}, {"source_version", ""}, {"start_time", 1000 * run.began},
    {"status", FINISHED}, {"user_id", ""},
  })
  return folder
end

return mlflow
