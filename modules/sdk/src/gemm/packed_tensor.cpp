// Tensors that stand for packed matrices.
#include <ATen/OpaqueTensorImpl.h>

#include <optional>

#include "zt/gemm/packed_stack.h"

namespace zt {

namespace {

struct PackedHandle {
  PackedStack stack;
  std::optional<PackedMatrix> matrix;  // if the stack is one matrix
};
using PackedImpl = at::OpaqueTensorImpl<std::shared_ptr<const PackedHandle>>;

at::Tensor tensor_of(PackedHandle handle, at::ScalarType dtype) {
  const at::Device device = handle.stack.bytes.device();
  const std::vector<int64_t> sizes = handle.stack.shape;
  const auto keys = c10::DispatchKeySet(device.is_meta() ? c10::DispatchKey::Meta : c10::DispatchKey::CPU);
  return at::detail::make_tensor<PackedImpl>(keys, c10::scalarTypeToTypeMeta(dtype), device,
                                             std::make_shared<const PackedHandle>(std::move(handle)), sizes);
}

// Returns what the tensor stands for; null for any other tensor.
const PackedHandle* handle_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  auto* const impl = dynamic_cast<PackedImpl*>(tensor.unsafeGetTensorImpl());
  return impl ? impl->opaque_handle().get() : nullptr;
}

}  // namespace

at::Tensor packed_tensor(PackedMatrix matrix, at::ScalarType dtype) {
  PackedStack stack{matrix.spec, {matrix.rows, matrix.columns}, matrix.bytes};
  return tensor_of({std::move(stack), std::move(matrix)}, dtype);
}

at::Tensor packed_tensor(PackedStack stack, at::ScalarType dtype) {
  if (stack.shape.size() == 2) return packed_tensor(stack.matrix(0), dtype);
  return tensor_of({std::move(stack), {}}, dtype);
}

const PackedMatrix* packed_matrix(const at::Tensor& tensor) {
  const PackedHandle* const handle = handle_of(tensor);
  return handle && handle->matrix ? &*handle->matrix : nullptr;
}

at::Tensor packed_slice(const at::Tensor& tensor, int64_t index) {
  const PackedHandle* const handle = handle_of(tensor);
  return handle && !handle->matrix ? packed_tensor(handle->stack.matrix(index), tensor.scalar_type()) : at::Tensor();
}

}  // namespace zt
