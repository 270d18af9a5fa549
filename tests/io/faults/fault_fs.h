// A file system in memory for tests. It counts calls, fails or dies at a chosen one, and shows what a crash would leave.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "memory_disk.h"
#include "zt/io/file_system.h"

namespace zt::io {

// Thrown by the call at which the process "dies" and by every later call. It is no std::exception, so code that handles errors
// does not catch it.
struct Death {};

// What goes wrong at calls [call, call + calls). Calls are counted from 0 over the file system and all of its files.
struct Trouble {
  enum class What : uint8_t {
    nothing,
    death,        // before the call has any effect
    error,        // the call returns -error; an operation submitted by submit() fails with -error
    short_count,  // an operation moves only a part of its bytes; other calls are not affected
    bit_flip,     // one bit of the moved data is flipped; other calls are not affected
  };
  What what = What::nothing;
  int64_t call = 0;
  int error = 0;
  int64_t calls = 1;
};

struct FaultFsOptions {
  int64_t capacity = int64_t{1} << 40;  // bytes of all files together
  int64_t alignment = 4096;             // bytes, of files opened for direct I/O; unaligned operations fail with -EINVAL
  bool can_reserve = true;              // if false, File::reserve returns -EOPNOTSUPP
};

// Threads: any. An operation takes effect in wait(), in random order; real ones may also be as late as that.
// rename() returns -EXDEV for two different folders.
class FaultFs : public FileSystem {
 public:
  explicit FaultFs(const FaultFsOptions& options = {});

  void plan(const Trouble& trouble);       // sets the trouble and counts calls from 0 again
  std::vector<std::string> calls() const;  // since the last plan(): "write /a [0, 4096)", "wait /a", "rename /a /b"

  // Returns a file system with the same files, as another process sees them. It has calls and trouble of its own.
  std::unique_ptr<FaultFs> for_other_process() const;
  // Returns a copy of the file system as the next process finds it after a crash, without trouble. This object does not change.
  std::unique_ptr<FaultFs> after_crash(const Crash& crash) const;

  Opened open(const std::string& path, const OpenOptions& options) override;
  std::unique_ptr<File> stripe(std::vector<std::unique_ptr<File>> files, int64_t block, int depth) override;
  int make_folder(const std::string& path) override;
  int rename(const std::string& from, const std::string& to) override;
  int remove(const std::string& path) override;
  Listing list(const std::string& folder) override;
  EntryKind kind_of(const std::string& path) override;
  int sync_folder(const std::string& path) override;
  int64_t free_bytes(const std::string& folder) override;

  struct State;  // shared by the file system and its open files

 private:
  explicit FaultFs(std::shared_ptr<State> state) : state_(std::move(state)) {}

  const std::shared_ptr<State> state_;
};

}  // namespace zt::io
