// Writes one rank's shard to the disk.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "format/index.h"
#include "format/shard_image.h"
#include "write_layout.h"
#include "zt/base/stateful.h"
#include "zt/io/file_system.h"

namespace zt::ckpt {

// The facts about a shard that go into the master file.
struct ShardRecord {
  int64_t bytes = 0;                             // the file's size
  uint64_t rest = 0;                             // as in SavedShard
  std::vector<int64_t> offsets;                  // per dataset: byte in the file
  std::vector<std::vector<uint64_t>> checksums;  // per dataset: one per block

  std::string packed() const;
  static ShardRecord unpacked(const std::string& bytes);
};

// Adds a written shard to the index. writes: one per dataset.
void add_shard(MasterIndex& index, const std::string& file, ShardRecord record, const std::vector<Write>& writes);

// The elements of a dataset: a flat tensor, or elements [first, first + count) of a source, of which the tensor may have the
// first ones.
struct ShardData {
  at::Tensor tensor = {};
  std::shared_ptr<PieceSource> source = {};
  int64_t first = 0, count = 0;

  int64_t bytes() const;
  // Returns how many bytes of the dataset lie in `tensor`.
  int64_t bytes_in_memory() const { return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0; }
};

// Keeps sources as they are now (PieceSource::keep), and copies of them into the image what is written last. `write_shard`
// releases the rest as it is written.
void keep_sources(ShardImage& image, std::vector<ShardData>& data);

// Copies the tensors (one per dataset, on any device) into the image, and makes `data` refer to the image's memory. Leaves
// sources as they are.
void copy_into(ShardImage& image, std::vector<ShardData>& data);

// Writes the file, which must not exist, and computes the checksums meanwhile. data: in host memory, one per dataset. Tensors
// from copy_into are written without another copy. Of sources, about 20 MiB are in memory at the same time.
ShardRecord write_shard(io::FileSystem& files, const std::string& path, ShardImage& image, const std::vector<ShardData>& data);

}  // namespace zt::ckpt
