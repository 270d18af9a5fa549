#include "zt/base/zeros.h"

#include <ATen/ops/empty.h>
#include <sys/mman.h>

#include <cstdint>

namespace zt {

namespace {

constexpr uintptr_t kHugePage = uintptr_t{2} << 20;

}  // namespace

at::Tensor large_zeros(at::IntArrayRef shape, const at::TensorOptions& options) {
  at::Tensor x = at::empty(shape, options);
  if (x.is_cpu()) {
    const auto begin = reinterpret_cast<uintptr_t>(x.data_ptr());
    const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage, last = (begin + x.nbytes()) / kHugePage * kHugePage;
    // The result is ignored: without huge pages the kernel uses small ones.
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  }
  return x.zero_();
}

}  // namespace zt
