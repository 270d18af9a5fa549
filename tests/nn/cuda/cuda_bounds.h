// Input numbers for the tests of the CUDA code, and error bounds.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "nn/cpu/narrow.h"

namespace zt::test {

// Returns numbers in (-3, 3) times `factor`, rounded to `dtype`, the same in each run.
inline at::Tensor some(at::IntArrayRef shape, at::ScalarType dtype, double factor = 1) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return ((at::arange(numel, at::kDouble) * 0.7 + 0.3).sin() * (3 * factor)).view(shape).to(dtype);
}

// Returns the same numbers in float64, as a leaf that requires a gradient.
inline at::Tensor wide_leaf(const at::Tensor& x) {
  return x.to(at::kDouble).set_requires_grad(true);
}

// Returns the largest ratio of error to bound over the elements of `got`. `exact` is float64. The bound is one rounding to the
// dtype of `got` plus `steps` roundings of the arithmetic (float32; float64 for float64) of numbers up to `scale` (0 means the
// largest exact element).
inline double times_allowed(const at::Tensor& got, const at::Tensor& exact, double steps = 64, double scale = 0) {
  if (!scale) scale = exact.abs().max().item<double>();
  const bool is_double = got.scalar_type() == at::kDouble;
  const double stored = is_double ? 0x1p-53 : unit_of(got.scalar_type()), arithmetic = is_double ? 0x1p-53 : 0x1p-24;
  const double least = got.scalar_type() == at::kHalf ? 0x1p-25 : 0;  // half the smallest number of float16
  const at::Tensor allowed = exact.abs() * stored + (steps * arithmetic * scale + least);
  return ((got.to(at::kDouble) - exact).abs() / allowed).max().item<double>();
}

inline std::string dtype_of(const testing::TestParamInfo<at::ScalarType>& info) {
  return c10::toString(info.param);
}

}  // namespace zt::test
