#include "tiles.h"

#include <ATen/ATen.h>

#include "zt/base/rows.h"
#include "zt/gemm/gemm.h"

namespace zt::nn {

TileGradient::TileGradient(const AffineSinks& sinks, at::ScalarType dtype) : weight_(sum_for(sinks.weight(), dtype)) {
  if (sinks.bias) bias_ = sum_for(sinks.bias(), dtype);
}

TileGradient::Sum TileGradient::sum_for(Context::Sink sink, at::ScalarType dtype) {
  const at::ScalarType of_sums = wide_dtype(dtype);
  if (!sink.view.defined() || (sink.first && sink.view.scalar_type() == of_sums)) return {sink, sink.view};
  return {sink, at::empty(sink.view.sizes(), sink.view.options().dtype(of_sums))};
}

void TileGradient::add(const at::Tensor& dy, const at::Tensor& x) {
  if (weight_.values.defined()) gemm(GemmKind::weight_gradient, dy.t(), x, weight_.values, is_first_ ? 0 : 1);
  if (bias_.values.defined()) Context::Sink{bias_.values, is_first_}.add(column_sums(dy));
  is_first_ = false;
}

void TileGradient::finish() {
  for (const Sum* sum : {&weight_, &bias_}) {
    if (sum->values.defined() && !sum->values.is_same(sum->sink.view)) sum->sink.add(sum->values);
  }
}

}  // namespace zt::nn
