#include "packed/convert.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <vector>

#include "packed/nf4/nf4.h"
#include "packed/panel_codes.h"
#include "packed/quantize.h"
#include "zt/base/error.h"

namespace zt::packed {

namespace {

void check_finite(const float* numbers, int64_t row, int64_t columns) {
  for (int64_t column = 0; column < columns; ++column) {
    if (std::isfinite(numbers[column])) continue;
    fault("the weight in row {}, column {} is {} in float32, which no packed format holds: check the matrix", row, column,
          numbers[column]);
  }
}

bool quantize_group(const PackLayout& layout, const float* numbers, QuantizedGroup& group) {
  if (layout.spec.format == PackFormat::int8) return quantize_int8(numbers, layout.group, group);
  if (layout.spec.symmetric) return quantize_int4_symmetric(numbers, layout.group, group);
  return quantize_int4(numbers, layout.group, group);
}

void quantize_row(const PackLayout& layout, uint8_t* bytes, int64_t row, const float* numbers) {
  for (int64_t g = 0; g < layout.groups; ++g) {
    QuantizedGroup group;
    if (!quantize_group(layout, numbers + g * layout.group, group)) {
      fault(
          "the weights in row {}, columns {} to {} need a scale or minimum above 65504, the largest number of float16: keep this "
          "matrix plain, or pack it as panels",
          row, g * layout.group, (g + 1) * layout.group - 1);
    }
    write_scale(layout, bytes, row, g, group.scale, group.minimum);
    if (layout.code == StoredCode::int8) {
      write_int8(layout, bytes, row, g, group.codes);
      continue;
    }
    uint8_t codes[kMostColumns];
    for (int64_t i = 0; i < layout.group; ++i) codes[i] = static_cast<uint8_t>(group.codes[i] + layout.zero_point());
    write_nibbles(layout, bytes, row, g, codes);
  }
}

// Calls body(row, numbers) for all rows, in parallel by panels. Throws the error of the first row that has one.
template <class Body>
void for_weight_rows(const at::Tensor& weight, const PackLayout& layout, const Body& body) {
  std::mutex mutex;
  std::exception_ptr error;
  int64_t error_row = layout.rows;
  at::parallel_for(0, layout.panels, 1, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kPanelRows, last = std::min(end * kPanelRows, layout.rows);
    for (int64_t row = first; row < last; ++row) {
      try {
        body(row, weight.select(0, row).to(at::kFloat).contiguous());
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (row < error_row) {
          error_row = row;
          error = std::current_exception();
        }
        return;
      }
    }
  });
  if (error) std::rethrow_exception(error);
}

}  // namespace

void pack_matrix(const at::Tensor& weight, const PackedMatrix& into) {
  const PackLayout layout = pack_layout(into.spec, into.rows, into.columns);
  auto* const bytes = into.bytes.mutable_data_ptr<uint8_t>();
  if (layout.bytes > 0) std::memset(bytes, 0, static_cast<size_t>(layout.bytes));
  const at::Tensor numbers = into.spec.format == PackFormat::nf4 ? weight.to(at::kFloat).contiguous() : weight;
  for_weight_rows(numbers, layout, [&](int64_t row, const at::Tensor& wide) {
    const float* const each = wide.const_data_ptr<float>();
    check_finite(each, row, layout.columns);
    if (into.spec.format == PackFormat::panels) write_numbers(layout, bytes, row, each);
    else if (into.spec.format != PackFormat::nf4) quantize_row(layout, bytes, row, each);
  });
  if (into.spec.format == PackFormat::nf4) pack_nf4(numbers, layout, bytes);
}

const float* GroupReader::read(int64_t panel, int64_t g) {
  const int64_t columns = layout_.columns_of(g);
  kernels_.unpack(layout_.code, PanelArithmetic::floats, bytes_ + layout_.group_offset(panel, g), columns, nibble_table(layout_),
                  words_);
  alignas(64) float scales[kPanelRows], minima[kPanelRows];
  read_scales(layout_, bytes_, panel, g, scales, minima);
  kernels_.scale_words(words_, columns, scales, layout_.has_minima() ? minima : nullptr, numbers_);
  return numbers_;
}

at::Tensor unpack_matrix(const PanelKernels& kernels, const PackedMatrix& matrix, at::ScalarType dtype) {
  const PackLayout layout = pack_layout(matrix.spec, matrix.rows, matrix.columns);
  const at::Tensor numbers = at::empty({layout.rows, layout.columns}, at::kFloat);
  const auto* const bytes = matrix.bytes.const_data_ptr<uint8_t>();
  auto* const to = numbers.mutable_data_ptr<float>();
  at::parallel_for(0, layout.panels, 1, [&](int64_t begin, int64_t end) {
    GroupReader reader(kernels, layout, bytes);
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t rows = std::min(kPanelRows, layout.rows - panel * kPanelRows);
      for (int64_t g = 0; g < layout.groups; ++g) {
        const float* const from = reader.read(panel, g);
        const int64_t first = g * layout.group, columns = std::min(layout.columns_of(g), layout.columns - first);
        for (int64_t row = 0; row < rows; ++row) {
          float* const row_to = to + (panel * kPanelRows + row) * layout.columns + first;
          for (int64_t column = 0; column < columns; ++column) row_to[column] = from[column * kPanelRows + row];
        }
      }
    }
  });
  return numbers.to(dtype);
}

}  // namespace zt::packed
