// One rank's shard on its way to the disk.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "format/index.h"
#include "format/shard_image.h"
#include "zt/io/file_system.h"

namespace zt::ckpt {

// What the master file has to know of a shard.
struct ShardRecord {
  int64_t bytes = 0;
  uint64_t rest = 0;
  std::vector<int64_t> offsets;                  // a dataset
  std::vector<std::vector<uint64_t>> checksums;  // a dataset: of its blocks

  std::string packed() const;
  static ShardRecord unpacked(const std::string& bytes);
};

// A dataset of a shard: what it is a part of.
struct IndexedPiece {
  size_t tensor;  // of Index::tensors
  Region region;
};
// Adds a shard that was written, with one piece a dataset, to the index.
void add_shard(Index& index, const std::string& file, ShardRecord record, const std::vector<IndexedPiece>& pieces);

// Copies tensors (flat, one a dataset, on any device) to their datasets' places in the image and returns these places as tensors.
std::vector<at::Tensor> copy_into(ShardImage& image, const std::vector<at::Tensor>& data);

// Writes the file, which must not exist, and computes the checksums on the way. data: flat tensors on the CPU, one a dataset;
// those that copy_into returned are written as they lie.
ShardRecord write_shard(io::FileSystem& files, const std::string& path, ShardImage& image, const std::vector<at::Tensor>& data);

}  // namespace zt::ckpt
