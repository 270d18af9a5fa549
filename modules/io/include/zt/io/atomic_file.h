// A file that appears under its name complete or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "zt/io/posix_fs.h"

namespace zt::io {

// Which crash a committed file survives.
enum class Durability : uint8_t {
  machine_crash,  // commit() waits until the content and the name are on the disk
  process_crash,  // commit() waits for nothing: a crash of the machine may lose the file
};

// Writes to the file `path`.partial; commit() renames it to `path` in one step. A reader of `path` finds the old content or the
// new one, never a mixture. Without a commit, the destructor removes the partial file. A process that is killed leaves the
// partial file behind; the next writer of the same path empties and reuses it.
//
// A partial file has one writer: it is locked (see Access::replace). A second writer, of this process or another one, waits up to
// 4 s for the first one.
//
// Every method throws Fault, with the reason and advice, when the file cannot be created, written or renamed, or when another
// writer does not end within 4 s. After a Fault only the destructor may be called.
// Threads: one at a time. The file system has to live as long as the object.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path, FileSystem& files = posix_files());
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::string& path() const { return path_; }
  // Writes `bytes` at the end of the file.
  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
  // Writes `bytes` at `offset` (in bytes) over bytes that were appended before.
  void overwrite(int64_t offset, std::span<const std::byte> bytes);
  void overwrite(int64_t offset, std::string_view text) { overwrite(offset, std::as_bytes(std::span(text))); }
  // Renames the partial file to `path`; no other method may be called afterwards. If commit() throws, `path` has the old content
  // or the new one.
  void commit(Durability durability = Durability::machine_crash);

 private:
  FileSystem& files_;
  const std::string path_, partial_;
  std::unique_ptr<File> file_;  // null after the rename
  int64_t size_ = 0;            // bytes that were appended
};

// Writes the whole file `path` through an AtomicFile; the file may exist. Throws: Fault, as AtomicFile does.
void replace_file(FileSystem& files, const std::string& path, std::span<const std::byte> bytes);
void replace_file(const std::string& path, std::string_view text);

}  // namespace zt::io
