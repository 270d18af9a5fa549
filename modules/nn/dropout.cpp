#include "dropout.h"

#include "function.h"
#include "kernels.h"
#include "layers.h"
#include "part.h"
#include "rows.h"
#include "zt/options.h"

namespace zt::nn {

namespace {

// Element numbers of a sample below this are one slot's.
constexpr int64_t kSlot = int64_t{1} << 40;

at::Tensor scale_kept(const at::Tensor& x, const at::Tensor& keep, const at::Tensor& residual, double scale) {
  const at::Tensor out = at::empty_like(x);
  for_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    kernels::scale_kept(out.data_ptr<T>(), x.const_data_ptr<T>(), keep.const_data_ptr<uint8_t>(), data_or_null<T>(residual),
                        scale, x.numel());
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

at::Tensor keep_mask(at::IntArrayRef shape, double probability, const Context& context, int slot, at::Device device) {
  at::Tensor mask = at::empty(shape, at::TensorOptions(at::kByte).device(device));
  if (mask.is_meta()) return mask;
  const int64_t samples = shape.empty() ? 1 : shape[0];
  const int64_t width = samples == 0 ? 0 : mask.numel() / samples;
  const Philox stream = context.rng(Purpose::dropout);
  const auto limit = static_cast<float>(probability);
  auto* kept = mask.data_ptr<uint8_t>();
  for_rows(samples, width, [&](int64_t begin, int64_t end) {
    float numbers[1024];
    for (int64_t i = begin * width; i < end * width;) {
      const int64_t sample = i / width, element = i % width;
      const auto count = std::min<int64_t>(std::size(numbers), width - element);
      stream.uniform(static_cast<uint64_t>(context.first_sample() + sample), slot * kSlot + element,
                     {numbers, static_cast<size_t>(count)});
      for (int64_t j = 0; j < count; ++j) kept[i + j] = numbers[j] >= limit;
      i += count;
    }
  });
  return mask;
}

at::Tensor Dropout::run(const at::Tensor& x, Context& context, const at::Tensor& residual) const {
  if (!is_active(context)) return residual.defined() ? residual + x : x;
  const at::Tensor keep = keep_mask(x.sizes(), probability_, context, slot_, x.device());
  return DropoutFunction::apply(x, maybe(residual), keep, 1 / (1 - probability_));
}

std::shared_ptr<Layer> make_dropout(const Value& value) {
  struct Options {
    double p = 0;
  };
  static const auto kSchema =
      Schema<Options>("nn.dropout").required("p", &Options::p, "probability of a zero", between(0, 0.999));
  return layer_of("dropout", Dropout(kSchema.parse(value).p));
}

}  // namespace zt::nn
