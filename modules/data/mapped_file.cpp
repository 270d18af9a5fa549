#include "mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "zt/error.h"

namespace zt::data {

namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const Descriptor file{open(path_.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) fault("cannot open '{}': {}", path_, std::strerror(errno));
  struct stat status {};
  if (fstat(file.fd, &status) != 0) fault("cannot look at '{}': {}", path_, std::strerror(errno));
  if (!S_ISREG(status.st_mode))
    fault("cannot map '{}' into memory, it is not a regular file: give the path of a file on disk", path_);
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;  // nothing can be mapped, and bytes() is rightly empty
  void* memory = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd, 0);
  if (memory == MAP_FAILED) fault("cannot map '{}' ({} bytes) into memory: {}", path_, size_, std::strerror(errno));
  data_ = static_cast<const char*>(memory);
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<char*>(data_), size_);
}

}  // namespace zt::data
