#include "optimizer/block_loops.h"

#include <cmath>
#include <cstring>

#include "zt/base/isa.h"

namespace zt::lua {

namespace {

constexpr int64_t kAhead = 512;  // distance of the prefetch, in elements

// kWidth numbers fill one register. Steps of a line of the caches, so that each is prefetched once.
template <int kWidth, class Float>
[[gnu::always_inline]] inline void scale_floats(Float* out, const Float* in, int64_t count, Float factor) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    __builtin_prefetch(in + i + kAhead);
    Vector<Float, kWidth> x;
    std::memcpy(&x, in + i, sizeof(x));
    x *= factor;
    std::memcpy(out + i, &x, sizeof(x));
  }
  for (; i < count; ++i) out[i] = in[i] * factor;
}

// An infinity or a NaN times 0 is a NaN, which a sum keeps.
template <int kWidth>
[[gnu::always_inline]] inline bool are_finite(const float* values, int64_t count) {
  constexpr int kSums = 4;
  Vector<float, kWidth> sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums * kWidth <= count; i += kSums * kWidth) {
    __builtin_prefetch(values + i + kAhead);
#pragma GCC unroll 4
    for (int k = 0; k < kSums; ++k) {
      Vector<float, kWidth> x;
      std::memcpy(&x, values + i + k * kWidth, sizeof(x));
      sums[k] += x * 0.0f;
    }
  }
  float sum = 0;
  for (const auto& lanes : sums) {
    for (int lane = 0; lane < kWidth; ++lane) sum += lanes[lane];
  }
  for (; i < count; ++i) sum += values[i] * 0.0f;
  return sum == 0;
}

template <int kCount>
using FloatLanes = std::integral_constant<int, kCount>;

template <class Float>
void scale_as(const at::Tensor& to, const at::Tensor& from, double scale) {
  Float* const out = to.mutable_data_ptr<Float>();
  const Float* const in = from.const_data_ptr<Float>();
  run_as<FloatLanes<4>, FloatLanes<8>, FloatLanes<16>>(
      best_isa(), [&](auto width)
                      __attribute__((always_inline)) { scale_floats<width()>(out, in, to.numel(), static_cast<Float>(scale)); });
}

}  // namespace

void scale_into(const at::Tensor& to, const at::Tensor& from, double scale) {
  const bool is_plain = to.is_cpu() && from.is_cpu() && to.dtype() == from.dtype();
  if (is_plain && to.scalar_type() == at::kFloat) scale_as<float>(to, from, scale);
  else if (is_plain && to.scalar_type() == at::kDouble) scale_as<double>(to, from, scale);
  else to.copy_(from).mul_(scale);
}

bool seems_finite(const at::Tensor& values) {
  if (!values.is_cpu() || values.scalar_type() != at::kFloat || !values.is_contiguous())
    return std::isfinite(values.sum().item<double>());
  bool is_finite = true;
  const float* const data = values.const_data_ptr<float>();
  run_as<FloatLanes<4>, FloatLanes<8>, FloatLanes<16>>(
      best_isa(), [&](auto width) __attribute__((always_inline)) { is_finite = are_finite<width()>(data, values.numel()); });
  return is_finite;
}

}  // namespace zt::lua
