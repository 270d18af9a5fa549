#include "dropout.h"

#include "cpu/kernels.h"
#include "cuda/device_call.h"
#include "cuda/device_rows.h"
#include "function.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

// Number of random numbers per sample and dropout index. A sample must not have more elements than this.
constexpr int64_t kElementsPerIndex = int64_t{1} << 40;

at::Tensor scale_kept(const at::Tensor& x, const at::Tensor& keep, const at::Tensor& residual, double scale) {
  const at::Tensor out = at::empty_like(x);
  for_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    T* to = out.data_ptr<T>();
    const T *from = x.const_data_ptr<T>(), *more = data_or_null<T>(residual);
    const auto* kept = keep.const_data_ptr<uint8_t>();
    if (on_gpu(x, device::ScaleKept<T>{to, from, kept, more, scale, x.numel()})) return;
    for_elements(x.numel(), [&](int64_t begin, int64_t end) {
      kernels::scale_kept(to + begin, from + begin, kept + begin, more ? more + begin : nullptr, scale, end - begin);
    });
  });
  return out;
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* node, const at::Tensor& x, const std::optional<at::Tensor>& residual,
                            const at::Tensor& keep, double scale) {
    node->save_for_backward({keep});
    node->saved_data["scale"] = scale;
    node->saved_data["has_residual"] = residual.has_value();
    return scale_kept(x.contiguous(), keep, residual ? residual->contiguous() : at::Tensor(), scale);
  }
  static variable_list backward(AutogradContext* node, variable_list grads) {
    const auto keep = node->get_saved_variables()[0];
    const at::Tensor dx = scale_kept(grads[0].contiguous(), keep, {}, node->saved_data.at("scale").toDouble());
    return {dx, node->saved_data.at("has_residual").toBool() ? grads[0] : at::Tensor(), {}, {}};
  }
};

}  // namespace

DropoutMask::DropoutMask(double probability, const Context& context, int index)
    : probability_(probability),
      stream_(context.rng(Purpose::dropout)),
      first_sample_(context.first_sample()),
      first_element_(index * kElementsPerIndex) {}

void DropoutMask::fill(uint8_t* kept, int64_t sample, int64_t first, int64_t count) const {
  constexpr int64_t kAtOnce = 1024;
  float numbers[kAtOnce];
  for (int64_t i = 0; i < count; i += kAtOnce) {
    const int64_t n = std::min(kAtOnce, count - i);
    stream_.uniform(first_sample_ + sample, first_element_ + first + i, {numbers, static_cast<size_t>(n)});
    kernels::not_below(kept + i, numbers, static_cast<float>(probability_), n);
  }
}

at::Tensor DropoutMask::mask(at::IntArrayRef shape, at::Device device, int64_t first) const {
  at::Tensor mask = at::empty(shape, at::TensorOptions(at::kByte).device(device));
  if (mask.is_meta() || mask.numel() == 0) return mask;
  const int64_t width = shape.empty() ? 1 : mask.numel() / shape[0];
  auto* kept = mask.data_ptr<uint8_t>();
  const auto key = stream_.key();
  const auto sample = static_cast<uint64_t>(first_sample_), element = static_cast<uint64_t>(first_element_ + first);
  const auto limit = static_cast<float>(probability_);
  if (on_gpu(mask, device::KeepMask{kept, key, sample, element, limit, mask.numel() / width, width})) return mask;
  for_elements(mask.numel(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t count = std::min(end - i, width - i % width);
      fill(kept + i, i / width, first + i % width, count);
      i += count;
    }
  });
  return mask;
}

at::Tensor Dropout::run(const at::Tensor& x, Context& context, const at::Tensor& residual) const {
  if (!is_active(context)) return residual.defined() ? residual + x : x;
  const DropoutMask keep(probability_, context, index_);
  return DropoutFunction::apply(x, maybe(residual), keep.mask(x.sizes(), x.device()), keep.scale());
}

}  // namespace zt::nn
