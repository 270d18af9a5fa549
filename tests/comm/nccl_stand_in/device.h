// The operations that the stand-in for NCCL needs of a device. Each stream does its work in order.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>

namespace zt::test::stand_in {

// The operands of a reduction on one rank: out[i] = in_0[i] op in_1[i] op ..., in the order of the ranks. `others` holds the
// inputs of the other ranks, each of `count` elements, in their order.
struct Sum {
  void* out;
  const void* own;
  const void* others;
  int rank, size;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual void* allocate(size_t bytes) = 0;
  virtual void free(void* memory) = 0;
  // Lets streams reach memory that processes share, until `unshare`.
  virtual void share(void* memory, size_t bytes) = 0;
  virtual void unshare(void* memory) = 0;
  virtual void copy(void* to, const void* from, size_t bytes, cudaStream_t stream) = 0;
  // Sets a flag after all earlier work of the stream.
  virtual void set(uint32_t* flag, uint32_t value, cudaStream_t stream) = 0;
  // Holds the stream until the flag is at least `value`.
  virtual void await(uint32_t* flag, uint32_t value, cudaStream_t stream) = 0;
  virtual void reduce(const Sum& sum, cudaStream_t stream) = 0;
};

// Returns the device of this process.
Device& device();

}  // namespace zt::test::stand_in
