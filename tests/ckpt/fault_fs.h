// A file system in memory for tests: it counts calls, fails or dies at a chosen one, and shows what a crash would leave.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/memory_disk.h"
#include "fs.h"

namespace zt::ckpt {

// Thrown by the call at which the process "dies" and by every later one. No exception of ours, so nothing that handles errors
// takes it for one.
struct Death {};

// What goes wrong at calls [call, call + calls), counted from 0 over the file system and all of its files.
struct Trouble {
  enum class What : uint8_t {
    nothing,
    death,        // before the call has any effect
    error,        // the call fails with -error; at submit: that operation
    short_count,  // an operation moves only a part; no effect on other calls
    bit_flip,     // an operation moves one bit wrong; no effect on other calls
  };
  What what = What::nothing;
  int64_t call = 0;
  int error = 0;
  int64_t calls = 1;
};

struct FaultFsOptions {
  int64_t capacity = int64_t{1} << 40;  // bytes of all files together
  int64_t alignment = 4096;             // of files opened for direct I/O; what is not aligned fails with EINVAL
  bool can_reserve = true;              // else EOPNOTSUPP
};

// Thread-safe. Operations take effect when they are waited for, in a random order: as late as a real one may.
// Renames stay within a folder (else EXDEV).
class FaultFs : public FileSystem {
 public:
  explicit FaultFs(const FaultFsOptions& options = {});

  void plan(const Trouble& trouble);       // from now on; calls are counted anew from 0
  std::vector<std::string> calls() const;  // since the last plan: "write /a [0, 4096)", "wait /a", "rename /a /b"

  // The same files for another process at the same time: calls and trouble are its own.
  std::unique_ptr<FaultFs> for_other_process() const;
  // The file system as the next process finds it; without trouble. This one is as it was.
  std::unique_ptr<FaultFs> after_crash(const Crash& crash) const;

  Opened open(const std::string& path, const OpenOptions& options) override;
  int make_folder(const std::string& path) override;
  int rename(const std::string& from, const std::string& to) override;
  int remove(const std::string& path) override;
  Listing list(const std::string& folder) override;
  Kind kind_of(const std::string& path) override;
  int sync_folder(const std::string& path) override;
  int64_t free_bytes(const std::string& folder) override;

  struct State;  // shared with the files

 private:
  explicit FaultFs(std::shared_ptr<State> state) : state_(std::move(state)) {}

  const std::shared_ptr<State> state_;
};

}  // namespace zt::ckpt
