#include <cuda_runtime_api.h>

#include "device_info.h"

namespace zt::nn::device {

int compute_capability(int device) {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess ? major : 0;
}

}  // namespace zt::nn::device
