#include "kept_elements.h"

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

// Calls visit(part, begin, count) for the parts of [first, first + wanted), with elements counted in the part.
template <class Visit>
void KeptElements::for_each(int64_t first, int64_t wanted, const Visit& visit) const {
  for (const Part& part : parts_) {
    const int64_t begin = std::max(first - part.at, int64_t{0}), end = std::min(first + wanted - part.at, part.count);
    if (begin < end) visit(part, begin, end - begin);
  }
}

KeptElements::Window KeptElements::start(const Part& part, int64_t first, int64_t count) const {
  const int64_t begin = part.place + first * size_of(dtype_), end = begin + count * size_of(dtype_);
  const int64_t aligned = begin / kHomeAlign * kHomeAlign;
  const at::Tensor bytes = aligned_bytes(in_whole_pages(end - aligned), at::kCPU, /*is_zeroed=*/false);
  Work work = part.bytes->read(aligned, bytes);
  return {&part, first, count, bytes.narrow(0, begin - aligned, end - begin).view(dtype_), std::move(work)};
}

void KeptElements::read(int64_t first, at::Tensor to) const {
  for_each(first, to.numel(), [&](const Part& part, int64_t begin, int64_t count) {
    const at::Tensor target = to.narrow(0, part.at + begin - first, count);
    if (part.copy.defined()) {
      target.copy_(part.copy.narrow(0, begin, count));
      return;
    }
    const auto has_all = [&](const Window& window) {
      return window.part == &part && window.first <= begin && begin + count <= window.first + window.count;
    };
    const auto known = std::ranges::find_if(windows_, has_all);
    const Window window = known != windows_.end() ? *known : start(part, begin, count);
    window.work.synchronize();
    target.copy_(window.elements.narrow(0, begin - window.first, count));
  });
}

void KeptElements::prefetch(int64_t first, int64_t count) {
  for_each(first, count, [&](const Part& part, int64_t begin, int64_t elements) {
    if (!part.copy.defined()) windows_.push_back(start(part, begin, elements));
  });
}

void KeptElements::release(int64_t first, int64_t count) {
  for_each(first, count, [&](const Part& part, int64_t begin, int64_t elements) {
    std::erase_if(windows_, [&](const Window& window) {
      const bool is_over = window.part == &part && window.first + window.count <= begin + elements;
      if (is_over) window.work.synchronize();
      return is_over;
    });
    if (part.bytes) part.bytes->release(part.place + begin * size_of(dtype_), elements * size_of(dtype_));
  });
}

void KeptElements::write(int64_t, const at::Tensor&) {
  fault("elements that are kept cannot be changed");
}

std::shared_ptr<PieceSource> KeptElements::keep(int64_t, int64_t) const {
  fault("elements that are kept are kept once");
}

}  // namespace zt
