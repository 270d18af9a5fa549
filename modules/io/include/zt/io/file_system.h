// The interface through which this toolkit reads and writes files. Tests implement it to inject faults.
//
// An implementation behaves like the calls of the operating system and does nothing more. Results are counts or -errno. A count
// may be smaller than asked for, and any call may return -EINTR or -EAGAIN. Retries, blocks and messages are implemented once,
// above this interface (io_errors.h, block_io.h, small_files.h, atomic_file.h, input_file.h).
//
// Paths are those of the operating system, with '/' as the separator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace zt::io {

enum class IoDirection : uint8_t { read, write };

// One read or write of a part of a file. `offset`, `memory` and `bytes` are multiples of File::alignment().
struct FileOperation {
  IoDirection direction = IoDirection::read;
  int64_t offset = 0;           // bytes from the start of the file
  std::byte* memory = nullptr;  // must stay valid until wait() has returned `tag`; a write does not change its content
  int64_t bytes = 0;
  int tag = 0;  // chosen by the caller; wait() returns it
};

struct Completion {
  int tag = 0;
  int64_t result = 0;  // number of bytes moved, or -errno; may be less than asked for, and is 0 at the end of the file
};

// An open file. The destructor closes it.
// Each submit() needs its own wait(), also after an error: until then the system may read or write the operation's memory.
// Threads: one at a time.
class File {
 public:
  virtual ~File() = default;

  // Returns the alignment of offsets, sizes and addresses in bytes: 4096 with direct I/O, else 1.
  virtual int64_t alignment() const = 0;

  // Starts an operation. Requires that fewer than OpenOptions::depth operations are under way. wait() returns its error, if any.
  virtual void submit(const FileOperation& operation) = 0;
  // Waits until an operation ends. Returns its tag and result. Operations end in any order. Requires an operation under way.
  virtual Completion wait() = 0;
  // Returns what wait() would return, if an operation has ended; else nullopt, at once.
  virtual std::optional<Completion> poll() = 0;
  // Keeps `memory` in place for the life of the file, which saves work in each operation within it. Call it once, with no
  // operation under way. Returns 0, or -errno if the system refuses it (-ENOMEM: RLIMIT_MEMLOCK); operations work all the same.
  virtual int pin(std::span<std::byte> memory) = 0;

  // Returns the size in bytes, or -errno.
  virtual int64_t size() = 0;
  // Sets the size in bytes. Returns 0 or -errno.
  virtual int truncate(int64_t bytes) = 0;
  // Reserves disk space for the bytes [0, bytes) and makes the file at least that long. Returns 0 or -errno.
  virtual int reserve(int64_t bytes) = 0;
  // Waits until the content and the size are on the disk, so that they survive a crash of the machine. Returns 0 or -errno.
  virtual int sync() = 0;
};

enum class Access : uint8_t {
  read,
  create,   // writes a new file; -EEXIST if the name exists
  replace,  // empties or creates the file and writes to it; -EBUSY while another writer has it open with `replace`
  scratch,  // reads and writes a new file in the folder of the path. It has no name once it is open: nothing of it is left when
            // the process ends, however it ends
};

enum class Caching : uint8_t {
  cached,  // through the page cache of the system
  direct,  // without the page cache where the file system supports that, else through it
};

struct OpenOptions {
  Access access = Access::read;
  Caching caching = Caching::cached;
  int depth = 1;  // operations that may be under way at once
};

enum class EntryKind : uint8_t { missing, file, folder, fifo, socket, device, other };

struct Opened {
  std::unique_ptr<File> file;        // null after an error
  int error = 0;                     // 0 or -errno
  EntryKind kind = EntryKind::file;  // after an error: the kind of the entry, if it is known and not a regular file
};

struct Entry {
  std::string name;
  EntryKind kind = EntryKind::other;  // `other` for a symbolic link
};

struct Listing {
  std::vector<Entry> entries;  // in any order, without "." and ".."
  int error = 0;               // 0 or -errno
};

// Threads: any, at the same time.
// A name that was created, renamed or removed survives a crash of the machine only after sync_folder of its folder.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Opens a regular file; any other kind of entry is an error. Never blocks.
  virtual Opened open(const std::string& path, const OpenOptions& options) = 0;
  // Joins open files of this file system, with no operation under way, to one with a single queue. Block i of `block` bytes lies
  // in file i % files.size(). An operation does not cross the border of a block. `depth` is as in OpenOptions. Of several
  // joined files, size(), truncate(), reserve() and sync() return -EOPNOTSUPP: call those of each file before.
  virtual std::unique_ptr<File> stripe(std::vector<std::unique_ptr<File>> files, int64_t block, int depth) = 0;
  // Returns 0 or -errno; -EEXIST if the name exists.
  virtual int make_folder(const std::string& path) = 0;
  // Renames a file or folder atomically; replaces a file with the name `to`. Returns 0 or -errno.
  virtual int rename(const std::string& from, const std::string& to) = 0;
  // Removes a file or an empty folder. Returns 0 or -errno.
  virtual int remove(const std::string& path) = 0;
  virtual Listing list(const std::string& folder) = 0;
  // Returns the kind of the entry; for a symbolic link, the kind of its target.
  virtual EntryKind kind_of(const std::string& path) = 0;
  // Waits until the names in a folder are on the disk, so that they survive a crash of the machine. Returns 0 or -errno.
  virtual int sync_folder(const std::string& path) = 0;
  // Returns the bytes that this user may still write to the folder's file system, or -errno.
  virtual int64_t free_bytes(const std::string& folder) = 0;
};

}  // namespace zt::io
