// Scratch memory of operations.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace zt::comm {

// The scratch memory of one communicator, kept between operations. It grows to what the largest operation has asked for.
class Staging {
 public:
  // Returns at least `bytes`. Earlier contents are lost.
  char* get(size_t bytes);
  // Gives up the memory, which the caller may keep longer than this object.
  at::Tensor release() { return std::move(memory_); }

 private:
  at::Tensor memory_;
};

}  // namespace zt::comm
