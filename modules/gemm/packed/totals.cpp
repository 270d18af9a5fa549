#include "packed/totals.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>

namespace zt::packed {

namespace {

// Rounds to the nearest bf16, ties to even. A NaN stays one.
uint16_t nearest_bf16(float number) {
  const auto bits = std::bit_cast<uint32_t>(number);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? 0x7fc0 : rounded);
}

template <class T, class Round>
void write_as(const float* totals, int64_t stride, int64_t rows, int64_t columns, const at::Tensor& out, int64_t row,
              int64_t column, const Round& round) {
  T* const first = static_cast<T*>(out.mutable_data_ptr()) + row * out.stride(0) + column;
  for (int64_t i = 0; i < rows; ++i) {
    const float* const from = totals + i * stride;
    T* const to = first + i * out.stride(0);
    for (int64_t j = 0; j < columns; ++j) to[j] = round(from[j]);
  }
}

}  // namespace

void write_totals(const float* totals, int64_t stride, int64_t rows, int64_t columns, const at::Tensor& out, int64_t row,
                  int64_t column) {
  switch (out.scalar_type()) {
    case at::kFloat:
      return write_as<float>(totals, stride, rows, columns, out, row, column, [](float number) { return number; });
    case at::kBFloat16:
      return write_as<uint16_t>(totals, stride, rows, columns, out, row, column, nearest_bf16);
    default:
      return write_as<c10::Half>(totals, stride, rows, columns, out, row, column,
                                 [](float number) { return static_cast<c10::Half>(number); });
  }
}

}  // namespace zt::packed
