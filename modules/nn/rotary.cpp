#include "rotary.h"

#include <algorithm>
#include <span>

#include "kernels.h"
#include "rows.h"

namespace zt::nn {

Angles Rotary::angles(const at::Tensor& positions, at::ScalarType dtype) {
  const at::ScalarType wide = wide_dtype(dtype);
  const at::Tensor rows = positions.reshape({-1}).contiguous();
  const std::span<const int64_t> places(rows.const_data_ptr<int64_t>(), rows.numel());
  const auto [least, most] = std::minmax_element(places.begin(), places.end());
  const int64_t needed = places.empty() ? 0 : *most + 1;
  if (!places.empty() && *least < 0) misuse("positions must not be negative, got {}", *least);
  if (!table_.cosine.defined() || table_.cosine.size(0) < needed || table_.cosine.scalar_type() != wide) {
    const at::Tensor exponents = at::arange(0, head_dim_, 2, at::kDouble) / static_cast<double>(head_dim_);
    const at::Tensor angles = at::outer(at::arange(needed, at::kDouble), at::pow(base_, -exponents));
    table_ = {angles.cos().to(wide), angles.sin().to(wide), {}};
  }
  return {table_.cosine, table_.sine, rows};
}

void rotate_heads(const at::Tensor& x, const Angles& angles, int64_t heads, Turn turn) {
  const int64_t columns = x.size(-1), half = angles.cosine.size(1), tokens = angles.rows.numel();
  for_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    using W = kernels::Wide<T>;
    const W *cosine = angles.cosine.const_data_ptr<W>(), *sine = angles.sine.const_data_ptr<W>();
    const auto* table_row = angles.rows.const_data_ptr<int64_t>();
    T* data = x.data_ptr<T>();
    for_rows(x.size(0) * x.size(1), columns, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t place = table_row[row % tokens] * half;
        kernels::rotate(data + row * columns, cosine + place, sine + place, heads, half, static_cast<double>(turn));
      }
    });
  });
}

}  // namespace zt::nn
