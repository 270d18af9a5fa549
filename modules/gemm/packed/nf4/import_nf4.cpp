#include "packed/nf4/import_nf4.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "packed/nf4/nf4.h"
#include "packed/panel_codes.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/base/words.h"

namespace zt::packed {

namespace {

void check_nf4_tensor(const at::Tensor& tensor, const char* name, at::ScalarType dtype, int64_t count) {
  if (tensor.defined() && tensor.is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == dtype && tensor.numel() == count)
    return;
  misuse("'{}' of an nf4 matrix has {} contiguous elements of {} on the CPU, got {}", name, count, c10::toString(dtype),
         tensor.defined() ? describe(tensor) : "nothing");
}

void check_are_finite(const at::Tensor& tensor, const char* name) {
  const float* const numbers = tensor.const_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    if (!std::isfinite(numbers[i])) fault("element {} of '{}' is {}: the file is damaged", i, name, numbers[i]);
  }
}

bool has_nested_scales(const Nf4Tensors& part) {
  return part.nested_absmax.defined();
}

// part: of the matrix with this layout. first: its first part.
void check_part(const Nf4Tensors& part, const PackLayout& layout, const Nf4Tensors& first) {
  const int64_t groups = part.rows * layout.groups;
  check_nf4_tensor(part.weight, "weight", at::kByte, part.rows * layout.columns / 2);
  check_nf4_tensor(part.quant_map, "quant_map", at::kFloat, 16);
  check_nf4_tensor(part.absmax, "absmax", has_nested_scales(part) ? at::kByte : at::kFloat, groups);
  const float* const codes = part.quant_map.const_data_ptr<float>();
  if (!std::equal(codes, codes + 16, nf4_codes().begin()))
    fault(
        "'quant_map' does not hold the 16 numbers of nf4, so the codes mean others: quantise the matrix with quant_type \"nf4\"");
  if (layout.is_nested() && !has_nested_scales(part))
    misuse("'nested_absmax' is missing: without it, the matrix is packed as nf4 that is not nested");
  if (!has_nested_scales(part)) return check_are_finite(part.absmax, "absmax");
  check_nf4_tensor(part.nested_absmax, "nested_absmax", at::kFloat, (groups + kNf4Block - 1) / kNf4Block);
  check_nf4_tensor(part.nested_quant_map, "nested_quant_map", at::kFloat, kNf4MapEntries);
  check_are_finite(part.nested_absmax, "nested_absmax");
  check_are_finite(part.nested_quant_map, "nested_quant_map");
  if (!std::isfinite(static_cast<float>(part.nested_offset)))
    fault("'nested_offset' is {}: the file is damaged", part.nested_offset);
  if (layout.is_nested() && !part.nested_quant_map.equal(first.nested_quant_map))
    fault("matrices that are joined differ in 'nested_quant_map', so their scales mean other numbers: quantise them alike");
}

void check_parts(std::span<const Nf4Tensors> parts, const PackLayout& layout) {
  std::vector<int64_t> rows;
  int64_t sum = 0;
  for (const Nf4Tensors& part : parts) {
    rows.push_back(part.rows);
    sum += part.rows;
    check_part(part, layout, parts[0]);
  }
  if (sum != layout.rows) misuse("the parts of an nf4 matrix of {} rows have {}", layout.rows, sum);
  if (!can_join_nf4(rows, layout.columns, layout.is_nested()))
    misuse("matrices of {} rows are no whole blocks of {} groups, in which scales are quantised, so they cannot be joined",
           fmt::join(rows, ", "), kNf4Block);
}

// Returns the scale of a group: of a nested one as bitsandbytes computes it, with a rounding after each operation.
float scale_of_group(const Nf4Tensors& part, int64_t group) {
  if (!has_nested_scales(part)) return part.absmax.const_data_ptr<float>()[group];
  const float number = part.nested_quant_map.const_data_ptr<float>()[part.absmax.const_data_ptr<uint8_t>()[group]];
  const float product = number * part.nested_absmax.const_data_ptr<float>()[group / kNf4Block];
  return product + static_cast<float>(part.nested_offset);
}

// Writes the codes and scales of the part's rows, from row `first` of the matrix on.
void write_part(const Nf4Tensors& part, const PackLayout& layout, uint8_t* bytes, int64_t first) {
  const auto* const pairs = part.weight.const_data_ptr<uint8_t>();
  at::parallel_for(0, part.rows, kPanelRows, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin * layout.groups; group < end * layout.groups; ++group) {
      uint8_t codes[kMostColumns];
      for (int64_t i = 0; i < layout.group; ++i) {
        const uint8_t pair = pairs[(group * layout.group + i) / 2];
        codes[i] = i % 2 == 0 ? pair >> 4 : pair & 15;
      }
      const int64_t row = first + group / layout.groups, g = group % layout.groups;
      write_nibbles(layout, bytes, row, g, codes);
      if (layout.is_nested()) write_scale_code(layout, bytes, row, g, part.absmax.const_data_ptr<uint8_t>()[group]);
      else write_nf4_scale(layout, bytes, row, g, scale_of_group(part, group));
    }
  });
}

}  // namespace

bool can_join_nf4(std::span<const int64_t> rows, int64_t columns, bool is_nested) {
  if (columns % 64 != 0) return false;
  for (size_t i = 0; is_nested && i + 1 < rows.size(); ++i) {
    if (rows[i] * (columns / 64) % kNf4Block != 0) return false;
  }
  return true;
}

void import_nf4(std::span<const Nf4Tensors> parts, const PackedMatrix& into) {
  if (into.spec.format != PackFormat::nf4)
    misuse("matrices of bitsandbytes are read as nf4, not as {}", word_of(into.spec.format));
  const PackLayout layout = pack_layout(into.spec, into.rows, into.columns);
  check_parts(parts, layout);
  auto* const bytes = into.bytes.mutable_data_ptr<uint8_t>();
  std::memset(bytes, 0, static_cast<size_t>(layout.bytes));
  const Nf4Tables tables(layout, bytes);
  Nf4Block* block = layout.is_nested() ? tables.blocks : nullptr;
  int64_t row = 0;
  for (const Nf4Tensors& part : parts) {
    write_part(part, layout, bytes, row);
    row += part.rows;
    if (!block) continue;
    std::copy_n(part.nested_quant_map.const_data_ptr<float>(), kNf4MapEntries, tables.map);
    const float* const scales = part.nested_absmax.const_data_ptr<float>();
    for (int64_t i = 0; i < part.nested_absmax.numel(); ++i) *block++ = {scales[i], static_cast<float>(part.nested_offset)};
  }
}

}  // namespace zt::packed
