// The check after the launch of a kernel. For .cu files only.
#pragma once

#include <stdexcept>
#include <string>

namespace zt {

// Throws std::runtime_error, with CUDA's message, if the kernel just launched could not be started. `kernel`: "the CUDA kernel of
// NORM".
inline void check_launch(const char* kernel) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) throw std::runtime_error(std::string("cannot start ") + kernel + ": " + cudaGetErrorString(status));
}

}  // namespace zt
