// The file of one rank's shard, laid out in memory: it has HDF5's own bytes, and the caller adds the tensors' bytes.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hdf5/sparse_memory.h"
#include "zt/io/block_io.h"

namespace zt::ckpt {

constexpr int64_t kDataAlignment = 4096;

struct ShardDataset {
  std::string path;  // as piece_path gives it
  at::ScalarType dtype;
  int64_t count;  // elements
};

// The bytes of an HDF5 file with one contiguous 1-D dataset per piece. Until the caller writes data, only HDF5's own bytes take
// memory: a few hundred bytes per dataset, at the file's start. Equal datasets give equal images.
// Threads: several may write the data of distinct datasets; everything else requires one thread at a time. Throws Misuse for a
// dtype that a checkpoint cannot hold, for a negative count and for two datasets with one path.
class ShardImage {
 public:
  explicit ShardImage(const std::vector<ShardDataset>& datasets);

  int64_t bytes() const { return memory_.bytes(); }
  // Returns the byte where a dataset's data begin, a multiple of kDataAlignment; 0 for a dataset without elements.
  int64_t offset(size_t dataset) const { return data_.at(dataset).offset; }
  // Returns the whole file. The address stays the same.
  std::byte* data() { return memory_.data(); }
  // Returns the parts of the file outside the datasets' data, ascending: HDF5's own bytes, and gaps of zeros.
  const std::vector<io::FileRange>& rest_ranges() const { return rest_; }

  // Sets the attribute xxh3 of each dataset to its piece_checksum. May be called again, with other checksums.
  void set_checksums(std::span<const uint64_t> checksums);
  // Returns xxh3 of all bytes outside the datasets' data.
  uint64_t rest() const;

 private:
  std::vector<std::string> paths_;
  std::vector<io::FileRange> data_, rest_;
  SparseMemory memory_;
};

// Returns xxh3 of the checksums of a piece's blocks, each as a little-endian u64: the dataset's attribute xxh3.
uint64_t piece_checksum(std::span<const uint64_t> blocks);

}  // namespace zt::ckpt
