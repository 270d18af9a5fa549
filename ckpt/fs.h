// The seam through which all file I/O of checkpoints goes, so that faults are injected in one place. It is what an operating
// system does and nothing more: results are counts or -errno, counts may be short, and -EINTR and -EAGAIN occur anywhere. Loops,
// blocks and messages stand above it in transfer.h, once.
//
// Paths are those of the operating system; parts are separated by '/'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace zt::ckpt {

enum class Direction : uint8_t { read, write };

// One read or write of a part of a file. `offset`, `memory` and `bytes` are multiples of File::alignment().
struct Operation {
  Direction direction = Direction::read;
  int64_t offset = 0;
  std::byte* memory = nullptr;  // a write only reads it; kept by the caller until wait() has returned the tag
  int64_t bytes = 0;
  int tag = 0;
};

struct Completion {
  int tag = 0;
  int64_t result = 0;  // bytes moved, perhaps fewer than asked for (a read at the end of the file: 0), or -errno
};

// An open file; closed by its destructor. One thread at a time.
// Whoever submits waits as often, also after an error: until then the system reads or writes the memory.
class File {
 public:
  virtual ~File() = default;

  // What offsets, sizes and memory are multiples of: 4096 with direct I/O, else 1.
  virtual int64_t alignment() const = 0;

  // Starts an operation; at most as many are under way as the file was opened for. What goes wrong is told by wait().
  virtual void submit(const Operation& operation) = 0;
  // The next operation that is done, in any order. Only when at least one is under way.
  virtual Completion wait() = 0;

  virtual int64_t size() = 0;               // bytes, or -errno
  virtual int truncate(int64_t bytes) = 0;  // 0 or -errno
  virtual int reserve(int64_t bytes) = 0;   // takes the disk space of [0, bytes), which then has that size: 0 or -errno
  virtual int sync() = 0;                   // data and size outlast a crash of the machine once it has returned 0; else -errno
};

enum class Access : uint8_t {
  read,
  create,   // to write; -EEXIST if the name is taken
  replace,  // to write, from empty, whether or not it exists
};

enum class Caching : uint8_t {
  cached,  // through the system's page cache
  direct,  // past it, where the file system can
};

struct OpenOptions {
  Access access = Access::read;
  Caching caching = Caching::cached;
  int depth = 1;  // operations under way at once
};

struct Opened {
  std::unique_ptr<File> file;
  int error = 0;                  // -errno when there is no file
  const char* instead = nullptr;  // what the name is, "a FIFO", when it is no regular file
};

enum class Kind : uint8_t { missing, file, folder, other };

struct Entry {
  std::string name;
  Kind kind = Kind::other;  // of a symbolic link: other
};

struct Listing {
  std::vector<Entry> entries;  // in no order, without "." and ".."
  int error = 0;               // -errno
};

// Thread-safe. Names (created, renamed, removed) outlast a crash of the machine only after sync_folder of their folder.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Never blocks: a name that is no regular file is an error.
  virtual Opened open(const std::string& path, const OpenOptions& options) = 0;
  virtual int make_folder(const std::string& path) = 0;                    // 0 or -errno; -EEXIST if the name is taken
  virtual int rename(const std::string& from, const std::string& to) = 0;  // 0 or -errno; a file `to` is replaced at once
  virtual int remove(const std::string& path) = 0;                         // a file or an empty folder: 0 or -errno
  virtual Listing list(const std::string& folder) = 0;
  virtual Kind kind_of(const std::string& path) = 0;          // symbolic links are followed
  virtual int sync_folder(const std::string& path) = 0;       // 0 or -errno
  virtual int64_t free_bytes(const std::string& folder) = 0;  // for this user, or -errno
};

}  // namespace zt::ckpt
