#include "mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "zt/error.h"

namespace zt::data {

MappedFile::MappedFile(std::string path) : file_(std::move(path)) {
  const auto size = static_cast<size_t>(file_.size());
  if (size == 0) return;  // nothing can be mapped, and bytes() is rightly empty
  void* memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, file_.descriptor(), 0);
  if (memory == MAP_FAILED) {
    fault("cannot map '{}' ({} bytes) into memory: {}", file_.path(), size, std::strerror(errno));
  }
  data_ = static_cast<const char*>(memory);
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<char*>(data_), static_cast<size_t>(file_.size()));
}

}  // namespace zt::data
