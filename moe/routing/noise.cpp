#include "routing/noise.h"

#include <ATen/ATen.h>

#include <span>

namespace zt::moe {

namespace {

// Returns the numbers that `draw` fills in for each sample.
template <class T>
at::Tensor by_samples(const TokenShape& shape, const Context& context,
                      void (Philox::*draw)(uint64_t row, int64_t first, std::span<T> out, Isa isa) const) {
  const Philox stream = context.rng(Purpose::routing);
  at::Tensor numbers = at::empty({shape.samples * shape.tokens, shape.width}, c10::CppTypeToScalarType<T>::value);
  const int64_t per_sample = shape.tokens * shape.width;
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    T* first = numbers.mutable_data_ptr<T>() + sample * per_sample;
    (stream.*draw)(context.first_sample() + sample, 0, {first, static_cast<size_t>(per_sample)}, best_isa());
  }
  return numbers.to(at::kDouble);
}

}  // namespace

at::Tensor uniform_noise(const TokenShape& shape, const Context& context) {
  return by_samples(shape, context, &Philox::uniform);
}

at::Tensor normal_noise(const TokenShape& shape, const Context& context) {
  return by_samples(shape, context, &Philox::normal);
}

at::Tensor gumbel_noise(const TokenShape& shape, const Context& context) {
  constexpr double kHalfStep = 1.0 / (1 << 25);  // uniform numbers are multiples of 2^-24; this keeps them off 0 and 1
  return uniform_noise(shape, context).add(kHalfStep).log().neg().log().neg();
}

at::Tensor jitter_factors(const TokenShape& shape, double width, const Context& context) {
  return uniform_noise(shape, context).mul(2 * width).add(1 - width);
}

}  // namespace zt::moe
