// A whole file as read-only memory.
#pragma once

#include <string>
#include <string_view>

namespace zt::data {

// Maps the file at `path` for its lifetime. The pages are the page cache's: they cost no anonymous memory, and ranks of one
// machine share them. A file that is cut short while it is mapped kills the reader (SIGBUS), so writers rename instead.
// Threads: const after construction. Errors: Fault when the file cannot be opened, is no regular file or cannot be mapped.
class MappedFile {
 public:
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::string_view bytes() const { return {data_, size_}; }

 private:
  std::string path_;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace zt::data
