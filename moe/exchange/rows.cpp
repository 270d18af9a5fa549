#include "exchange/rows.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::moe {

namespace {

// The dtype of sums.
template <class T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

at::ScalarType sum_dtype(const at::Tensor& rows) {
  return rows.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Calls body(T{}) with the dtype of `rows`.
template <class Body>
void with_dtype(const at::Tensor& rows, const Body& body) {
  switch (rows.scalar_type()) {
    case at::kDouble:
      return body(double{});
    case at::kFloat:
      return body(float{});
    case at::kBFloat16:
      return body(c10::BFloat16{});
    case at::kHalf:
      return body(c10::Half{});
    default:
      misuse("experts compute in float64, float32, bfloat16 or float16, got {}", describe(rows));
  }
}

// Calls body(line) for the lines [0, lines), in parallel. `work`: elements per line.
template <class Body>
void for_lines(int64_t lines, int64_t work, const Body& body) {
  constexpr int64_t kGrain = 32768;
  at::parallel_for(0, lines, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, work)), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) body(line);
  });
}

at::Tensor in_sums(const at::Tensor& weights, const at::Tensor& rows) {
  return weights.to(sum_dtype(rows)).contiguous();
}

int64_t tokens_of(const RowOrder& order) {
  return order.places.size(0);
}
int64_t routes_of(const RowOrder& order) {
  return order.places.size(1);
}

// By ATen's operators, on any device.
namespace general {

at::Tensor rows_of_tokens(const at::Tensor& tokens, const RowOrder& order, const at::Tensor& weights) {
  const at::Tensor pairs = order.pairs.to(tokens.device()), used = pairs.clamp_min(0);
  at::Tensor rows = tokens.index_select(0, used.div(routes_of(order), "floor"));
  if (weights.defined()) {
    const at::Tensor factors = weights.to(sum_dtype(tokens)).flatten().index_select(0, used).unsqueeze(1);
    rows = rows.to(sum_dtype(tokens)).mul(factors).to(tokens.scalar_type());
  }
  return rows.masked_fill(pairs.lt(0).unsqueeze(1), 0);
}

// Returns [tokens, routes, width] in the dtype of sums; zeros for empty routes.
at::Tensor by_routes(const at::Tensor& rows, const RowOrder& order) {
  const at::Tensor places = order.places.to(rows.device());
  const at::Tensor with_zero = at::cat({rows, at::zeros({1, rows.size(1)}, rows.options())});
  const at::Tensor picked = with_zero.index_select(0, at::where(places.lt(0), rows.size(0), places).flatten());
  return picked.to(sum_dtype(rows)).view({tokens_of(order), routes_of(order), rows.size(1)});
}

}  // namespace general

}  // namespace

at::Tensor rows_of_tokens(const at::Tensor& tokens, const RowOrder& order, const at::Tensor& weights) {
  if (!tokens.is_cpu()) return general::rows_of_tokens(tokens, order, weights);
  const int64_t width = tokens.size(1), routes = routes_of(order);
  at::Tensor rows = at::empty({order.rows(), width}, tokens.options());
  const auto* pairs = order.pairs.const_data_ptr<int64_t>();
  const at::Tensor factors = weights.defined() ? in_sums(weights, tokens) : weights;
  with_dtype(tokens, [&](auto zero) {
    using T = decltype(zero);
    const T* from = tokens.const_data_ptr<T>();
    T* to = rows.mutable_data_ptr<T>();
    const auto* factor_of = factors.defined() ? factors.const_data_ptr<Sum<T>>() : nullptr;
    for_lines(order.rows(), width, [&](int64_t row) {
      const int64_t pair = pairs[row];
      T* out = to + row * width;
      if (pair < 0) return static_cast<void>(std::fill_n(out, width, T(0)));
      const T* token = from + pair / routes * width;
      if (!factor_of) return static_cast<void>(std::copy_n(token, width, out));
      const Sum<T> factor = factor_of[pair];
      for (int64_t i = 0; i < width; ++i) out[i] = static_cast<T>(factor * static_cast<Sum<T>>(token[i]));
    });
  });
  return rows;
}

void sum_rows(const at::Tensor& out, const at::Tensor& rows, const RowOrder& order, const at::Tensor& weights,
              const at::Tensor& more) {
  const int64_t width = rows.size(1), routes = routes_of(order), tokens = tokens_of(order);
  if (!rows.is_cpu()) {
    at::Tensor picked = general::by_routes(rows, order);
    if (weights.defined()) picked = picked.mul(weights.to(sum_dtype(rows)).view({tokens, routes, 1}));
    at::Tensor sum = picked.sum(1);
    if (more.defined()) sum = sum.add(more.to(sum.scalar_type()));
    at::Tensor(out).copy_(sum);
    return;
  }
  const auto* places = order.places.const_data_ptr<int64_t>();
  const at::Tensor factors = weights.defined() ? in_sums(weights, rows) : weights;
  with_dtype(rows, [&](auto zero) {
    using T = decltype(zero);
    const T* from = rows.const_data_ptr<T>();
    const T* start = more.defined() ? more.const_data_ptr<T>() : nullptr;
    T* to = out.mutable_data_ptr<T>();
    const auto* factor_of = factors.defined() ? factors.const_data_ptr<Sum<T>>() : nullptr;
    for_lines(tokens, width * routes, [&](int64_t token) {
      constexpr int64_t kBlock = 256;
      Sum<T> sum[kBlock];
      for (int64_t begin = 0; begin < width; begin += kBlock) {
        const int64_t count = std::min(kBlock, width - begin);
        for (int64_t i = 0; i < count; ++i) sum[i] = start ? static_cast<Sum<T>>(start[token * width + begin + i]) : Sum<T>(0);
        for (int64_t pair = token * routes; pair < (token + 1) * routes; ++pair) {
          if (places[pair] < 0) continue;
          const T* row = from + places[pair] * width + begin;
          const Sum<T> factor = factor_of ? factor_of[pair] : Sum<T>(1);
          for (int64_t i = 0; i < count; ++i) sum[i] += factor * static_cast<Sum<T>>(row[i]);
        }
        for (int64_t i = 0; i < count; ++i) to[token * width + begin + i] = static_cast<T>(sum[i]);
      }
    });
  });
}

at::Tensor row_products(const at::Tensor& tokens, const at::Tensor& rows, const RowOrder& order) {
  const int64_t width = rows.size(1), routes = routes_of(order);
  if (!rows.is_cpu()) return general::by_routes(rows, order).mul(tokens.to(sum_dtype(rows)).unsqueeze(1)).sum(2);
  at::Tensor products = at::zeros(order.places.sizes(), rows.options().dtype(sum_dtype(rows)));
  const auto* places = order.places.const_data_ptr<int64_t>();
  with_dtype(rows, [&](auto zero) {
    using T = decltype(zero);
    const T *row_data = rows.const_data_ptr<T>(), *token_data = tokens.const_data_ptr<T>();
    auto* to = products.mutable_data_ptr<Sum<T>>();
    for_lines(order.places.numel(), width, [&](int64_t pair) {
      if (places[pair] < 0) return;
      constexpr int64_t kLanes = 16;  // partial sums, in a fixed order
      Sum<T> lanes[kLanes] = {};
      const T *row = row_data + places[pair] * width, *token = token_data + pair / routes * width;
      int64_t i = 0;
      for (; i + kLanes <= width; i += kLanes) {
        for (int64_t lane = 0; lane < kLanes; ++lane)
          lanes[lane] += static_cast<Sum<T>>(row[i + lane]) * static_cast<Sum<T>>(token[i + lane]);
      }
      for (; i < width; ++i) lanes[i % kLanes] += static_cast<Sum<T>>(row[i]) * static_cast<Sum<T>>(token[i]);
      Sum<T> total = 0;
      for (const Sum<T> lane : lanes) total += lane;
      to[pair] = total;
    });
  });
  return products;
}

}  // namespace zt::moe
