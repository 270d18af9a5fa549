// Numbers for the tests of the CUDA code, and how far off a result may be.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "nn/cpu/narrow.h"

namespace zt::test {

// Numbers in (-3, 3) times `factor` that `dtype` holds, alike in each run.
inline at::Tensor some(at::IntArrayRef shape, at::ScalarType dtype, double factor = 1) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return ((at::arange(numel, at::kDouble) * 0.7 + 0.3).sin() * (3 * factor)).view(shape).to(dtype);
}

// The same numbers in float64, to differentiate by.
inline at::Tensor wide_leaf(const at::Tensor& x) {
  return x.to(at::kDouble).set_requires_grad(true);
}

// How many times further than allowed the worst element of `got` lies from `exact` (float64): one rounding to the dtype of `got`,
// and `steps` roundings of the arithmetic (float32, for float64 float64) of numbers up to `scale` (0: the largest exact one).
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
