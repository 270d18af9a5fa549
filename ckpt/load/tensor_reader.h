// Reads parts of saved tensors from shards: in large reads, verified, converted to the wanted dtype, and put in place.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "format/index.h"
#include "zt/io/file_system.h"

namespace zt::ckpt {

// A request to read `region` of a saved tensor into `to`, which is flat and contiguous, of any dtype and device.
struct ReadRequest {
  const SavedTensor* tensor;
  Region region;
  at::Tensor to;
};

// Reads all requests. Tensors of other devices are read into host memory first, all at the same time, and then copied. Begins
// with shard `first_shard`, so that not all ranks begin with the same file. Each block that is read is compared with its
// checksum. Throws a Fault that names file and tensor: a shard is missing or too short, a block is damaged, or no shard holds an
// element.
void read_tensors(io::FileSystem& files, const std::string& folder, const MasterIndex& index,
                  const std::vector<ReadRequest>& requests, int64_t first_shard = 0);

}  // namespace zt::ckpt
