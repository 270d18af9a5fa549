// Files with known content, for tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "zt/io/atomic_file.h"
#include "zt/io/block_io.h"
#include "zt/io/small_files.h"

namespace zt::io {

using Bytes = std::vector<std::byte>;

// Returns pseudo-random bytes. All pages differ, and two seeds give different bytes at nearly every offset.
inline Bytes content(int64_t bytes, uint64_t seed = 1) {
  Bytes result(static_cast<size_t>(bytes));
  uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (auto& byte : result) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    byte = static_cast<std::byte>(state >> 56);
  }
  return result;
}

// Returns a source that copies `bytes` to scratch.
inline BlockSource copying(const Bytes& bytes) {
  return [&bytes](int64_t offset, std::span<std::byte> scratch) -> std::span<const std::byte> {
    std::copy_n(bytes.begin() + offset, scratch.size(), scratch.begin());
    return scratch;
  };
}

// Returns a source that lends `bytes` without a copy.
inline BlockSource lending(std::span<const std::byte> bytes) {
  return [bytes](int64_t offset, std::span<std::byte> scratch) {
    return bytes.subspan(static_cast<size_t>(offset), scratch.size());
  };
}

inline Bytes read_whole(FileSystem& files, const std::string& path) {
  return read_small(files, path, int64_t{1} << 30);
}

// Returns the content of each range. To let a comparison fail, the entry of a range that was not passed to the sink exactly once
// has a wrong length.
inline std::vector<Bytes> read_all(FileSystem& files, const std::string& path, const std::vector<FileRange>& ranges) {
  std::vector<Bytes> result(ranges.size());
  std::vector<int> times(ranges.size(), 0);
  read_ranges(files, path, ranges, [&](size_t i, std::span<const std::byte> data) {
    result[i].assign(data.begin(), data.end());
    if (++times[i] != 1) result[i].push_back({});
  });
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (times[i] == 0) result[i].assign(static_cast<size_t>(ranges[i].bytes) + 1, {});
  }
  return result;
}

inline std::vector<Bytes> parts(const Bytes& bytes, const std::vector<FileRange>& ranges) {
  std::vector<Bytes> result;
  for (const FileRange& range : ranges) {
    result.emplace_back(bytes.begin() + range.offset, bytes.begin() + range.offset + range.bytes);
  }
  return result;
}

}  // namespace zt::io
