// Judging what was computed in 16 bits: how far off one rounding is, and sinks of another dtype than the parameters'.
#pragma once

#include <ATen/ATen.h>

#include <limits>

#include "nn/support/run.h"

namespace zt::test {

// Half the last place of numbers in [1, 2): a rounding to nearest is off by this share at most.
inline double unit_of(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return 0x1p-8;
  if (dtype == at::kHalf) return 0x1p-11;
  return dtype == at::kDouble ? 0x1p-53 : 0x1p-24;
}

// How many times further than allowed the worst element of `got` lies from `exact` (float64). Allowed: `roundings` to the dtype
// of `got`, arithmetic in float32 (float64 for that) whose terms are at most `scale` (0: the largest exact element), where a sum
// of some dozens of terms and a function are off by 64 units of it, and, of 16 bits, half the smallest number of float16.
inline double excess(const at::Tensor& got, const at::Tensor& exact, double roundings = 1, double scale = 0) {
  if (!scale) scale = exact.abs().max().item<double>();
  const at::ScalarType dtype = got.scalar_type();
  const double least = dtype == at::kDouble ? 64 * 0x1p-53 * scale : 64 * 0x1p-24 * scale + 0x1p-25;
  const at::Tensor allowed = exact.abs() * (roundings * unit_of(dtype)) + least;
  return ((got.to(at::kDouble) - exact).abs() / allowed).max().item<double>();
}

// Sinks of a dtype of their own.
struct SinkContext : FakeContext {
  explicit SinkContext(at::ScalarType sinks) : dtype(sinks) {}

  std::function<Sink()> grad_sink(const Param& param) override {
    return [this, &param]() -> Sink {
      const bool first = !sunk.contains(&param);
      const auto options = param.get().options().dtype(dtype).requires_grad(false);
      if (first) sunk[&param] = at::full(param.shape, std::numeric_limits<double>::quiet_NaN(), options);
      return {sunk.at(&param), first};
    };
  }

  at::ScalarType dtype;
};

}  // namespace zt::test
