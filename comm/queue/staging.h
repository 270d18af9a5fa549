// Scratch memory of operations.
#pragma once

#include <ATen/ops/empty.h>

#include <utility>

#include "core/bytes.h"

namespace zt::comm {

// The scratch memory of one communicator, kept between operations. It grows to what the largest operation has asked for.
class Staging {
 public:
  // Returns at least `bytes`. Earlier contents are lost.
  char* get(size_t bytes) {
    if (!memory_.defined() || memory_.nbytes() < bytes) {
      memory_ = at::Tensor();
      memory_ = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
    }
    return bytes_of(memory_);
  }
  // Gives up the memory, which the caller may keep longer than this object.
  at::Tensor release() { return std::move(memory_); }

 private:
  at::Tensor memory_;
};

}  // namespace zt::comm
