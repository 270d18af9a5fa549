// A file that stays open and is read in parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "zt/io/posix_fs.h"

namespace zt::io {

// An open regular file. Opening never blocks: a FIFO, or any other entry that is not a regular file, is an error.
// The content is read, not mapped: if another process truncated a mapped file, reading it would kill this process by SIGBUS.
// Every method throws Fault, which names the file and the reason.
// Threads: any; reads of one object take turns. The file system has to live as long as the object.
class InputFile {
 public:
  explicit InputFile(std::string path, FileSystem& files = posix_files());

  const std::string& path() const { return path_; }
  // Returns the size in bytes that the file had when it was opened.
  int64_t size() const { return size_; }

  // Fills `out` with the bytes [offset, offset + out.size()) of the file.
  // Throws: Fault, also if the file was truncated after it was opened and ends before these bytes.
  void read(int64_t offset, std::span<std::byte> out) const;
  // Returns the bytes [0, count) of the file. Throws: Fault, as read() does.
  std::vector<std::byte> first_bytes(int64_t count) const;

 private:
  FileSystem& files_;
  const std::string path_;
  mutable std::mutex mutex_;  // guards *file_
  const std::unique_ptr<File> file_;
  const int64_t size_;
};

// Returns all bytes of the file at `path`. Throws: Fault, also if the file has more than 1 GiB.
std::string read_file(const std::string& path);

}  // namespace zt::io
