// Verifies every byte of a checkpoint.
#include <algorithm>
#include <atomic>
#include <thread>

#include "loader.h"
#include "zt/base/error.h"
#include "zt/io/block_io.h"
#include "zt/io/hash.h"
#include "zt/io/small_files.h"

namespace zt::ckpt {

namespace {

static_assert(io::kBlock % io::kChecksumBlock == 0, "a read has whole checksum blocks");

// A part of a piece, and its place in the shard.
struct PieceStretch {
  const SavedTensor* tensor;
  const SavedPiece* piece;
  int64_t begin;  // byte of the piece
  io::FileRange range;
};

// Returns the data of each shard in reads of at most io::kBlock bytes, ascending by offset.
std::vector<std::vector<PieceStretch>> data_of(const MasterIndex& index) {
  std::vector<std::vector<PieceStretch>> stretches(index.shards.size());
  for (const SavedTensor& tensor : index.tensors) {
    for (const SavedPiece& piece : tensor.pieces) {
      const int64_t bytes = piece.region.count * static_cast<int64_t>(c10::elementSize(tensor.dtype));
      for (int64_t begin = 0; begin < bytes; begin += io::kBlock)
        stretches[piece.shard].push_back({&tensor, &piece, begin, {piece.offset + begin, std::min(io::kBlock, bytes - begin)}});
    }
  }
  for (auto& of_shard : stretches) std::ranges::sort(of_shard, {}, [](const PieceStretch& each) { return each.range.offset; });
  return stretches;
}

std::vector<io::FileRange> in_blocks(const std::vector<io::FileRange>& ranges) {
  std::vector<io::FileRange> blocks;
  for (const io::FileRange& range : ranges) {
    for (int64_t at = 0; at < range.bytes; at += io::kBlock)
      blocks.push_back({range.offset + at, std::min(io::kBlock, range.bytes - at)});
  }
  return blocks;
}

// Returns the hash of the ranges' bytes in their order. Holds at most kDepth blocks in memory.
uint64_t hash_of(io::FileSystem& files, const std::string& path, std::span<const io::FileRange> ranges) {
  io::Hash hash;
  while (!ranges.empty()) {
    size_t count = 0;
    for (int64_t bytes = 0; count < ranges.size() && bytes < io::kDepth * io::kBlock; ++count) bytes += ranges[count].bytes;
    std::vector<std::vector<std::byte>> read(count);
    io::read_ranges(files, path, ranges.first(count),
                    [&](size_t i, std::span<const std::byte> data) { read[i].assign(data.begin(), data.end()); });
    for (const auto& each : read) hash.add(each);
    ranges = ranges.subspan(count);
  }
  return hash.value();
}

void verify_blocks(const PieceStretch& stretch, std::span<const std::byte> data, const std::string& path,
                   std::vector<std::string>& wrong) {
  io::for_each_block(stretch.begin, data, [&](size_t number, std::span<const std::byte> block) {
    if (io::xxh3(block) == stretch.piece->checksums[number]) return;
    const size_t begin = number * io::kChecksumBlock;
    wrong.push_back(fmt::format("{}: bytes {} to {} of {} differ from those that were saved", path, begin, begin + block.size(),
                                stretch.tensor->name));
  });
}

std::vector<std::string> verify_shard(io::FileSystem& files, const std::string& folder, const SavedShard& saved,
                                      const std::vector<PieceStretch>& data) {
  const std::string path = folder + "/" + saved.file;
  std::vector<std::string> wrong;
  try {
    const int64_t bytes = io::file_bytes(files, path);
    if (bytes != saved.bytes) return {fmt::format("{}: {} bytes, {} were saved", path, bytes, saved.bytes)};
    std::vector<io::FileRange> ranges;
    for (const PieceStretch& each : data) ranges.push_back(each.range);
    io::read_ranges(files, path, ranges,
                    [&](size_t i, std::span<const std::byte> bytes_read) { verify_blocks(data[i], bytes_read, path, wrong); });
    if (hash_of(files, path, in_blocks(io::gaps_between(ranges, bytes))) != saved.rest)
      wrong.push_back(fmt::format("{}: HDF5's own bytes differ from those that were saved", path));
  } catch (const std::exception& error) {
    wrong.push_back(describe(error));
  }
  return wrong;
}

}  // namespace

std::vector<std::string> verify(io::FileSystem& files, const std::string& folder) {
  MasterIndex index;
  try {
    index = read_index(files, folder);
  } catch (const std::exception& error) {
    return {describe(error)};
  }
  const auto data = data_of(index);
  std::vector<std::vector<std::string>> found(index.shards.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t shard = next++; shard < found.size(); shard = next++)
      found[shard] = verify_shard(files, folder, index.shards[shard], data[shard]);
  };
  {
    std::vector<std::jthread> threads;
    const size_t count = std::min<size_t>(found.size(), std::max(1U, std::thread::hardware_concurrency()));
    try {
      for (size_t i = 1; i < count; ++i) threads.emplace_back(work);
    } catch (const std::system_error&) {  // NOLINT: no more threads are allowed; those that run do all the work
    }
    work();
  }
  std::vector<std::string> wrong;
  for (auto& each : found) wrong.insert(wrong.end(), each.begin(), each.end());
  return wrong;
}

}  // namespace zt::ckpt
