#include "zt/execute/pinning.h"

#include <map>
#include <mutex>

#ifdef ZT_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace zt {

namespace {

#ifdef ZT_HAS_CUDA
bool pin_for_cuda(void* memory, size_t bytes) {
  const bool is_pinned = cudaHostRegister(memory, bytes, cudaHostRegisterDefault) == cudaSuccess;
  if (!is_pinned) cudaGetLastError();  // it was reported, so that the next call does not return it
  return is_pinned;
}
void unpin_for_cuda(void* memory) {
  cudaHostUnregister(memory);
}
#endif

std::mutex mutex;
std::map<c10::DeviceType, Pinning>& by_type() {
  static std::map<c10::DeviceType, Pinning> known{
#ifdef ZT_HAS_CUDA
      {c10::DeviceType::CUDA, {pin_for_cuda, unpin_for_cuda}},
#endif
  };
  return known;
}

}  // namespace

Pinning pinning_for(c10::DeviceType type) {
  const std::lock_guard lock(mutex);
  const auto known = by_type().find(type);
  return known == by_type().end() ? Pinning{} : known->second;
}

void set_pinning(c10::DeviceType type, Pinning pinning) {
  const std::lock_guard lock(mutex);
  by_type()[type] = pinning;
}

}  // namespace zt
