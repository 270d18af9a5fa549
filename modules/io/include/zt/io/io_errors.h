// Retries of file-system calls, and the errors thrown when they fail.
//
// A call that returns -EINTR or -EAGAIN, or that moves no byte, is retried after a pause, up to kMaxRetries times in a row (about
// 4 s). Any other error is thrown as a Fault, and so is the error of the last retry.
#pragma once

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>

#include "zt/base/error.h"
#include "zt/io/file_system.h"

namespace zt::io {

// Thrown when the disk, or the user's quota, is full. A caller that knows which files can be removed catches it and adds that
// advice.
class DiskFull : public Fault {
 public:
  using Fault::Fault;
  ~DiskFull() override;
};

// Throws Fault with the message "cannot `action` '`path`': reason: advice"; DiskFull for ENOSPC and EDQUOT. `error` is -errno.
// `needed` is the size in bytes that the file was to have, for the message of DiskFull; 0 means unknown.
[[noreturn]] void io_fault(FileSystem& files, std::string_view action, const std::string& path, int64_t error,
                           int64_t needed = 0);

// Returns the kind with its article, for messages: "a FIFO".
const char* phrase_for(EntryKind kind);

// Returns the folder that holds `path`; "." for a name without a folder.
std::string folder_of(const std::string& path);

// Returns whether the same call may succeed when it is retried.
inline bool is_transient(int64_t result) {
  return result == -EINTR || result == -EAGAIN;
}

constexpr int kMaxRetries = 64;
// Sleeps 2 ms * (retry - 1) before retry number `retry`, counted from 1.
void pause_before_retry(int retry);

// Calls `call`, which returns a count or -errno. Repeats the call while the result is transient, at most kMaxRetries times.
// Returns the last result.
template <class Call>
int64_t retry(Call call) {
  int64_t result = call();
  for (int retries = 1; is_transient(result) && retries <= kMaxRetries; ++retries) {
    pause_before_retry(retries);
    result = call();
  }
  return result;
}

// Like retry, but throws the Fault of io_fault if the last result is an error. Otherwise returns the count.
template <class Call>
int64_t retry_or_fault(FileSystem& files, std::string_view action, const std::string& path, Call call) {
  const int64_t result = retry(call);
  if (result < 0) io_fault(files, action, path, result);
  return result;
}

// Opens a file, with retries. Throws: Fault when it cannot be opened.
std::unique_ptr<File> open_file(FileSystem& files, const std::string& path, const OpenOptions& options);

// Waits until the names in `folder` are on the disk, so that they survive a crash of the machine. Throws: Fault.
void sync_folder_or_fault(FileSystem& files, const std::string& folder);

}  // namespace zt::io
