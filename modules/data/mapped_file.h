// A whole file as read-only memory.
#pragma once

#include <string>
#include <string_view>

#include "input_file.h"

namespace zt::data {

// Maps the file at `path` for its lifetime: texts that need not fit into memory. A file that is cut while it is mapped ends the
// process (SIGBUS), so what a run reads for hours is read with InputFile instead.
// Threads: const after construction. Errors: Fault when the file cannot be opened, is no regular file or cannot be mapped.
class MappedFile {
 public:
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return file_.path(); }
  std::string_view bytes() const { return {data_, static_cast<size_t>(file_.size())}; }

 private:
  InputFile file_;
  const char* data_ = nullptr;
};

}  // namespace zt::data
