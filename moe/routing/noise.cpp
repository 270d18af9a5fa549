#include "routing/noise.h"

#include <ATen/ATen.h>

#include <span>

namespace zt::moe {

namespace {

// Calls fill(stream, row, numbers) for the numbers of each sample, which are of type T.
template <class T, class Fill>
at::Tensor by_samples(const TokenShape& shape, const Context& context, at::ScalarType dtype, const Fill& fill) {
  const Philox stream = context.rng(Purpose::routing);
  at::Tensor numbers = at::empty({shape.samples * shape.tokens, shape.width}, dtype);
  const int64_t per_sample = shape.tokens * shape.width;
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    T* first = numbers.mutable_data_ptr<T>() + sample * per_sample;
    fill(stream, static_cast<uint64_t>(context.first_sample() + sample), std::span(first, static_cast<size_t>(per_sample)));
  }
  return numbers.to(at::kDouble);
}

}  // namespace

at::Tensor uniform_noise(const TokenShape& shape, const Context& context) {
  const auto fill = [](const Philox& stream, uint64_t row, std::span<float> numbers) { stream.uniform(row, 0, numbers); };
  return by_samples<float>(shape, context, at::kFloat, fill);
}

at::Tensor normal_noise(const TokenShape& shape, const Context& context) {
  const auto fill = [](const Philox& stream, uint64_t row, std::span<double> numbers) { stream.normal(row, 0, numbers); };
  return by_samples<double>(shape, context, at::kDouble, fill);
}

at::Tensor gumbel_noise(const TokenShape& shape, const Context& context) {
  constexpr double kHalfStep = 1.0 / (1 << 25);  // uniform numbers are multiples of 2^-24; this keeps them off 0 and 1
  return uniform_noise(shape, context).add(kHalfStep).log().neg().log().neg();
}

at::Tensor jitter_factors(const TokenShape& shape, double width, const Context& context) {
  return uniform_noise(shape, context).mul(2 * width).add(1 - width);
}

}  // namespace zt::moe
