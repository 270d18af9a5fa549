#include "packed/panel_codes.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstring>

namespace zt::packed {

namespace {

uint8_t* codes_of(const PackLayout& layout, uint8_t* bytes, int64_t row, int64_t g) {
  return bytes + layout.group_offset(row / kPanelRows, g);
}

}  // namespace

// 4 columns of a row lie together, then come those of the next row.
void write_int8(const PackLayout& layout, uint8_t* bytes, int64_t row, int64_t g, const int8_t* codes) {
  uint8_t* const to = codes_of(layout, bytes, row, g) + row % kPanelRows * 4;
  for (int64_t i = 0; i < layout.group; i += 4) std::memcpy(to + i * kPanelRows, codes + i, 4);
}

// 8 columns of a row lie together: byte i holds columns i and i + 4.
void write_nibbles(const PackLayout& layout, uint8_t* bytes, int64_t row, int64_t g, const uint8_t* codes) {
  uint8_t* const to = codes_of(layout, bytes, row, g) + row % kPanelRows * 4;
  for (int64_t i = 0; i < layout.group; i += 8) {
    for (int64_t j = 0; j < 4; ++j) to[i / 8 * kPanelRows * 4 + j] = static_cast<uint8_t>(codes[i + j] | codes[i + j + 4] << 4);
  }
}

// fp32: a column of 16 rows lies together. bf16: 2 columns of a row lie together, as the 4 of int8.
void write_numbers(const PackLayout& layout, uint8_t* bytes, int64_t row, const float* numbers) {
  uint8_t* const panel = bytes + layout.panel_offset(row / kPanelRows);
  for (int64_t column = 0; column < layout.padded_columns; ++column) {
    const float number = column < layout.columns ? numbers[column] : 0;
    if (layout.code == StoredCode::fp32) {
      std::memcpy(panel + (column * kPanelRows + row % kPanelRows) * 4, &number, 4);
    } else {
      const auto rounded = static_cast<c10::BFloat16>(number);
      std::memcpy(panel + ((column / 2 * kPanelRows + row % kPanelRows) * 2 + column % 2) * 2, &rounded.x, 2);
    }
  }
}

void write_scale_code(const PackLayout& layout, uint8_t* bytes, int64_t row, int64_t g, int code) {
  codes_of(layout, bytes, row, g)[layout.code_bytes + row % kPanelRows] = static_cast<uint8_t>(code);
}

void write_nf4_scale(const PackLayout& layout, uint8_t* bytes, int64_t row, int64_t g, float scale) {
  std::memcpy(codes_of(layout, bytes, row, g) + layout.code_bytes + row % kPanelRows * 4, &scale, 4);
}

void write_scale(const PackLayout& layout, uint8_t* bytes, int64_t row, int64_t g, float scale, float minimum) {
  uint8_t* const to = codes_of(layout, bytes, row, g) + layout.code_bytes + row % kPanelRows * 2;
  const auto half = static_cast<c10::Half>(scale), least = static_cast<c10::Half>(minimum);
  std::memcpy(to, &half.x, 2);
  if (layout.has_minima()) std::memcpy(to + kPanelRows * 2, &least.x, 2);
}

}  // namespace zt::packed
