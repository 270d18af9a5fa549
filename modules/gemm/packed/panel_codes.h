// Writes single rows of codes into a packed matrix.
#pragma once

#include <cstdint>

#include "packed/layout.h"

namespace zt::packed {

// Writes the codes of a group of a row, one byte each. Requires that the bytes of the panel were set to 0, or that the group's
// codes were written before.
void write_int8(const PackLayout& layout, uint8_t* bytes, int64_t row, int64_t g, const int8_t* codes);
void write_nibbles(const PackLayout& layout, uint8_t* bytes, int64_t row, int64_t g, const uint8_t* codes);

// Writes the numbers of a row of `panels`: layout.columns of them.
void write_numbers(const PackLayout& layout, uint8_t* bytes, int64_t row, const float* numbers);

// Write the scale of a group of a row: of nested nf4 an index into the map, of other nf4 fp32, else fp16, with the minimum, if
// the layout has minima.
void write_scale_code(const PackLayout& layout, uint8_t* bytes, int64_t row, int64_t g, int code);
void write_nf4_scale(const PackLayout& layout, uint8_t* bytes, int64_t row, int64_t g, float scale);
void write_scale(const PackLayout& layout, uint8_t* bytes, int64_t row, int64_t g, float scale, float minimum);

}  // namespace zt::packed
