// The process that holds a run's folder, as RUN/run.lock names it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace zt::ckpt {

struct LockHolder {
  std::string host, boot, pids, since, token;  // pids: its pid namespace
  int64_t pid = 0, start = 0;                  // start: of the process, in clock ticks after the machine's

  static LockHolder of_this_process();
  // Returns nullopt if the text is not a complete record.
  static std::optional<LockHolder> parsed(const std::string& text);

  std::string text() const;
  // Returns whether process ids mean the same to both.
  bool is_visible_to(const LockHolder& other) const { return !boot.empty() && boot == other.boot && pids == other.pids; }
  // Requires that the holder is visible to this process.
  bool is_alive() const;
};

// Return the content of a file that may be a lock; "" if it cannot be read.
std::string read_lock(int descriptor);
std::string read_lock(const std::string& path);

}  // namespace zt::ckpt
