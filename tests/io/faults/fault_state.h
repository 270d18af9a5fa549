// The state that a FaultFs and its files share.
#pragma once

#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "fault_fs.h"

namespace zt::io {

struct FaultFs::State {
  std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();  // guards the disk; shared by all processes
  FaultFsOptions options;
  std::shared_ptr<MemoryFolder> root = std::make_shared<MemoryFolder>();
  Trouble trouble;
  bool is_dead = false;
  std::vector<std::string> calls;
  std::mt19937_64 random{1};

  // Counts a call and returns its trouble. Throws: Death.
  Trouble count(const std::string& call);
  std::vector<std::weak_ptr<MemoryFile>> unnamed;  // open files of Access::scratch
  int64_t free_bytes() const;
};

// One counted call. Holds the lock of the state while it lives.
struct Call {
  Call(FaultFs::State& state, const std::string& text) : lock(*state.mutex), trouble(state.count(text)) {}

  std::lock_guard<std::mutex> lock;
  const Trouble trouble;
  const int error = trouble.what == Trouble::What::error ? -trouble.error : 0;
};

std::unique_ptr<File> make_fault_file(std::shared_ptr<FaultFs::State> state, std::shared_ptr<MemoryFile> file, std::string path,
                                      const OpenOptions& options);
std::unique_ptr<File> stripe_fault_files(std::vector<std::unique_ptr<File>> files, int64_t block, int depth);

}  // namespace zt::io
