#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "aligned_memory.h"
#include "calls.h"
#include "pipeline.h"
#include "transfer.h"
#include "zt/error.h"

namespace zt::ckpt {

namespace {

constexpr int64_t kGap = int64_t{64} << 10;    // ranges no farther apart are read together: it costs less than one more operation
constexpr int64_t kMargin = int64_t{8} << 10;  // what direct I/O reads beyond a batch: less than a page at either side
constexpr int64_t kSlotBytes = kBlock + kMargin;

// What one operation reads: bytes [begin, end) of the file, for ranges [first, last) of the ordered ones.
struct Batch {
  int64_t begin = 0, end = 0;
  size_t first = 0, last = 0;
};

// The numbers of the ranges, by offset.
std::vector<size_t> order_of(std::span<const Range> ranges) {
  std::vector<size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ranges[a].offset < ranges[b].offset; });
  return order;
}

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

class Reader {
 public:
  Reader(const Subject& subject, File& file, std::span<const Range> ranges, const Sink& sink)
      : alignment_(file.alignment()),
        ranges_(ranges),
        order_(order_of(ranges)),
        sink_(sink),
        memory_(kDepth * kSlotBytes),
        pipeline_(subject, file, Direction::read, kDepth) {}

  void read_all() {
    for (const Batch& batch : batches_of(ranges_, order_)) {
      while (!has_room(batch)) finish_one();
      start(batch);
    }
    while (pipeline_.under_way() > 0) finish_one();
  }

 private:
  int64_t begin_of(const Batch& batch) const { return batch.begin / alignment_ * alignment_; }
  int64_t bytes_of(const Batch& batch) const { return (batch.end - begin_of(batch) + alignment_ - 1) / alignment_ * alignment_; }
  bool has_room(const Batch& batch) const {
    if (pipeline_.under_way() == 0) return true;
    return !pipeline_.is_full() && bytes_under_way_ + bytes_of(batch) <= kDepth * kSlotBytes;
  }

  // Where a batch is read to: the slot's part of the ring, or memory of its own for a range that is larger.
  std::byte* place_of(int slot) { return large_[slot] ? large_[slot]->data() : memory_.data() + slot * kSlotBytes; }

  void start(const Batch& batch) {
    const int slot = pipeline_.take_slot();
    const int64_t begin = begin_of(batch), bytes = bytes_of(batch);
    batches_[slot] = batch;
    if (bytes > kSlotBytes) large_[slot].emplace(bytes);
    pipeline_.start(slot, begin, place_of(slot), bytes, batch.end - begin);
    bytes_under_way_ += bytes;
  }

  void finish_one() {
    const int slot = pipeline_.finish_one();
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
  Pipeline pipeline_;  // destroyed before the memory: it waits for what is under way
};

void check(std::span<const Range> ranges, const std::string& path, int64_t file_bytes) {
  for (const Range& range : ranges) {
    if (range.offset < 0 || range.bytes < 0) misuse("{} bytes at {} are no part of a file ({})", range.bytes, range.offset, path);
    if (range.bytes > file_bytes || range.offset > file_bytes - range.bytes) {
      fault(
          "{} is cut off or not the file that is meant: {} bytes at {} are needed and it has {}. Restore it from a copy or use "
          "another checkpoint",
          path, range.bytes, range.offset, file_bytes);
    }
  }
}

}  // namespace

void read_ranges(FileSystem& files, const std::string& path, std::span<const Range> ranges, const Sink& sink) {
  const auto file = open_file(files, path, {Access::read, Caching::direct, kDepth});
  const int64_t bytes = must(files, "find the size of", path, [&] { return file->size(); });
  check(ranges, path, bytes);
  if (!ranges.empty()) Reader({files, path, bytes}, *file, ranges, sink).read_all();
}

}  // namespace zt::ckpt
