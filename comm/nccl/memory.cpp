#include "nccl/memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::comm {

at::Tensor allocate_nccl(const NcclApi& api, const StreamApi& streams, const std::string& axis, at::IntArrayRef shape,
                         at::ScalarType dtype) {
  const at::Device device = streams.device();
  const auto options = at::TensorOptions().dtype(dtype).device(device);
  const int64_t bytes = c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(dtype));
  if (bytes == 0) return at::empty(shape, options);
  free_retired(api, streams);
  void* memory = nullptr;
  if (const ncclResult_t result = api.mem_alloc(&memory, static_cast<size_t>(bytes)); result != ncclSuccess) {
    fault("NCCL has no {} of memory on {} for axis '{}': {}: free unused tensors, or take smaller buffers", human_bytes(bytes),
          device.str(), axis, api.get_error_string(result));
  }
  const auto give_back = [retired = api.retired, device](void* data) { retired->add_memory(data, device); };
  return at::from_blob(memory, shape, give_back, options, device).zero_();
}

}  // namespace zt::comm
