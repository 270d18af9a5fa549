--- File functions that zt.core (exists, mkdir_p, copy_file, write_file) lacks. On failure they raise an error with the path and
-- the system's reason.

local check = require "zt.check"
local ffi = require "ffi"
local core = require "zt.core"
local fail = require "zt.fail"
local methods = require "zt.methods"

ffi.cdef [[
int mkdir(const char *path, unsigned int mode);
int open(const char *path, int flags, ...);
int close(int file);
long write(int file, const void *data, size_t count);
int ftruncate(int file, long length);
long lseek(int file, long offset, int whence);
char *strerror(int code);
/* struct dirent of Linux on machines of 64 bits */
struct zt_entry { uint64_t number; int64_t next; uint16_t length; uint8_t type; char name[256]; };
void *opendir(const char *path);
struct zt_entry *readdir(void *folder);
int closedir(void *folder);
]]

local C = ffi.C
local EEXIST, EINTR = 17, 4
local O_WRONLY, O_CREAT, O_CLOEXEC = 1, 64, 0x80000
local SEEK_END = 2

local fs = {}

local function reason() return ffi.string(C.strerror(ffi.errno())) end

--- Makes one folder. Returns true if this call made it, and false if a file or folder of that name exists. Of several concurrent
-- callers exactly one gets true.
function fs.make_folder(path)
  check.argument("zt.fs.make_folder", "the path", "string", path)
  if C.mkdir(path, 0x1ff) == 0 then return true end
  if ffi.errno() == EEXIST then return false end
  fail("cannot make the folder '%s': %s", path, reason())
end

--- Returns the content of a file as a string.
function fs.read(path)
  check.argument("zt.fs.read", "the path", "string", path)
  local file, why = io.open(path, "rb")
  if not file then fail("cannot read %s", why) end
  local content, cause = file:read("*a")
  file:close()
  return content or fail("cannot read %s: %s", path, cause)
end

--- Returns the sorted names of the files and folders in a folder.
function fs.list(path)
  check.argument("zt.fs.list", "the path", "string", path)
  local folder = C.opendir(path)
  if folder == nil then fail("cannot read the folder '%s': %s", path, reason()) end
  local names = {}
  ffi.errno(0) -- readdir returns null at the end, and after an error, which it sets
  local entry = C.readdir(folder)
  while entry ~= nil do
    local name = ffi.string(entry.name)
    if name ~= "." and name ~= ".." then names[#names + 1] = name end
    entry = C.readdir(folder)
  end
  local code, why = ffi.errno(), reason()
  C.closedir(folder)
  if code ~= 0 then fail("cannot read the folder '%s': %s", path, why) end
  table.sort(names)
  return names
end

--- Removes a file, or an empty folder. Does nothing if there is none.
function fs.remove(path)
  check.argument("zt.fs.remove", "the path", "string", path)
  if not core.exists(path) then return end
  local is_removed, why = os.remove(path)
  if not is_removed then fail("cannot remove %s", why) end
end

local Appender = {__name = "Appender"}

local function write_all(file, content)
  local data, left = ffi.cast("const char *", content), #content
  while left > 0 do
    local count = tonumber(C.write(file, data, left))
    if count >= 0 then
      data, left = data + count, left - count
    elseif ffi.errno() ~= EINTR then
      return false
    end
  end
  return true
end

--- Appends all of `content` or nothing. If the write fails (the disk is full), truncates the file to its earlier size and raises
-- an error.
function Appender:write(content)
  check.argument("file:write", "the text", "string", content)
  if not self.file then fail("file:write comes after file:close(), which has closed '%s'", self.path) end
  if write_all(self.file, content) then
    self.size = self.size + #content
    return
  end
  local why = reason()
  C.ftruncate(self.file, self.size)
  fail("cannot write '%s': %s (the %d bytes written before are kept)", self.path, why, self.size)
end

function Appender:close()
  if self.file then C.close(self.file) end
  self.file = nil
end

methods(Appender, "file", {"file"})

--- Opens a file for appending, or creates it. Writes are unbuffered: the system has the data when `write` returns.
function fs.append(path)
  check.argument("zt.fs.append", "the path", "string", path)
  local file = C.open(path, O_WRONLY + O_CREAT + O_CLOEXEC, ffi.new("int", 0x1b6))
  if file < 0 then fail("cannot write '%s': %s", path, reason()) end
  -- lseek fails on a terminal or a pipe. The size is then 0.
  return setmetatable({path = path, file = file, size = math.max(0, tonumber(C.lseek(file, 0, SEEK_END)))}, Appender)
end

return fs
