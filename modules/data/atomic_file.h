// A file that appears under its name complete or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zt::data {

// Writes to `path`.partial and renames that to `path` in `commit`. Without a commit the destructor removes it; a process that
// is killed leaves a .partial, which the next writer of the same path takes over. Two writers at a time are refused.
// Threads: one. Errors: Fault, with the reason (a full disk), when the file cannot be made, written or renamed.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::string& path() const { return path_; }
  void append(std::string_view bytes);
  void overwrite(int64_t offset, std::string_view bytes);
  // Waits until the bytes are on the disk, then gives the file its name.
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;
  void take_over();

  std::string path_, partial_;
  int fd_ = -1;
  int64_t size_ = 0;
};

// `bytes` as a file, by AtomicFile.
void write_file(const std::string& path, std::string_view bytes);

}  // namespace zt::data
