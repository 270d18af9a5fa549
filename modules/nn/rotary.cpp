#include "rotary.h"

#include <cmath>

#include "kernels.h"
#include "rows.h"

namespace zt::nn {

Angles Rotary::angles(const at::Tensor& positions, at::ScalarType dtype) {
  const at::ScalarType wide = wide_dtype(dtype);
  if (positions.numel() == 0 || positions.is_meta()) {
    const auto options = positions.options().dtype(wide);
    return {at::empty({positions.numel(), head_dim_ / 2}, options), at::empty({positions.numel(), head_dim_ / 2}, options)};
  }
  const auto [least, most] = positions.aminmax();
  const int64_t needed = most.item<int64_t>() + 1;
  if (least.item<int64_t>() < 0) misuse("positions must not be negative, got {}", least.item<int64_t>());
  if (!table_.cosine.defined() || table_.cosine.size(0) < needed || table_.cosine.scalar_type() != wide) {
    const at::Tensor exponents = at::arange(0, head_dim_, 2, at::kDouble) / static_cast<double>(head_dim_);
    const at::Tensor angles = at::outer(at::arange(needed, at::kDouble), at::pow(base_, -exponents));
    table_ = {angles.cos().to(wide), angles.sin().to(wide)};
  }
  const at::Tensor rows = positions.reshape({-1});
  return {table_.cosine.index_select(0, rows), table_.sine.index_select(0, rows)};
}

void rotate_heads(const at::Tensor& x, const Angles& angles, int64_t heads, Turn turn) {
  const int64_t columns = x.size(-1), half = angles.cosine.size(1), places = angles.cosine.size(0);
  for_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    using W = kernels::Wide<T>;
    const W *cosine = angles.cosine.const_data_ptr<W>(), *sine = angles.sine.const_data_ptr<W>();
    T* data = x.data_ptr<T>();
    for_rows(x.size(0) * x.size(1), columns, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t place = row % places * half;
        kernels::rotate(data + row * columns, cosine + place, sine + place, heads, half, static_cast<double>(turn));
      }
    });
  });
}

}  // namespace zt::nn
