// Calls of the seam that have to succeed: repeated while something passing is in the way, then a Fault that tells a person.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>

#include "fs.h"

namespace zt::ckpt {

// Fault: "cannot `doing` `path`: ..." with the reason and what to do. `error` is -errno. `needed`: bytes that were to be stored,
// for the message about a full disk; 0: not known.
[[noreturn]] void io_fault(FileSystem& files, std::string_view doing, const std::string& path, int64_t error, int64_t needed = 0);

// The folder that holds `path`: "." for a bare name.
std::string folder_of(const std::string& path);

// "Not now": the same call may well succeed when it is repeated.
inline bool is_passing(int64_t result) {
  return result == -EINTR || result == -EAGAIN;
}

// Repeats after a pause how often a call may make no progress before it counts as failed: some 4 s.
constexpr int kPatience = 64;
void pause_before_repeat(int repeats);

// The result of `call`, repeated while it is interrupted.
template <class Call>
int64_t persist(Call call) {
  int64_t result = call();
  for (int repeats = 1; is_passing(result) && repeats <= kPatience; ++repeats) {
    pause_before_repeat(repeats);
    result = call();
  }
  return result;
}

// The count or 0 that `call` returns; Fault as above where it fails.
template <class Call>
int64_t must(FileSystem& files, std::string_view doing, const std::string& path, Call call) {
  const int64_t result = persist(call);
  if (result < 0) io_fault(files, doing, path, result);
  return result;
}

// Fault when it cannot be opened.
std::unique_ptr<File> open_file(FileSystem& files, const std::string& path, const OpenOptions& options);

}  // namespace zt::ckpt
