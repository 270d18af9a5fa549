--- Says whether a run goes on, from its files: run.lock names the process that holds the folder (ckpt/folder/run_lock.h), and
--- summary.json says that run:finish() was reached.

local core = require "zt.core"
local ffi = require "ffi"
local fs = require "zt.fs"
local text = require "zt.text"

ffi.cdef [[
long readlink(const char *path, char *buffer, size_t size);
int kill(int pid, int signal);
struct zt_statx_time { int64_t seconds; uint32_t nanoseconds; int32_t unused; };
struct zt_statx {
  uint32_t mask, block_size; uint64_t attributes; uint32_t links, user, group; uint16_t mode, unused;
  uint64_t inode, size, blocks, attributes_mask; struct zt_statx_time accessed, born, changed, modified; uint64_t rest[16];
};
int statx(int folder, const char *path, int flags, unsigned int mask, struct zt_statx *out);
]]

local C = ffi.C
local EPERM = 1
local AT_FDCWD, STATX_BASIC = -100, 0x7ff
local STALE_SECONDS = 60 -- RunLock::kStale

local status = {}

-- Returns what the system knows of a file; nil if there is none.
local function facts_of(path)
  local out = ffi.new "struct zt_statx[1]"
  return C.statx(AT_FDCWD, path, 0, STATX_BASIC, out) == 0 and out[0] or nil
end

--- Returns the seconds since a file was written, by this machine's clock; nil if there is none.
function status.age(path)
  local facts = facts_of(path)
  return facts and math.max(0, os.time() - tonumber(facts.modified.seconds))
end

--- Returns the bytes of a file; nil if there is none.
function status.size(path)
  local facts = facts_of(path)
  return facts and tonumber(facts.size)
end

local function first_line(path)
  local file = io.open(path)
  local line = file and file:read "*l" or ""
  if file then file:close() end
  return line
end

local function own_namespace()
  local buffer = ffi.new("char[64]")
  local size = C.readlink("/proc/self/ns/pid", buffer, 64)
  return size > 0 and ffi.string(buffer, size) or ""
end

-- Returns whether the process of a lock lives. Its start time tells it from a later process with the same id.
local function is_alive(holder)
  local line = first_line(("/proc/%d/stat"):format(holder.pid))
  local fields = {}
  for field in (line:match "^.*%)%s+(.*)$" or ""):gmatch "%S+" do fields[#fields + 1] = field end
  local state = fields[1]
  if state and state ~= "Z" and state ~= "X" then return tonumber(fields[20]) == holder.start end
  return not state and C.kill(holder.pid, 0) ~= 0 and ffi.errno() == EPERM -- /proc may hide the processes of other users
end

-- Returns the content of run.lock; nil if there is none. It is empty for a moment while a run takes the folder.
local function holder_of(path)
  if not core.exists(path .. "/run.lock") then return nil end
  local is_whole, holder = pcall(function() return core.json.decode(fs.read(path .. "/run.lock")) end)
  local is_record = is_whole and type(holder) == "table" and type(holder.pid) == "number"
  return is_record and holder or {}
end

local function of_holder(path, holder)
  if not holder.pid then return {state = "running", text = "A process is taking the run's folder."} end
  local where = ("process %d on %s"):format(holder.pid, tostring(holder.host))
  local boot = first_line "/proc/sys/kernel/random/boot_id"
  if boot ~= "" and holder.boot == boot and holder.pid_namespace == own_namespace() then
    if is_alive(holder) then return {state = "running", text = ("It is under way: %s."):format(where)} end
    return {state = "killed", text = ("It was killed, or its script failed: %s ended without run:finish()."):format(where)}
  end
  local age = status.age(path .. "/run.lock") or 0
  if age <= STALE_SECONDS then return {state = "running", text = ("It is under way: %s."):format(where)} end
  local lost = "It was killed, or its machine cannot be reached: %s has not renewed its lock for %s."
  return {state = "killed", text = lost:format(where, text.duration(age))}
end

--- Returns {state = "running", "ended", "killed", "stopped" or "unknown", text = a sentence about it}.
function status.of(path, record, summary)
  local holder = holder_of(path)
  if holder then return of_holder(path, holder) end
  if not summary then
    return {state = "unknown", text = "No process holds it. It has no summary.json, so whether it reached its end is not known."}
  end
  if summary.finished and summary.started == record.started then
    return {state = "ended", text = ("It ended at %s."):format(summary.finished)}
  end
  return {state = "stopped", text = "It stopped before run:finish(): it was told to stop, or the script ended early."}
end

return status
