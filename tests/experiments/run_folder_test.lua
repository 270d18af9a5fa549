-- zt.run on any number of ranks: an error on rank 0 is raised on all ranks, and no rank hangs.
--   mpirun -n 2 ztoolkit run tests/experiments/run_folder_test.lua FOLDER
local zt = require "zt"
local comm = require "zt.comm"

local mesh = comm.mesh{dp = -1, timeout = 30}
local folder = arg[1]
if zt.world.rank == 0 then os.execute(("rm -rf '%s'"):format(folder)) end
mesh.dp:barrier()

local function expect_error(part, options)
  local is_done, message = pcall(zt.run, options)
  assert(not is_done, "an error was expected on every rank: " .. part)
  assert(tostring(message):find(part, 1, true), message)
end

-- The same on all ranks, with and without a mesh.
local run = zt.run{name = "a", folder = folder, mesh = mesh, steps = 2}
for step = 0, 1 do run:log(step, {loss = step}) end
run:finish()
expect_error("exists", {name = "a", folder = folder, mesh = mesh})
expect_error("exists", {name = "a", folder = folder})
zt.run{name = "a", folder = folder, mesh = mesh, overwrite = true}:finish()

-- The folder cannot be made because a file has its name.
if zt.world.rank == 0 then zt.write_file(folder .. "/file", "") end
mesh.dp:barrier()
expect_error("Not a directory", {name = "b", folder = folder .. "/file", mesh = mesh})

-- The traces of all ranks are written to one file.
local trainer = setmetatable({
  trace_start = function() end,
  trace_events = function() return ('{"pid":%d}'):format(zt.world.rank) end,
}, {__name = "Trainer"})
run = zt.run{name = "c", folder = folder, mesh = mesh, trainer = trainer}
run:finish()
if zt.world.rank == 0 then
  local events = zt.json.decode(zt.fs.read(run.path .. "/trace.json")).traceEvents
  assert(#events == zt.world.size)
  for rank, event in ipairs(events) do assert(event.pid == rank - 1) end
end
