#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "transfer_queue.h"
#include "zt/base/error.h"
#include "zt/io/aligned_memory.h"
#include "zt/io/block_io.h"
#include "zt/io/io_errors.h"

namespace zt::io {

namespace {

constexpr int64_t kGap = int64_t{64} << 10;    // bytes between ranges that are read together: fewer than an operation costs
constexpr int64_t kMargin = int64_t{8} << 10;  // bytes that alignment adds to a batch: less than a page at either end
constexpr int64_t kSlotBytes = kBlock + kMargin;

// The bytes [begin, end) of the file, which one operation reads for the ranges [first, last) of the ordered ones.
struct Batch {
  int64_t begin = 0, end = 0;
  size_t first = 0, last = 0;
};

// Returns the indices of the ranges, ordered by offset.
std::vector<size_t> order_of(std::span<const Range> ranges) {
  std::vector<size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ranges[a].offset < ranges[b].offset; });
  return order;
}

// Joins ranges that lie near each other to batches of at most kBlock bytes. A larger range is a batch of its own.
std::vector<Batch> batches_of(std::span<const Range> ranges, const std::vector<size_t>& order) {
  std::vector<Batch> batches;
  for (size_t i = 0; i < order.size(); ++i) {
    const Range& range = ranges[order[i]];
    const int64_t end = range.offset + range.bytes;
    if (!batches.empty()) {
      Batch& last = batches.back();
      const int64_t joined = std::max(last.end, end);
      if (range.offset - last.end <= kGap && (joined == last.end || joined - last.begin <= kBlock)) {
        last.end = joined;
        last.last = i + 1;
        continue;
      }
    }
    batches.push_back({range.offset, end, i, i + 1});
  }
  return batches;
}

// Reads the batches, up to kDepth at a time, and passes their ranges to the sink.
class Reader {
 public:
  Reader(const TransferContext& context, File& file, std::span<const Range> ranges, const Sink& sink)
      : alignment_(file.alignment()),
        ranges_(ranges),
        order_(order_of(ranges)),
        sink_(sink),
        memory_(kDepth * kSlotBytes),
        queue_(context, file, Direction::read, kDepth) {}

  void read_all() {
    for (const Batch& batch : batches_of(ranges_, order_)) {
      while (!has_room(batch)) finish_one();
      start(batch);
    }
    while (queue_.under_way() > 0) finish_one();
  }

 private:
  int64_t begin_of(const Batch& batch) const { return batch.begin / alignment_ * alignment_; }
  int64_t bytes_of(const Batch& batch) const { return (batch.end - begin_of(batch) + alignment_ - 1) / alignment_ * alignment_; }
  bool has_room(const Batch& batch) const {
    if (queue_.under_way() == 0) return true;
    return !queue_.is_full() && bytes_under_way_ + bytes_of(batch) <= kDepth * kSlotBytes;
  }

  // Returns the memory of a slot: its part of `memory_`, or memory of its own for a larger range.
  std::byte* place_of(int slot) { return large_[slot] ? large_[slot]->data() : memory_.data() + slot * kSlotBytes; }

  void start(const Batch& batch) {
    const int slot = queue_.take_slot();
    const int64_t begin = begin_of(batch), bytes = bytes_of(batch);
    batches_[slot] = batch;
    if (bytes > kSlotBytes) large_[slot].emplace(bytes);
    queue_.start(slot, begin, place_of(slot), bytes, batch.end - begin);
    bytes_under_way_ += bytes;
  }

  void finish_one() {
    const int slot = queue_.finish_one();
    const Batch& batch = batches_[slot];
    const int64_t begin = begin_of(batch);
    for (size_t i = batch.first; i < batch.last; ++i) {
      const Range& range = ranges_[order_[i]];
      sink_(order_[i], {place_of(slot) + (range.offset - begin), static_cast<size_t>(range.bytes)});
    }
    bytes_under_way_ -= bytes_of(batch);
    large_[slot].reset();
  }

  const int64_t alignment_;
  const std::span<const Range> ranges_;
  const std::vector<size_t> order_;
  const Sink& sink_;
  const AlignedMemory memory_;
  std::array<std::optional<AlignedMemory>, kDepth> large_;
  std::array<Batch, kDepth> batches_;
  int64_t bytes_under_way_ = 0;
  TransferQueue queue_;  // destroyed before the memory, because it waits for the operations that use it
};

void check_ranges(std::span<const Range> ranges, const std::string& path, int64_t file_bytes) {
  for (const Range& range : ranges) {
    if (range.offset < 0 || range.bytes < 0)
      misuse("{} bytes at {} are no part of a file ('{}')", range.bytes, range.offset, path);
    if (range.bytes > file_bytes || range.offset > file_bytes - range.bytes) {
      fault("'{}' is cut off or not the file that is meant: {} bytes at {} are needed and it has {}. Restore it from a copy",
            path, range.bytes, range.offset, file_bytes);
    }
  }
}

}  // namespace

void read_ranges(FileSystem& files, const std::string& path, std::span<const Range> ranges, const Sink& sink) {
  const auto file = open_file(files, path, {Access::read, Caching::direct, kDepth});
  const int64_t bytes = retry_or_fault(files, "find the size of", path, [&] { return file->size(); });
  check_ranges(ranges, path, bytes);
  if (!ranges.empty()) Reader({files, path, bytes}, *file, ranges, sink).read_all();
}

}  // namespace zt::io
