#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transfer_queue.h"
#include "zt/base/error.h"
#include "zt/io/aligned_memory.h"
#include "zt/io/block_io.h"
#include "zt/io/io_errors.h"

namespace zt::io {

namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Writes the blocks of the source to the file, kDepth at a time.
class Writer {
 public:
  Writer(const TransferContext& context, File& file, const BlockSource& source)
      : bytes_(context.bytes),
        alignment_(file.alignment()),
        source_(source),
        scratch_(kDepth * kBlock),
        queue_(context, file, kDepth) {}

  void write_all(int64_t start) {
    write_blocks(start, bytes_);
    write_blocks(0, std::min(start, bytes_));
    while (queue_.under_way() > 0) queue_.finish_one();
  }

 private:
  void write_blocks(int64_t begin, int64_t end) {
    for (int64_t offset = begin; offset < end; offset += kBlock) {
      if (queue_.is_full()) queue_.finish_one();
      write_block(queue_.take_lane(), offset);
    }
  }

  void write_block(int lane, int64_t offset) {
    const int64_t count = std::min(kBlock, bytes_ - offset), whole = round_up(count, alignment_);
    std::byte* scratch = scratch_.data() + lane * kBlock;
    const auto given = source_(offset, {scratch, static_cast<size_t>(count)});
    if (static_cast<int64_t>(given.size()) != count) {
      misuse("the source returned {} bytes at offset {} of a file, where {} were asked for", given.size(), offset, count);
    }
    const bool is_aligned = reinterpret_cast<uintptr_t>(given.data()) % static_cast<uintptr_t>(alignment_) == 0;
    if (is_aligned && whole == count) {
      auto* memory = const_cast<std::byte*>(given.data());  // NOLINT: a write does not change it
      queue_.start({IoDirection::write, offset, memory, count, lane}, count);
      return;
    }
    if (given.data() != scratch) std::memmove(scratch, given.data(), given.size());
    std::memset(scratch + count, 0, static_cast<size_t>(whole - count));
    queue_.start({IoDirection::write, offset, scratch, whole, lane}, whole);
  }

  const int64_t bytes_, alignment_;
  const BlockSource& source_;
  const AlignedMemory scratch_;
  TransferQueue queue_;  // declared last: its destructor waits for operations that use the memory
};

}  // namespace

void write_file(FileSystem& files, const std::string& path, int64_t bytes, const BlockSource& source, int64_t start) {
  const TransferContext context{files, path, bytes};
  const auto file = open_file(files, path, {Access::create, Caching::direct, kDepth});
  const int64_t whole = round_up(bytes, file->alignment());
  if (bytes > 0) {
    reserve(context, *file, whole);
    Writer(context, *file, source).write_all(start);
  }
  if (whole != bytes) retry_or_fault(files, "set the size of", path, [&] { return file->truncate(bytes); });
  sync(context, *file);
}

}  // namespace zt::io
