--- Decides whether to draw a progress bar.

local ffi = require "ffi"
local core = require "zt.core"

ffi.cdef [[
int getppid(void);
long readlink(const char *path, char *out, size_t size);
]]

local terminal = {}

-- Returns the target of a symbolic link, "" on failure.
local function link(path)
  local size = 256
  local buffer = ffi.new("char[?]", size)
  local length = tonumber(ffi.C.readlink(path, buffer, size))
  return length > 0 and ffi.string(buffer, length) or ""
end

-- Returns whether mpirun itself writes to a terminal. Open MPI gives every rank a pseudo terminal, even if mpirun's output goes
-- to a file, so the rank's own output says nothing.
local function is_mpirun_on_terminal()
  local parent = "/proc/" .. ffi.C.getppid()
  local file = io.open(parent .. "/comm")
  local command = file and file:read("*l") or ""
  if file then file:close() end
  local is_launcher = command:find("^mpi") or command:find("^orterun") or command:find("^prterun")
  return is_launcher ~= nil and link(parent .. "/fd/1"):find("^/dev/[pt]t[sy]") ~= nil
end

--- Returns whether the run's standard output is a terminal that this rank can draw a progress bar on. False for ranks as threads,
-- which share one output.
function terminal.is_watched()
  if core.world.launch == "threads" then return false end
  if core.world.launch == "mpi" then return is_mpirun_on_terminal() end
  return core.isatty(1)
end

return terminal
