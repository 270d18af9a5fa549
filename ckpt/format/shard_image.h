// The file of one rank's shard, planned in memory: HDF5's own bytes stand in it, tensors' bytes are put in from outside.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hdf5/sparse_memory.h"
#include "zt/io/range.h"

namespace zt::ckpt {

constexpr int64_t kDataAlignment = 4096;

struct ShardDataset {
  std::string path;  // of piece_path
  at::ScalarType dtype;
  int64_t count;  // elements
};

// The bytes of an HDF5 file with one contiguous 1-D dataset for each piece. Only what HDF5 writes costs memory - a few hundred
// bytes a dataset, at the file's start -, until the caller writes data. Equal datasets make equal images.
// Threads: any may write the data of distinct datasets; all else one thread at a time. Errors: Misuse for a dtype that a
// checkpoint cannot hold, a negative count or two datasets of one path.
class ShardImage {
 public:
  explicit ShardImage(const std::vector<ShardDataset>& datasets);

  int64_t bytes() const { return memory_.bytes(); }
  // Where the data of a dataset begin, a multiple of kDataAlignment; 0 for a dataset without elements.
  int64_t offset(size_t dataset) const { return data_.at(dataset).offset; }
  // The whole file; the address stays the same.
  std::byte* data() { return memory_.data(); }
  // The parts of the file that are not datasets' data, ascending. HDF5's bytes and gaps of zeros.
  const std::vector<io::Range>& rest_ranges() const { return rest_; }

  // Sets the attribute xxh3 of each dataset: piece_checksum of its blocks. The image can be used again with others.
  void set_checksums(std::span<const uint64_t> checksums);
  // xxh3 of all bytes outside datasets' data.
  uint64_t rest() const;

 private:
  std::vector<std::string> paths_;
  std::vector<io::Range> data_, rest_;
  SparseMemory memory_;
};

// xxh3 of the checksums of a piece's blocks, each as a little-endian u64: what its dataset's attribute xxh3 says.
uint64_t piece_checksum(std::span<const uint64_t> blocks);

}  // namespace zt::ckpt
