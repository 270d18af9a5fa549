--- Writes a run into a file store of MLflow, the folder that MLflow calls mlruns: an experiment "Default" with the number 0, and
-- in it a folder per run with the files meta.yaml, metrics/NAME, params/NAME and tags/NAME. Newer versions of MLflow (3.17 does)
-- read such a store with MLFLOW_ALLOW_FILE_STORE=true, or after `mlflow migrate-filestore`.

local check = require "zt.check"
local core = require "zt.core"
local crc = require "zt.run.formats.crc"
local fail = require "zt.fail"
local ffi = require "ffi"
local fs = require "zt.fs"
local recorded = require "zt.run.formats.recorded"

local EXPERIMENT = "0" -- the number of MLflow's default experiment
local LOCAL = 4 -- of MLflow's SourceType
-- MLflow's RunStatus by the state of a run: RUNNING, FINISHED, FAILED, KILLED.
local STATUS = {running = 1, ended = 3, unknown = 3, killed = 4, stopped = 5}
local LINES = 4096 -- lines of a metric that are kept before they are written

ffi.cdef "char *realpath(const char *path, char *out);"

local mlflow = {}
local NULL = {} -- stands for a null of YAML

-- Returns `text` as a scalar of YAML. A string of JSON is one, too.
local function quoted(text) return core.json.encode(tostring(text)) end

local function yaml(fields)
  local lines = {}
  for index, field in ipairs(fields) do
    local value = field[2]
    local shown = value == NULL and "null" or type(value) == "number" and ("%d"):format(value) or quoted(value)
    lines[index] = ("%s: %s"):format(field[1], shown)
  end
  return table.concat(lines, "\n") .. "\n"
end

-- Returns the number of the run: 32 hexadecimal digits, equal for each export of a run.
local function id_of(run)
  local text, words = run.name .. "\n" .. run.started, {}
  for place = 1, 4 do words[place] = ("%08x"):format((place % 2 == 0 and crc.ieee or crc.castagnoli)(place .. text)) end
  return table.concat(words)
end

local LONGEST = 200 -- bytes of a part of a name: file systems allow 255

-- Returns a part of a name as a name of a file.
local function part_of(part)
  part = part:gsub("[^%w_%-%. :]", "_"):gsub("^%.+$", "_")
  if #part <= LONGEST then return part end
  return ("%s_%08x"):format(part:sub(1, LONGEST), crc.ieee(part))
end

-- Returns the name of a metric or parameter with the characters that MLflow allows. A "/" makes folders.
local function named(name)
  local parts = {}
  for part in name:gmatch "[^/]+" do parts[#parts + 1] = part_of(part) end
  return #parts > 0 and table.concat(parts, "/") or "_"
end

-- Removes a file, or a folder with all that is in it.
local function remove_tree(path)
  if not core.exists(path) then return end
  if not core.file_facts(path) then
    for _, name in ipairs(fs.list(path)) do remove_tree(path .. "/" .. name) end
  end
  fs.remove(path)
end

-- Makes the folder and returns its whole path.
local function made(folder)
  core.mkdir_p(folder)
  local out = ffi.new "char[4096]"
  if ffi.C.realpath(folder, out) == nil then fail("cannot find the folder '%s'", folder) end
  return ffi.string(out)
end

-- Returns the function that returns a file for each of the names of metrics or parameters, below `folder`, which it makes anew. A
-- name that is also the beginning of others, "x" beside "x/y", gets the file "x/value". Fails if two names have one file.
local function paths_below(folder, names)
  remove_tree(folder)
  core.mkdir_p(folder)
  local folders, owners, paths = {}, {}, {}
  for _, name in ipairs(names) do
    local path = named(name)
    for at in path:gmatch "()/" do folders[path:sub(1, at - 1)] = true end
  end
  for _, name in ipairs(names) do
    local path = named(name)
    path = folder .. "/" .. (folders[path] and path .. "/value" or path)
    if owners[path] then
      fail("'%s' and '%s' have the same name in MLflow, '%s': give one of them another", owners[path], name, named(name))
    end
    owners[path], paths[name] = name, path
  end
  return function(name)
    core.mkdir_p(paths[name]:match "^(.*)/")
    return paths[name]
  end
end

-- Returns the sorted names of all metrics of the run.
local function metric_names(run)
  local names, seen = {}, {}
  for line in recorded.lines(run) do
    for _, scalar in ipairs(line.scalars) do
      if not seen[scalar[1]] then seen[scalar[1]], names[#names + 1] = true, scalar[1] end
    end
  end
  table.sort(names)
  return names
end

-- Writes a file per metric, with a line "milliseconds value step" per value. Returns the time of the last line.
local function write_metrics(run, folder)
  local files, pending, last = {}, {}, run.began
  local path_of = paths_below(folder .. "/metrics", metric_names(run))
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
  for _, part in ipairs{"artifacts", "tags"} do core.mkdir_p(folder .. "/" .. part) end
  local last, path_of = write_metrics(run, folder), paths_below(folder .. "/params", check.sorted_keys(run.options))
  for name, value in pairs(run.options) do
    core.write_file(path_of(name), type(value) == "table" and core.json.encode(value) or tostring(value))
  end
  core.write_file(folder .. "/tags/mlflow.runName", run.name)
  core.write_file(folder .. "/tags/mlflow.source.name", run.command)
  core.write_file(folder .. "/meta.yaml", yaml{
    {"artifact_uri", "file://" .. folder .. "/artifacts"}, {"end_time", run.state ~= "running" and 1000 * last or NULL},
    {"entry_point_name", ""},
    {"experiment_id", EXPERIMENT}, {"lifecycle_stage", "active"}, {"run_id", id}, {"run_name", run.name}, {"run_uuid", id},
    {"source_name", run.command}, {"source_type", LOCAL}, {"source_version", ""}, {"start_time", 1000 * run.began},
    {"status", STATUS[run.state]}, {"user_id", ""},
  })
  return folder
end

return mlflow
