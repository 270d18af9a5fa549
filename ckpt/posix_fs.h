// The file systems of the machine: io_uring and O_DIRECT where they are to be had.
#pragma once

#include <mutex>

#include "fs.h"
#include "zt/world.h"

namespace zt::ckpt {

// Where io_uring is refused (containers often filter it out), files are read and written by pread and pwrite; where a file system
// knows no direct I/O with blocks of 4096 bytes, through the page cache. Either is said once in the log (level info).
class PosixFs : public FileSystem {
 public:
  explicit PosixFs(const World& world) : world_(world) {}

  Opened open(const std::string& path, const OpenOptions& options) override;
  int make_folder(const std::string& path) override;
  int rename(const std::string& from, const std::string& to) override;
  int remove(const std::string& path) override;
  Listing list(const std::string& folder) override;
  Kind kind_of(const std::string& path) override;
  int sync_folder(const std::string& path) override;
  int64_t free_bytes(const std::string& folder) override;

 private:
  void say_without_direct(const std::string& path);
  void say_without_uring(int error);

  const World world_;
  std::once_flag without_direct_, without_uring_;
};

}  // namespace zt::ckpt
