#include "zt/io/atomic_file.h"

#include <algorithm>
#include <cerrno>

#include "transfer_queue.h"
#include "zt/io/io_errors.h"

namespace zt::io {

namespace {

// Opens the partial file of `path`. Waits up to 4 s while another writer has it.
std::unique_ptr<File> open_partial(FileSystem& files, const std::string& path, const std::string& partial) {
  Opened opened;
  const int64_t result = retry([&] {
    opened = files.open(partial, {Access::replace});
    return opened.error == -EBUSY ? -EAGAIN : opened.error;
  });
  if (opened.file) return std::move(opened.file);
  if (opened.error == -EBUSY) {
    fault("cannot write '{}': another process is writing it at the moment. Wait for it, or stop it", path);
  }
  if (opened.kind != EntryKind::file) {
    fault("cannot write '{}': '{}', its name until it is complete, is {}. Remove that, or choose another path", path, partial,
          phrase_for(opened.kind));
  }
  io_fault(files, "write", path, result);
}

}  // namespace

AtomicFile::AtomicFile(std::string path, FileSystem& files)
    : files_(files), path_(std::move(path)), partial_(path_ + ".partial"), file_(open_partial(files_, path_, partial_)) {}

AtomicFile::~AtomicFile() {
  if (!file_) return;
  try {
    files_.remove(partial_);  // before the file is closed and unlocked: after that, the name may belong to the next writer
  } catch (...) {             // only the file systems of tests throw, to simulate the death of the process
  }
}

void AtomicFile::append(std::span<const std::byte> bytes) {
  overwrite(size_, bytes);
  size_ += static_cast<int64_t>(bytes.size());
}

void AtomicFile::overwrite(int64_t offset, std::span<const std::byte> bytes) {
  const auto count = static_cast<int64_t>(bytes.size());
  auto* memory = const_cast<std::byte*>(bytes.data());  // NOLINT: a write does not change it
  transfer({files_, path_, std::max(size_, offset + count)}, *file_, {IoDirection::write, offset, memory, count, 0});
}

void AtomicFile::commit(Durability durability) {
  const bool outlasts_machine = durability == Durability::machine_crash;
  if (outlasts_machine) sync({files_, path_, size_}, *file_);
  retry_or_fault(files_, "write", path_, [&] { return files_.rename(partial_, path_); });
  file_.reset();
  if (outlasts_machine) sync_folder_or_fault(files_, folder_of(path_));
}

void replace_file(FileSystem& files, const std::string& path, std::span<const std::byte> bytes) {
  AtomicFile file(path, files);
  file.append(bytes);
  file.commit();
}

void replace_file(const std::string& path, std::string_view text) {
  replace_file(posix_files(), path, std::as_bytes(std::span(text)));
}

}  // namespace zt::io
