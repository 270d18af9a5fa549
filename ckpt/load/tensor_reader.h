// Reads parts of saved tensors from shards: large reads of several tensors at once, verified, converted, put in place.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "format/index.h"
#include "zt/io/file_system.h"

namespace zt::ckpt {

// What is wanted: `region` of a saved tensor, as `to`, flat and contiguous, of any dtype and device.
struct ReadRequest {
  const SavedTensor* tensor;
  Region region;
  at::Tensor to;
};

// Reads all requests, those of another device by way of host memory, which they take at the same time; shards from `first_shard`
// on, so that ranks do not all begin with the same file. Each block that is read is compared with its checksum. Fault that names
// file and tensor: a shard is missing or shorter than it was, a block is damaged, no shard holds what is wanted.
void read_tensors(io::FileSystem& files, const std::string& folder, const Index& index, const std::vector<ReadRequest>& requests,
                  int64_t first_shard = 0);

}  // namespace zt::ckpt
