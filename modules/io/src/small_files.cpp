#include "zt/io/small_files.h"

#include "transfer_queue.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/io/input_file.h"
#include "zt/io/io_errors.h"

namespace zt::io {

int64_t file_bytes(FileSystem& files, const std::string& path) {
  return InputFile(path, files).size();
}

std::vector<std::byte> read_small(FileSystem& files, const std::string& path, int64_t limit) {
  const InputFile file(path, files);
  if (file.size() > limit) {
    fault("'{}' has {}, where at most {} are expected: it is damaged or another kind of file. Restore it from a copy", path,
          human_bytes(file.size()), human_bytes(limit));
  }
  return file.first_bytes(file.size());
}

void write_small(FileSystem& files, const std::string& path, std::span<const std::byte> bytes) {
  const auto file = open_file(files, path, {Access::create});
  const TransferContext context{files, path, static_cast<int64_t>(bytes.size())};
  auto* memory = const_cast<std::byte*>(bytes.data());  // NOLINT: a write does not change it
  transfer(context, *file, {IoDirection::write, 0, memory, context.bytes, 0});
  sync(context, *file);
}

}  // namespace zt::io
