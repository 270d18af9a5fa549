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

constexpr int64_t kGap = int64_t{64} << 10;    // most bytes between joined ranges: reading them costs less than another operation
constexpr int64_t kMargin = int64_t{8} << 10;  // most bytes that alignment adds to a batch: less than one page at each end
constexpr int64_t kLaneBytes = kBlock + kMargin;

// The bytes [begin, end) of the file, which one operation reads. They contain the ranges order[first] to order[last - 1].
struct RangeBatch {
  int64_t begin = 0, end = 0;
  size_t first = 0, last = 0;
};

// Returns the indices of the ranges, ordered by offset.
std::vector<size_t> order_of(std::span<const FileRange> ranges) {
  std::vector<size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ranges[a].offset < ranges[b].offset; });
  return order;
}

// Joins ranges that lie near each other into batches of at most kBlock bytes. A larger range begins a batch of its own.
std::vector<RangeBatch> batches_of(std::span<const FileRange> ranges, const std::vector<size_t>& order) {
  std::vector<RangeBatch> batches;
  for (size_t i = 0; i < order.size(); ++i) {
    const FileRange& range = ranges[order[i]];
    const int64_t end = range.offset + range.bytes;
    if (!batches.empty()) {
      RangeBatch& last = batches.back();
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
class BatchReader {
 public:
  BatchReader(const TransferContext& context, File& file, std::span<const FileRange> ranges, const Sink& sink)
      : alignment_(file.alignment()),
        ranges_(ranges),
        order_(order_of(ranges)),
        sink_(sink),
        memory_(kDepth * kLaneBytes),
        queue_(context, file, kDepth) {}

  void read_all() {
    for (const RangeBatch& batch : batches_of(ranges_, order_)) {
      while (!has_room(batch)) finish_one();
      start(batch);
    }
    while (queue_.under_way() > 0) finish_one();
  }

 private:
  int64_t begin_of(const RangeBatch& batch) const { return batch.begin / alignment_ * alignment_; }
  int64_t bytes_of(const RangeBatch& batch) const {
    return (batch.end - begin_of(batch) + alignment_ - 1) / alignment_ * alignment_;
  }
  bool has_room(const RangeBatch& batch) const {
    if (queue_.under_way() == 0) return true;
    return !queue_.is_full() && bytes_under_way_ + bytes_of(batch) <= kDepth * kLaneBytes;
  }

  // Returns the memory of a lane: its part of `memory_`, or separate memory if the batch is larger.
  std::byte* place_of(int lane) { return large_[lane] ? large_[lane]->data() : memory_.data() + lane * kLaneBytes; }

  void start(const RangeBatch& batch) {
    const int lane = queue_.take_lane();
    const int64_t begin = begin_of(batch), bytes = bytes_of(batch);
    batches_[lane] = batch;
    if (bytes > kLaneBytes) large_[lane].emplace(bytes);
    queue_.start({IoDirection::read, begin, place_of(lane), bytes, lane}, batch.end - begin);
    bytes_under_way_ += bytes;
  }

  void finish_one() {
    const int lane = queue_.finish_one();
    const RangeBatch& batch = batches_[lane];
    const int64_t begin = begin_of(batch);
    for (size_t i = batch.first; i < batch.last; ++i) {
      const FileRange& range = ranges_[order_[i]];
      sink_(order_[i], {place_of(lane) + (range.offset - begin), static_cast<size_t>(range.bytes)});
    }
    bytes_under_way_ -= bytes_of(batch);
    large_[lane].reset();
  }

  const int64_t alignment_;
  const std::span<const FileRange> ranges_;
  const std::vector<size_t> order_;
  const Sink& sink_;
  const AlignedMemory memory_;
  std::array<std::optional<AlignedMemory>, kDepth> large_;
  std::array<RangeBatch, kDepth> batches_;
  int64_t bytes_under_way_ = 0;
  TransferQueue queue_;  // declared last: its destructor waits for operations that use the memory
};

void check_ranges(std::span<const FileRange> ranges, const std::string& path, int64_t file_bytes) {
  for (const FileRange& range : ranges) {
    if (range.offset < 0 || range.bytes < 0)
      misuse("cannot read {} bytes at offset {} of '{}': neither may be negative", range.bytes, range.offset, path);
    if (range.bytes > file_bytes || range.offset > file_bytes - range.bytes) {
      fault("'{}' is truncated or not the expected file: {} bytes at offset {} are needed and it has {}. Restore it from a copy",
            path, range.bytes, range.offset, file_bytes);
    }
  }
}

}  // namespace

std::vector<FileRange> gaps_between(std::vector<FileRange> taken, int64_t bytes) {
  std::ranges::sort(taken, {}, &FileRange::offset);
  std::vector<FileRange> gaps;
  int64_t end = 0;
  for (const FileRange& range : taken) {
    if (range.bytes == 0) continue;
    if (range.offset > end) gaps.push_back({end, range.offset - end});
    end = range.offset + range.bytes;
  }
  if (bytes > end) gaps.push_back({end, bytes - end});
  return gaps;
}

void read_ranges(FileSystem& files, const std::string& path, std::span<const FileRange> ranges, const Sink& sink) {
  const auto file = open_file(files, path, {Access::read, Caching::direct, kDepth});
  const int64_t bytes = retry_or_fault(files, "find the size of", path, [&] { return file->size(); });
  check_ranges(ranges, path, bytes);
  if (!ranges.empty()) BatchReader({files, path, bytes}, *file, ranges, sink).read_all();
}

}  // namespace zt::io
