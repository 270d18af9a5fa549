#include "zt/io/input_file.h"

#include "transfer_queue.h"
#include "zt/base/error.h"
#include "zt/io/io_errors.h"

namespace zt::io {

InputFile::InputFile(std::string path, FileSystem& files)
    : files_(files),
      path_(std::move(path)),
      file_(open_file(files, path_, {Access::read})),
      size_(retry_or_fault(files, "find the size of", path_, [&] { return file_->size(); })) {}

void InputFile::read(int64_t offset, std::span<std::byte> out) const {
  const std::lock_guard lock(mutex_);
  transfer({files_, path_, size_}, *file_, {IoDirection::read, offset, out.data(), static_cast<int64_t>(out.size()), 0});
}

std::vector<std::byte> InputFile::first_bytes(int64_t count) const {
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  read(0, bytes);
  return bytes;
}

std::string read_file(const std::string& path) {
  constexpr int64_t kLargestWhole = int64_t{1} << 30;  // bytes
  const InputFile file(path);
  if (file.size() > kLargestWhole) {
    fault("cannot read '{}': it has {} bytes, where at most {} are expected. Is it the right file?", path, file.size(),
          kLargestWhole);
  }
  std::string bytes(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace zt::io
