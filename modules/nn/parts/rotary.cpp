#include "rotary.h"

#include <algorithm>
#include <numbers>
#include <span>

#include "cpu/kernels.h"
#include "cuda/device_call.h"
#include "cuda/device_rows.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

void check_rope_scaling(const RopeScaling& s) {
  if (s.type != RopeScalingType::llama3) return;
  if (!s.low_freq_factor || !s.high_freq_factor || !s.original)
    misuse("rope_scaling: type = \"llama3\" needs low_freq_factor, high_freq_factor and original: give all three");
  if (*s.low_freq_factor >= *s.high_freq_factor)
    misuse("rope_scaling: low_freq_factor = {} must be below high_freq_factor = {}, because angles between the two are mixed",
           *s.low_freq_factor, *s.high_freq_factor);
}

// Returns the angles per position, after scaling. angles: [head_dim / 2] float64.
at::Tensor scaled_angles(const at::Tensor& angles, const RopeScaling& s) {
  const at::Tensor small = angles / s.factor;
  if (s.type == RopeScalingType::linear) return small;
  const at::Tensor turns = angles * (static_cast<double>(*s.original) / (2 * std::numbers::pi));
  const at::Tensor kept = ((turns - *s.low_freq_factor) / (*s.high_freq_factor - *s.low_freq_factor)).clamp(0, 1);
  return (1 - kept) * small + kept * angles;
}

}  // namespace

const Schema<RopeScaling>& schema_of(const RopeScaling& /*scaling*/) {
  const auto is_llama3 = [](const RopeScaling& s) { return s.type == RopeScalingType::llama3; };
  static const auto kSchema =
      Schema<RopeScaling>("rope_scaling")
          .required("type", &RopeScaling::type, "which angles become smaller")
          .required("factor", &RopeScaling::factor, "number by which angles are divided", above(0))
          .optional("low_freq_factor", &RopeScaling::low_freq_factor,
                    "a pair of elements that turns at most this often in `original` positions has its angle divided", above(0))
          .only_with("with type = \"llama3\"", is_llama3)
          .optional("high_freq_factor", &RopeScaling::high_freq_factor,
                    "a pair of elements that turns at least this often in `original` positions keeps its angle", above(0))
          .only_with("with type = \"llama3\"", is_llama3)
          .optional("original", &RopeScaling::original, "tokens of the longest sequence of the first training", at_least(1))
          .only_with("with type = \"llama3\"", is_llama3)
          .checked(check_rope_scaling);
  return kSchema;
}

void check_not_negative(int64_t least) {
  if (least < 0) misuse("positions must not be negative, got {}", least);
}

Angles Rotary::angles(const at::Tensor& positions, at::ScalarType dtype, at::Device device) {
  if (device.is_meta()) return {{}, {}, positions.reshape({-1})};
  const at::ScalarType wide = wide_dtype(dtype);
  const at::Tensor rows = positions.reshape({-1}).cpu().contiguous();
  const std::span<const int64_t> places(rows.const_data_ptr<int64_t>(), rows.numel());
  const auto [least, most] = std::minmax_element(places.begin(), places.end());
  const int64_t needed = places.empty() ? 0 : *most + 1;
  if (!places.empty()) check_not_negative(*least);
  const Angles& held = table(needed, wide, device);
  return {held.cosine, held.sine, rows.to(device, at::kLong, /*non_blocking=*/true)};
}

// Returns the table for these elements with at least the needed positions.
const Angles& Rotary::table(int64_t needed, at::ScalarType dtype, at::Device device) {
  const auto found = std::ranges::find_if(
      tables_, [&](const Angles& held) { return held.cosine.scalar_type() == dtype && held.cosine.device() == device; });
  if (found == tables_.end()) return tables_.emplace_back(made_table(needed, dtype, device));
  // Generation needs one more position in each step, so a table that grows gets half of its size more.
  const int64_t positions = found->cosine.size(0);
  if (positions < needed) *found = made_table(std::max(needed, positions + positions / 2), dtype, device);
  return *found;
}

Angles Rotary::made_table(int64_t positions, at::ScalarType dtype, at::Device device) const {
  const at::Tensor exponents = at::arange(0, head_dim_, 2, at::kDouble) / static_cast<double>(head_dim_);
  at::Tensor per_position = at::pow(base_, -exponents);
  if (scaling_) per_position = scaled_angles(per_position, *scaling_);
  const at::Tensor angles = at::outer(at::arange(positions, at::kDouble), per_position);
  return {angles.cos().to(device, dtype), angles.sin().to(device, dtype), {}};
}

std::shared_ptr<Rotary> Rotary::shared(int64_t head_dim, double base, const std::optional<RopeScaling>& scaling) {
  thread_local std::vector<std::weak_ptr<Rotary>> made;
  std::erase_if(made, [](const auto& each) { return each.expired(); });
  for (const auto& each : made) {
    const std::shared_ptr<Rotary> held = each.lock();
    if (held->head_dim_ == head_dim && held->base_ == base && held->scaling_ == scaling) return held;
  }
  const auto rotary = std::make_shared<Rotary>(head_dim, base, scaling);
  made.push_back(rotary);
  return rotary;
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
