// A file on disk that is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace zt::data {

// An open file. Opening never waits: a FIFO without a writer is refused like everything else that is not a regular file.
// Threads: const after construction. Errors: Fault that names the file and says what it is, or why it cannot be read.
class InputFile {
 public:
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // bytes, when the file was opened
  int descriptor() const { return descriptor_; }

  // Bytes [offset, offset + out.size()). Fault also when the file ends before them, which means that it was cut since it was
  // opened.
  void read(int64_t offset, std::span<std::byte> out) const;

 private:
  void check_and_measure();

  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

// All bytes of the file at `path`. For small files: fault if it has more than 1 GiB.
std::string read_file(const std::string& path);

}  // namespace zt::data
