#include "norm_cuda.h"

#include "cuda/device_call.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

// Sums the rows of `parts` [rows, width] into `out` [1, width], in a fixed tree.
template <class W>
void sum_parts(const at::Tensor& out, at::Tensor parts) {
  while (parts.size(0) > 1) {
    const int64_t rows = device::sum_blocks(parts.size(0)), width = parts.size(1);
    const at::Tensor sums = rows == 1 ? out : at::empty({rows, width}, parts.options());
    on_gpu(parts, device::SumRows<W>{sums.data_ptr<W>(), parts.const_data_ptr<W>(), parts.size(0), rows, width});
    parts = sums;
  }
}

}  // namespace

void norm_backward_on_gpu(const at::Tensor& dx, const at::Tensor& dweight, const at::Tensor& dbias,
                          const NormBackwardInputs& in) {
  const int64_t rows = in.x.size(0) * in.parts.count, width = in.parts.width, blocks = device::sum_blocks(rows);
  if (rows == 0) return;
  // With one block, its sums are the result and are written directly.
  const auto parts_of = [&](const at::Tensor& sum) {
    return sum.defined() && blocks > 1 ? at::empty({blocks, width}, sum.options()) : sum;
  };
  const at::Tensor weight_parts = parts_of(dweight), bias_parts = parts_of(dbias);
  const device::RowPlaces places = device_places(in.parts, in.x.size(1));
  for_dtype(in.x, [&](auto zero) {
    using T = decltype(zero);
    using W = kernels::Wide<T>;
    const W* reciprocal = static_cast<const W*>(in.stats.const_data_ptr());
    const kernels::NormStats<const W> found{in.stats.size(0) == 2 ? reciprocal + rows : nullptr, reciprocal};
    const T *x = in.x.const_data_ptr<T>() + in.parts.first, *dy = in.dy.const_data_ptr<T>() + in.parts.first;
    const T *weight = in.weight.const_data_ptr<T>(), *other = data_or_null<T>(in.beside);
    if (other) other += in.parts.first;
    on_gpu(in.x, device::NormBackward<T>{dx.data_ptr<T>() + in.parts.first, dy, x, weight, other, found, rows, width, places});
    const auto data = [](const at::Tensor& sums) { return sums.defined() ? sums.data_ptr<W>() : nullptr; };
    on_gpu(in.x, device::NormParts<T>{data(weight_parts), data(bias_parts), dy, x, found, rows, blocks, width, places});
    if (dweight.defined()) sum_parts<W>(dweight, weight_parts);
    if (dbias.defined()) sum_parts<W>(dbias, bias_parts);
  });
}

}  // namespace zt::nn
