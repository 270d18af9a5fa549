#include "routing/noise.h"

#include <ATen/ATen.h>

#include <span>

#include "routing/token_axis.h"

namespace zt::moe {

namespace {

// Returns the numbers that `draw` fills in for each sample.
template <class T>
at::Tensor by_samples(const TokenShape& shape, Context& context,
                      void (Philox::*draw)(uint64_t row, int64_t first, std::span<T> out, Isa isa) const) {
  const Philox stream = context.rng(Purpose::routing);
  at::Tensor numbers = at::empty({shape.samples * shape.tokens, shape.width}, c10::CppTypeToScalarType<T>::value);
  const std::vector<Share> places = token_places(shape.tokens, context);
  T* to = numbers.mutable_data_ptr<T>();
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    for (const Share& range : places) {
      const auto count = static_cast<size_t>(range.count * shape.width);
      (stream.*draw)(context.first_sample() + sample, range.begin * shape.width, {to, count}, best_isa());
      to += count;
    }
  }
  return numbers.to(at::kDouble);
}

}  // namespace

at::Tensor uniform_noise(const TokenShape& shape, Context& context) {
  return by_samples(shape, context, &Philox::uniform);
}

at::Tensor normal_noise(const TokenShape& shape, Context& context) {
  return by_samples(shape, context, &Philox::normal);
}

at::Tensor gumbel_noise(const TokenShape& shape, Context& context) {
  constexpr double kHalfStep = 1.0 / (1 << 25);  // uniform numbers are multiples of 2^-24; this keeps them off 0 and 1
  return uniform_noise(shape, context).add(kHalfStep).log().neg().log().neg();
}

at::Tensor jitter_factors(const TokenShape& shape, double width, Context& context) {
  return uniform_noise(shape, context).mul(2 * width).add(1 - width);
}

}  // namespace zt::moe
