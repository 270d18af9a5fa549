#include "verify.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "hash.h"
#include "loader.h"
#include "transfer.h"
#include "zt/error.h"

namespace zt::ckpt {

namespace {

static_assert(kBlock % kChecksumBlock == 0, "a read has whole checksum blocks");

// A part of a shard: blocks of a piece, or bytes outside all data.
struct Stretch {
  const SavedTensor* tensor;  // nullptr: no data
  const SavedPiece* piece;
  int64_t begin;  // byte of the piece
  Range range;
};

std::vector<Stretch> data_of(const Index& index, int32_t shard) {
  std::vector<Stretch> stretches;
  for (const SavedTensor& tensor : index.tensors) {
    for (const SavedPiece& piece : tensor.pieces) {
      if (piece.shard != shard) continue;
      const int64_t bytes = piece.region.count * static_cast<int64_t>(c10::elementSize(tensor.dtype));
      for (int64_t begin = 0; begin < bytes; begin += kBlock)
        stretches.push_back({&tensor, &piece, begin, {piece.offset + begin, std::min(kBlock, bytes - begin)}});
    }
  }
  std::ranges::sort(stretches, {}, [](const Stretch& each) { return each.range.offset; });
  return stretches;
}

std::vector<Range> gaps_between(const std::vector<Stretch>& data, int64_t bytes) {
  std::vector<Range> gaps;
  int64_t at = 0;
  for (const Stretch& each : data) {
    if (each.range.offset > at) gaps.push_back({at, each.range.offset - at});
    at = each.range.offset + each.range.bytes;
  }
  if (bytes > at) gaps.push_back({at, bytes - at});
  return gaps;
}

void verify_blocks(const Stretch& stretch, std::span<const std::byte> data, const std::string& path,
                   std::vector<std::string>& wrong) {
  for (size_t at = 0; at < data.size(); at += kChecksumBlock) {
    const auto block = data.subspan(at, std::min<size_t>(kChecksumBlock, data.size() - at));
    const int64_t begin = stretch.begin + static_cast<int64_t>(at);
    if (xxh3(block) == stretch.piece->checksums[begin / kChecksumBlock]) continue;
    wrong.push_back(fmt::format("{}: bytes {} to {} of {} are not those that were saved", path, begin,
                                begin + static_cast<int64_t>(block.size()), stretch.tensor->name));
  }
}

std::vector<std::string> verify_shard(FileSystem& files, const std::string& folder, const Index& index, int32_t shard) {
  const SavedShard& saved = index.shards[shard];
  const std::string path = folder + "/" + saved.file;
  std::vector<std::string> wrong;
  try {
    const int64_t bytes = file_bytes(files, path);
    if (bytes != saved.bytes) return {fmt::format("{}: {} bytes, {} were saved", path, bytes, saved.bytes)};
    const std::vector<Stretch> data = data_of(index, shard);
    std::vector<Range> ranges;
    for (const Stretch& each : data) ranges.push_back(each.range);
    read_ranges(files, path, ranges,
                [&](size_t i, std::span<const std::byte> bytes_read) { verify_blocks(data[i], bytes_read, path, wrong); });
    const std::vector<Range> gaps = gaps_between(data, bytes);
    std::vector<std::vector<std::byte>> rest(gaps.size());
    read_ranges(files, path, gaps,
                [&](size_t i, std::span<const std::byte> bytes_read) { rest[i].assign(bytes_read.begin(), bytes_read.end()); });
    Hash hash;
    for (const auto& each : rest) hash.add(each);
    if (hash.value() != saved.rest) wrong.push_back(fmt::format("{}: HDF5's own bytes are not those that were saved", path));
  } catch (const Error& error) {
    wrong.emplace_back(error.what());
  }
  return wrong;
}

}  // namespace

std::vector<std::string> verify(FileSystem& files, const std::string& folder) {
  Index index;
  try {
    index = read_index(files, folder);
  } catch (const Error& error) {
    return {error.what()};
  }
  std::vector<std::vector<std::string>> found(index.shards.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t shard = next++; shard < found.size(); shard = next++)
      found[shard] = verify_shard(files, folder, index, static_cast<int32_t>(shard));
  };
  std::vector<std::thread> threads;
  const size_t count = std::min<size_t>(found.size(), std::max(1U, std::thread::hardware_concurrency()));
  for (size_t i = 1; i < count; ++i) threads.emplace_back(work);
  work();
  for (auto& thread : threads) thread.join();
  std::vector<std::string> wrong;
  for (auto& each : found) wrong.insert(wrong.end(), each.begin(), each.end());
  return wrong;
}

}  // namespace zt::ckpt
