#include "tiles.h"

#include <ATen/ATen.h>

#include "zt/base/rows.h"
#include "zt/gemm/gemm.h"

namespace zt::nn {

TileGradient::TileGradient(const AffineSinks& sinks, at::ScalarType dtype) : weight_(sum_for(sinks.weight(), dtype)) {
  if (sinks.bias) bias_ = sum_for(sinks.bias(), dtype);
  if (!sinks.lora) return;
  for (const Context::SinkFn& open : sinks.lora->sinks()) of_lora_.push_back(sum_for(open(), dtype));
}

TileGradient::Sum TileGradient::sum_for(Context::Sink sink, at::ScalarType dtype) {
  const at::ScalarType of_sums = wide_dtype(dtype);
  if (!sink.view.defined() || (sink.first && sink.view.scalar_type() == of_sums)) return {sink, sink.view};
  return {sink, at::empty(sink.view.sizes(), sink.view.options().dtype(of_sums))};
}

void TileGradient::add(const at::Tensor& dy, const at::Tensor& x, const LoraPass& lora, int64_t first) {
  if (weight_.values.defined()) gemm(GemmKind::weight_gradient, dy.t(), x, weight_.values, is_first_ ? 0 : 1);
  if (bias_.values.defined()) Context::Sink{bias_.values, is_first_}.add(column_sums(dy));
  lora.for_gradients(dy, x, first, [this](size_t i, const at::Tensor& of_result, const at::Tensor& in, double alpha) {
    if (of_lora_[i].values.defined())
      gemm(GemmKind::weight_gradient, of_result.t(), in, of_lora_[i].values, is_first_ ? 0 : 1, alpha);
  });
  is_first_ = false;
}

void TileGradient::finish() {
  const auto add = [](const Sum& sum) {
    if (sum.values.defined() && !sum.values.is_same(sum.sink.view)) sum.sink.add(sum.values);
  };
  add(weight_);
  add(bias_);
  for (const Sum& sum : of_lora_) add(sum);
}

}  // namespace zt::nn
