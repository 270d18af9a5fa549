#include "shm/windows.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <numeric>

#include "shm/share.h"

namespace zt::comm {

at::Tensor Windows::allocate(at::IntArrayRef shape, at::ScalarType dtype) {
  const int64_t numel = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  const size_t bytes = static_cast<size_t>(numel) * c10::elementSize(dtype);
  const auto mapped = std::make_shared<std::vector<SharedMemory>>(share(team_, std::max<size_t>(bytes, 1), Pages::now));
  const SharedMemory& own = (*mapped)[static_cast<size_t>(team_.rank())];
  const auto window = static_cast<int32_t>(windows_.size());
  auto& places = windows_.emplace_back();
  for (const SharedMemory& memory : *mapped) places.push_back(memory.data());
  mapped_.push_back(mapped);
  own_[own.data()] = {window, own.bytes()};
  // When the tensor is destroyed, its pages are freed. The mappings stay, because other ranks' tensors may live longer.
  return at::from_blob(
      own.data(), shape, [mapped, rank = static_cast<size_t>(team_.rank())](void*) { (*mapped)[rank].discard(); },
      at::TensorOptions().dtype(dtype));
}

SharedPlace Windows::place_of(const void* data) const {
  const auto* byte = static_cast<const char*>(data);
  auto next = own_.upper_bound(byte);
  if (next == own_.begin()) return {};
  const auto& [begin, window] = *--next;
  const int64_t offset = byte - begin;
  if (offset >= static_cast<int64_t>(window.second)) return {};
  return {window.first, offset};
}

}  // namespace zt::comm
