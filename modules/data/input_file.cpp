#include "input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "zt/error.h"

namespace zt::data {

namespace {

constexpr int64_t kLargestWhole = int64_t{1} << 30;  // bytes

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO (a named pipe)";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "a socket";
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: without it, opening a FIFO waits for a writer. It has no effect on regular files.
  descriptor_ = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor_ < 0) fault("cannot open '{}': {}", path_, std::strerror(errno));
  try {
    check_and_measure();
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

InputFile::~InputFile() {
  close(descriptor_);
}

void InputFile::check_and_measure() {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) fault("cannot look at '{}': {}", path_, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) {
    fault("cannot read '{}': it is {}, not a regular file. Give the path of a file on disk", path_, kind_of(status.st_mode));
  }
  size_ = status.st_size;
}

void InputFile::read(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = pread(descriptor_, out.data(), out.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fault("cannot read '{}' at byte {}: {}", path_, offset, std::strerror(errno));
    if (count == 0) {
      fault(
          "'{}' was cut while it was in use: it had {} bytes when it was opened, and now it ends at or before byte {}. Restore "
          "it, and start again; write such files to a new name and rename them",
          path_, size_, offset);
    }
    out = out.subspan(static_cast<size_t>(count));
    offset += count;
  }
}

std::string read_file(const std::string& path) {
  const InputFile file(path);
  if (file.size() > kLargestWhole) {
    fault("cannot read '{}': it has {} bytes, where at most {} are expected. Is it the right file?", path, file.size(),
          kLargestWhole);
  }
  std::string bytes(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace zt::data
