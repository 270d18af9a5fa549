#include "exchange/rows.h"

#include <ATen/ATen.h>

#include <cstring>

#include "exchange/row_kernels.h"
#include "zt/base/isa.h"
#include "zt/base/rows.h"
#include "zt/base/tensor.h"

namespace zt::moe {

namespace {

// Calls body(T{}, tokens) with the dtype of `rows`, in parallel for parts of the tokens. `result`: the tensor that is written.
template <class Body>
void for_tokens(const RowOrder& order, const at::Tensor& rows, const at::Tensor& result, const Body& body) {
  constexpr size_t kLargerThanCaches = 12 << 20;  // bytes; the operands of such a result push it out of the caches (measured)
  const int64_t tokens = order.places.size(0), routes = order.places.size(1), width = rows.size(1);
  const Isa isa = best_isa();
  const bool streams = result.nbytes() > kLargerThanCaches;
  for_dtype(rows, [&](auto zero) {
    for_rows(tokens, width * routes, [&](int64_t begin, int64_t end) {
      body(zero, kernels::Tokens{order.places.const_data_ptr<int64_t>(), begin, end, routes, width, streams, isa});
    });
  });
}

// Writes zeros to the rows that no token uses.
void clear_padding(const at::Tensor& rows, const RowOrder& order) {
  const auto* pairs = order.pairs.const_data_ptr<int64_t>();
  const size_t bytes = static_cast<size_t>(rows.size(1)) * rows.itemsize();
  for (int64_t row = 0; row < order.rows(); ++row) {
    if (pairs[row] < 0) std::memset(static_cast<char*>(rows.mutable_data_ptr()) + static_cast<size_t>(row) * bytes, 0, bytes);
  }
}

// Returns the weights in the dtype of sums; undefined if they are.
at::Tensor in_sums(const at::Tensor& weights, const at::Tensor& rows) {
  return weights.defined() ? weights.to(wide_dtype(rows.scalar_type())).contiguous() : weights;
}

// By ATen's operators, on any device.
namespace general {

// Returns the row of its token for each row, times its weight if `weights` is defined.
at::Tensor rows_of_tokens(const at::Tensor& tokens, const RowOrder& order, const at::Tensor& weights) {
  const at::Tensor pairs = order.pairs.to(tokens.device()), used = pairs.clamp_min(0);
  at::Tensor rows = tokens.index_select(0, used.div(order.places.size(1), "floor"));
  if (weights.defined()) {
    const at::Tensor factors = weights.to(wide_dtype(tokens.scalar_type())).flatten().index_select(0, used).unsqueeze(1);
    rows = rows.to(wide_dtype(tokens.scalar_type())).mul(factors).to(tokens.scalar_type());
  }
  return rows.masked_fill(pairs.lt(0).unsqueeze(1), 0);
}

// Returns [tokens, routes, width] in the dtype of sums; zeros for empty routes.
at::Tensor by_routes(const at::Tensor& rows, const RowOrder& order) {
  const at::Tensor places = order.places.to(rows.device());
  const at::Tensor with_zero = at::cat({rows, at::zeros({1, rows.size(1)}, rows.options())});
  const at::Tensor picked = with_zero.index_select(0, at::where(places.lt(0), rows.size(0), places).flatten());
  return picked.to(wide_dtype(rows.scalar_type())).view({places.size(0), places.size(1), rows.size(1)});
}

at::Tensor sum_of_rows(const at::Tensor& rows, const RowOrder& order, const at::Tensor& weights, const at::Tensor& more) {
  at::Tensor picked = by_routes(rows, order);
  if (weights.defined())
    picked = picked.mul(weights.to(wide_dtype(rows.scalar_type())).view({picked.size(0), picked.size(1), 1}));
  const at::Tensor sum = picked.sum(1);
  return more.defined() ? sum.add(more.to(sum.scalar_type())) : sum;
}

}  // namespace general

}  // namespace

at::Tensor rows_of_tokens(const at::Tensor& tokens, const RowOrder& order) {
  if (!is_for_host(tokens)) return general::rows_of_tokens(tokens, order, {});
  const at::Tensor rows = at::empty({order.rows(), tokens.size(1)}, tokens.options());
  for_tokens(order, tokens, rows, [&](auto zero, const kernels::Tokens& shape) {
    using T = decltype(zero);
    kernels::copy_to_rows(rows.mutable_data_ptr<T>(), tokens.const_data_ptr<T>(), shape);
  });
  clear_padding(rows, order);
  return rows;
}

void sum_rows(const at::Tensor& out, const at::Tensor& rows, const RowOrder& order, const at::Tensor& weights,
              const at::Tensor& more) {
  if (!is_for_host(rows)) return static_cast<void>(at::Tensor(out).copy_(general::sum_of_rows(rows, order, weights, more)));
  const at::Tensor factors = in_sums(weights, rows);
  for_tokens(order, rows, out, [&](auto zero, const kernels::Tokens& shape) {
    using T = decltype(zero);
    kernels::sum_to_tokens(out.mutable_data_ptr<T>(), rows.const_data_ptr<T>(), data_or_null<Wide<T>>(factors),
                           data_or_null<T>(more), shape);
  });
}

SumGradients sum_rows_backward(const at::Tensor& gradient, const at::Tensor& rows, const RowOrder& order,
                               const at::Tensor& weights) {
  if (!is_for_host(rows)) {
    const at::Tensor products =
        general::by_routes(rows, order).mul(gradient.to(wide_dtype(rows.scalar_type())).unsqueeze(1)).sum(2);
    return {general::rows_of_tokens(gradient, order, weights), products};
  }
  const SumGradients result{at::empty_like(rows),
                            at::zeros(order.places.sizes(), rows.options().dtype(wide_dtype(rows.scalar_type())))};
  const at::Tensor factors = in_sums(weights, rows);
  for_tokens(order, rows, result.rows, [&](auto zero, const kernels::Tokens& shape) {
    using T = decltype(zero);
    kernels::sum_backward(result.rows.mutable_data_ptr<T>(), result.weights.mutable_data_ptr<Wide<T>>(),
                          gradient.const_data_ptr<T>(), rows.const_data_ptr<T>(), data_or_null<Wide<T>>(factors), shape);
  });
  clear_padding(result.rows, order);
  return result;
}

}  // namespace zt::moe
