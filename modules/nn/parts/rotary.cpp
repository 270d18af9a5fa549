#include "rotary.h"

#include <algorithm>
#include <span>

#include "cpu/kernels.h"
#include "cuda/device_call.h"
#include "cuda/device_rows.h"
#include "zt/base/rows.h"

namespace zt::nn {

Angles Rotary::angles(const at::Tensor& positions, at::ScalarType dtype, at::Device device) {
  if (device.is_meta()) return {{}, {}, positions.reshape({-1})};
  const at::ScalarType wide = wide_dtype(dtype);
  const at::Tensor rows = positions.reshape({-1}).cpu().contiguous();
  const std::span<const int64_t> places(rows.const_data_ptr<int64_t>(), rows.numel());
  const auto [least, most] = std::minmax_element(places.begin(), places.end());
  const int64_t needed = places.empty() ? 0 : *most + 1;
  if (!places.empty() && *least < 0) misuse("positions must not be negative, got {}", *least);
  const at::Tensor& held = table_.cosine;
  if (!held.defined() || held.size(0) < needed || held.scalar_type() != wide || held.device() != device) {
    const at::Tensor exponents = at::arange(0, head_dim_, 2, at::kDouble) / static_cast<double>(head_dim_);
    const at::Tensor angles = at::outer(at::arange(needed, at::kDouble), at::pow(base_, -exponents));
    table_ = {angles.cos().to(device, wide), angles.sin().to(device, wide), {}};
  }
  return {table_.cosine, table_.sine, rows.to(device, at::kLong, /*non_blocking=*/true)};
}

void rotate_heads(const at::Tensor& x, const Angles& angles, int64_t heads, Turn turn) {
  if (x.is_meta()) return;
  const int64_t columns = x.size(-1), half = angles.cosine.size(1), tokens = angles.rows.numel();
  for_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    using W = kernels::Wide<T>;
    const W *cosine = angles.cosine.const_data_ptr<W>(), *sine = angles.sine.const_data_ptr<W>();
    const auto* table_row = angles.rows.const_data_ptr<int64_t>();
    T* data = x.data_ptr<T>();
    const double sign = static_cast<double>(turn);
    const int64_t rows = x.size(0) * x.size(1);
    if (on_gpu(x, device::Rotate<T>{data, cosine, sine, table_row, tokens, sign, heads, half, rows, columns})) return;
    for_rows(rows, columns, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t place = table_row[row % tokens] * half;
        kernels::rotate(data + row * columns, cosine + place, sine + place, heads, half, sign);
      }
    });
  });
}

}  // namespace zt::nn
