#include "zt/io/small_files.h"

#include "transfer_queue.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/io/io_errors.h"

namespace zt::io {

namespace {

int64_t size_of(FileSystem& files, const std::string& path, File& file) {
  return retry_or_fault(files, "find the size of", path, [&] { return file.size(); });
}

std::vector<std::byte> first_bytes(FileSystem& files, const std::string& path, File& file, int64_t bytes) {
  std::vector<std::byte> content(static_cast<size_t>(bytes));
  transfer({files, path, bytes}, file, {IoDirection::read, 0, content.data(), bytes, 0});
  return content;
}

}  // namespace

int64_t file_bytes(FileSystem& files, const std::string& path) {
  return size_of(files, path, *open_file(files, path, {Access::read}));
}

std::vector<std::byte> read_small(FileSystem& files, const std::string& path, int64_t limit) {
  const auto file = open_file(files, path, {Access::read});
  const int64_t bytes = size_of(files, path, *file);
  if (bytes > limit) {
    fault("'{}' has {}, where at most {} are expected: it is damaged or another kind of file. Restore it from a copy", path,
          human_bytes(bytes), human_bytes(limit));
  }
  return first_bytes(files, path, *file, bytes);
}

std::vector<std::byte> read_start(FileSystem& files, const std::string& path, int64_t bytes) {
  return first_bytes(files, path, *open_file(files, path, {Access::read}), bytes);
}

void write_small(FileSystem& files, const std::string& path, std::span<const std::byte> bytes) {
  const auto file = open_file(files, path, {Access::create});
  const TransferContext context{files, path, static_cast<int64_t>(bytes.size())};
  auto* memory = const_cast<std::byte*>(bytes.data());  // NOLINT: a write does not change it
  transfer(context, *file, {IoDirection::write, 0, memory, context.bytes, 0});
  sync(context, *file);
}

}  // namespace zt::io
