// Helpers of tests with 16-bit dtypes: error bounds, and sinks of another dtype than the parameters.
#pragma once

#include <ATen/ATen.h>

#include <limits>

#include "nn/support/run.h"

namespace zt::test {

// Returns the unit roundoff of `dtype`: the largest relative error of a rounding to nearest.
inline double unit_of(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return 0x1p-8;
  if (dtype == at::kHalf) return 0x1p-11;
  return dtype == at::kDouble ? 0x1p-53 : 0x1p-24;
}

// Returns the largest ratio of error to bound over the elements of `got`. `exact` is float64. The bound is the sum of `roundings`
// roundings to the dtype of `got`; 64 roundings of arithmetic in float32 (float64 for float64) with terms up to `scale` (0 means
// the largest exact element), enough for sums of some dozens of terms and one function; and, except for float64, half the
// smallest number of float16.
inline double excess(const at::Tensor& got, const at::Tensor& exact, double roundings = 1, double scale = 0) {
  if (!scale) scale = exact.abs().max().item<double>();
  const at::ScalarType dtype = got.scalar_type();
  const double least = dtype == at::kDouble ? 64 * 0x1p-53 * scale : 64 * 0x1p-24 * scale + 0x1p-25;
  const at::Tensor allowed = exact.abs() * (roundings * unit_of(dtype)) + least;
  return ((got.to(at::kDouble) - exact).abs() / allowed).max().item<double>();
}

// A context whose gradient sinks have a given dtype.
struct SinkContext : FakeContext {
  explicit SinkContext(at::ScalarType sinks) : dtype(sinks) {}

  SinkFn grad_sink(const Param& param) override {
    return [this, &param]() -> Sink {
      const bool first = !sunk.contains(&param);
      const auto options = values_of(param).options().dtype(dtype).requires_grad(false);
      if (first) sunk[&param] = at::full(param.shape, std::numeric_limits<double>::quiet_NaN(), options);
      return {sunk.at(&param), first};
    };
  }

  at::ScalarType dtype;
};

}  // namespace zt::test
