// The operators of the test device: the CPU's, on the same memory.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <cstring>
#include <thread>

#include "memory.h"
#include "test_device.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::test {

namespace {

std::atomic<int64_t> delay_us = 0;
std::atomic<int64_t> to_device = 0, to_host = 0, within = 0, without_wait = 0;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device>,
                 std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &device_allocator(), kKeys, at::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &device_allocator(), kKeys, at::dtype_or_default(dtype));
}

// Returns the tensor as one of the CPU, without a part in its memory's life.
at::Tensor as_host(const at::Tensor& x) {
  if (x.numel() > 0 && !x.data_ptr()) misuse("{} has no memory now", describe(x));
  return at::from_blob(x.data_ptr(), x.sizes(), x.strides(), at::TensorOptions(x.scalar_type()));
}

bool is_on_device(const at::Tensor& x) {
  return x.device().type() == kTestDevice;
}

void count(const at::Tensor& from, const at::Tensor& to) {
  const auto bytes = static_cast<int64_t>(to.nbytes());
  (!is_on_device(from) ? to_device : is_on_device(to) ? within : to_host) += bytes;
}

// As with CUDA, a copy that reads or writes memory of the host which is not pinned has ended when this returns.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  count(from, to);
  const auto copy = [source = as_host(from), target = as_host(to)] {
    const at::NoGradGuard no_grad;
    at::Tensor(target).copy_(source);
  };
  Worker* worker = worker_of(current_stream());
  if (!worker) {
    copy();
    return to;
  }
  worker->post([copy] {
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us.load()));
    copy();
  });
  const auto is_reached = [](const at::Tensor& x) { return is_on_device(x) || is_pinned(x.data_ptr()); };
  if (non_blocking && is_reached(from) && is_reached(to)) without_wait += static_cast<int64_t>(to.nbytes());
  else worker->drain();
  return to;
}

const at::Tensor& resize(const at::Tensor& x, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* impl = x.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  const auto bytes = static_cast<size_t>(impl->numel() + impl->storage_offset()) * impl->itemsize();
  c10::StorageImpl* storage = x.storage().unsafeGetStorageImpl();
  if (bytes > storage->nbytes()) {
    c10::DataPtr larger = device_allocator().allocate(bytes);
    std::memcpy(larger.get(), storage->data(), storage->nbytes());
    storage->set_data_ptr_noswap(std::move(larger));
    storage->set_nbytes(bytes);
  }
  return x;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar scalar_of(const at::Tensor& x) {
  return as_host(x).item();
}

// The CPU's operators take tensors of any device and move them. On a GPU that is an error, so it is one here, too: but for
// tensors with one number, and for indices.
void check_devices(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const std::string& name = op.schema().name();
  if (name.find("index") != std::string::npos) return;
  const at::Tensor *here = nullptr, *elsewhere = nullptr;
  const auto note = [&](const at::Tensor& x) {
    if (x.defined() && x.dim() > 0) (is_on_device(x) ? here : elsewhere) = &x;
  };
  for (const c10::IValue& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (value.isTensor()) note(value.toTensor());
    if (!value.isTensorList()) continue;
    const at::ArrayRef<c10::IValue> all = value.toListRef();
    for (const c10::IValue& each : all) note(each.toTensor());
  }
  if (here && elsewhere) misuse("{} got tensors on two devices, {} and {}", name, describe(*here), describe(*elsewhere));
}

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (Worker* worker = worker_of(current_stream())) worker->drain();
  check_devices(op, *stack);
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", scalar_of);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  library.impl("resize_", resize);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

}  // namespace

void set_copy_delay(std::chrono::microseconds delay) {
  delay_us = delay.count();
}

CopiedBytes copied_bytes() {
  return {to_device, to_host, within, without_wait};
}

}  // namespace zt::test
