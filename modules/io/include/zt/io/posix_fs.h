// The files of this machine, through the calls of the operating system.
#pragma once

#include <mutex>

#include "zt/io/file_system.h"
#include "zt/process/world.h"

namespace zt::io {

class PosixQueue;
struct Stripes;

// Uses io_uring for files with a depth above 1, and O_DIRECT for Caching::direct. Where io_uring is refused (containers often do
// so), a thread of each file performs its operations, one at a time, by pread and pwrite. Where a file system has no direct I/O
// with blocks of 4096 bytes, the page cache is used. Each of these two fallbacks is logged once (level info). Access::replace
// locks the file by flock. On a file system without flock, two writers of one file are not detected. On a file system without
// unnamed files, a file of Access::scratch has its name for a moment.
class PosixFs : public FileSystem {
 public:
  // `world` names this rank in log lines.
  explicit PosixFs(const World& world) : world_(world) {}

  Opened open(const std::string& path, const OpenOptions& options) override;
  std::unique_ptr<File> stripe(std::vector<std::unique_ptr<File>> files, int64_t block, int depth) override;
  int make_folder(const std::string& path) override;
  int rename(const std::string& from, const std::string& to) override;
  int remove(const std::string& path) override;
  Listing list(const std::string& folder) override;
  EntryKind kind_of(const std::string& path) override;
  int sync_folder(const std::string& path) override;
  int64_t free_bytes(const std::string& folder) override;

 private:
  void log_once(std::once_flag& flag, const std::string& text);
  std::unique_ptr<PosixQueue> make_queue(const Stripes& stripes, int depth);

  const World world_;
  std::once_flag without_direct_, without_uring_;
};

// Returns a PosixFs that lives until the process ends. Use it for cached files with a depth of 1 only: these need no fallback, so
// it never logs.
FileSystem& posix_files();

}  // namespace zt::io
