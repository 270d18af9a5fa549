#include "routing/noise.h"

#include <ATen/ATen.h>

#include <span>

namespace zt::moe {

at::Tensor uniform_noise(const NoiseShape& shape, const Context& context) {
  const Philox stream = context.rng(Purpose::routing);
  at::Tensor numbers = at::empty({shape.samples * shape.tokens, shape.width}, at::kFloat);
  const int64_t per_sample = shape.tokens * shape.width;
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    float* first = numbers.mutable_data_ptr<float>() + sample * per_sample;
    stream.uniform(static_cast<uint64_t>(context.first_sample() + sample), 0, {first, static_cast<size_t>(per_sample)});
  }
  return numbers.to(at::kDouble);
}

at::Tensor normal_noise(const NoiseShape& shape, const Context& context) {
  const Philox stream = context.rng(Purpose::routing);
  at::Tensor numbers = at::empty({shape.samples * shape.tokens, shape.width}, at::kDouble);
  const int64_t per_sample = shape.tokens * shape.width;
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    double* first = numbers.mutable_data_ptr<double>() + sample * per_sample;
    stream.normal(static_cast<uint64_t>(context.first_sample() + sample), 0, {first, static_cast<size_t>(per_sample)});
  }
  return numbers;
}

at::Tensor gumbel_noise(const NoiseShape& shape, const Context& context) {
  constexpr double kHalfStep = 1.0 / (1 << 25);  // uniform numbers are multiples of 2^-24; this keeps them off 0 and 1
  return uniform_noise(shape, context).add(kHalfStep).log().neg().log().neg();
}

at::Tensor jitter_factors(const NoiseShape& shape, double width, const Context& context) {
  return uniform_noise(shape, context).mul(2 * width).add(1 - width);
}

}  // namespace zt::moe
