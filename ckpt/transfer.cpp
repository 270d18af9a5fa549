#include "transfer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "aligned_memory.h"
#include "calls.h"
#include "pipeline.h"
#include "zt/error.h"
#include "zt/tensor.h"

namespace zt::ckpt {

namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void sync_file(const Subject& subject, File& file) {
  const int64_t result = persist([&] { return file.sync(); });
  if (result < 0) io_fault(subject.files, "write to disk", subject.path, result, subject.bytes);
}

// One operation, awaited.
void move_at_once(const Subject& subject, File& file, Direction direction, std::byte* memory, int64_t bytes) {
  if (bytes == 0) return;
  Pipeline pipeline(subject, file, direction, 1);
  pipeline.start(pipeline.take_slot(), 0, memory, bytes, bytes);
  pipeline.finish_one();
}

void write_at_once(FileSystem& files, const std::string& path, Access access, std::span<const std::byte> bytes) {
  const auto file = open_file(files, path, {access});
  const Subject subject{files, path, static_cast<int64_t>(bytes.size())};
  move_at_once(subject, *file, Direction::write, const_cast<std::byte*>(bytes.data()), subject.bytes);  // NOLINT: only read
  sync_file(subject, *file);
}

class Writer {
 public:
  Writer(const Subject& subject, File& file, const Source& source)
      : bytes_(subject.bytes),
        alignment_(file.alignment()),
        source_(source),
        scratch_(kDepth * kBlock),
        pipeline_(subject, file, Direction::write, kDepth) {}

  void write_all(int64_t start) {
    write_blocks(start, bytes_);
    write_blocks(0, std::min(start, bytes_));
    while (pipeline_.under_way() > 0) pipeline_.finish_one();
  }

 private:
  void write_blocks(int64_t begin, int64_t end) {
    for (int64_t offset = begin; offset < end; offset += kBlock) {
      if (pipeline_.is_full()) pipeline_.finish_one();
      write_block(pipeline_.take_slot(), offset);
    }
  }

  void write_block(int slot, int64_t offset) {
    const int64_t count = std::min(kBlock, bytes_ - offset), whole = round_up(count, alignment_);
    std::byte* scratch = scratch_.data() + slot * kBlock;
    const auto given = source_(offset, {scratch, static_cast<size_t>(count)});
    if (static_cast<int64_t>(given.size()) != count) {
      misuse("a source gave {} bytes at {} of a file, where {} were asked for", given.size(), offset, count);
    }
    const bool is_aligned = reinterpret_cast<uintptr_t>(given.data()) % static_cast<uintptr_t>(alignment_) == 0;
    if (is_aligned && whole == count) {
      pipeline_.start(slot, offset, const_cast<std::byte*>(given.data()), count, count);  // NOLINT: only read
      return;
    }
    if (given.data() != scratch) std::memmove(scratch, given.data(), given.size());
    std::memset(scratch + count, 0, static_cast<size_t>(whole - count));
    pipeline_.start(slot, offset, scratch, whole, whole);
  }

  const int64_t bytes_, alignment_;
  const Source& source_;
  const AlignedMemory scratch_;
  Pipeline pipeline_;  // destroyed before the memory: it waits for what is under way
};

// Also sets the size. A file system that cannot reserve finds a full disk on the way.
void reserve(const Subject& subject, File& file, int64_t bytes) {
  const int64_t result = persist([&] { return file.reserve(bytes); });
  if (result < 0 && result != -EOPNOTSUPP && result != -ENOSYS) {
    io_fault(subject.files, "reserve space for", subject.path, result, subject.bytes);
  }
}

}  // namespace

void write_file(FileSystem& files, const std::string& path, int64_t bytes, const Source& source, int64_t start) {
  const Subject subject{files, path, bytes};
  const auto file = open_file(files, path, {Access::create, Caching::direct, kDepth});
  const int64_t whole = round_up(bytes, file->alignment());
  if (bytes > 0) {
    reserve(subject, *file, whole);
    Writer(subject, *file, source).write_all(start);
  }
  if (whole != bytes) must(files, "set the size of", path, [&] { return file->truncate(bytes); });
  sync_file(subject, *file);
}

int64_t file_bytes(FileSystem& files, const std::string& path) {
  const auto file = open_file(files, path, {Access::read});
  return must(files, "find the size of", path, [&] { return file->size(); });
}

std::vector<std::byte> read_small(FileSystem& files, const std::string& path, int64_t limit) {
  const auto file = open_file(files, path, {Access::read});
  const int64_t bytes = must(files, "find the size of", path, [&] { return file->size(); });
  if (bytes > limit) {
    fault("{} has {}, where at most {} are expected: it is damaged or another kind of file. Restore it or use another checkpoint",
          path, human_bytes(bytes), human_bytes(limit));
  }
  std::vector<std::byte> content(static_cast<size_t>(bytes));
  move_at_once({files, path, bytes}, *file, Direction::read, content.data(), bytes);
  return content;
}

std::vector<std::byte> read_start(FileSystem& files, const std::string& path, int64_t bytes) {
  const auto file = open_file(files, path, {Access::read});
  std::vector<std::byte> content(static_cast<size_t>(bytes));
  move_at_once({files, path, bytes}, *file, Direction::read, content.data(), bytes);
  return content;
}

void write_small(FileSystem& files, const std::string& path, std::span<const std::byte> bytes) {
  write_at_once(files, path, Access::create, bytes);
}

void replace_file(FileSystem& files, const std::string& path, std::span<const std::byte> bytes) {
  const std::string partial = path + ".partial";
  try {
    write_at_once(files, partial, Access::replace, bytes);
    must(files, "replace", path, [&] { return files.rename(partial, path); });
  } catch (const Fault&) {
    files.remove(partial);  // the space may be wanted; what matters is the first error
    throw;
  }
  const std::string folder = folder_of(path);
  must(files, "write to disk the names in", folder, [&] { return files.sync_folder(folder); });
}

}  // namespace zt::ckpt
