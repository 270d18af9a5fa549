// The loops over panels, one set per instruction set. They give the same bits; PACKED.md has the order of the sums.
//
// A loop reads operands of 32 bits: "words". Of the matrix, 16 rows have a word each per step; of the other operand, a word of
// one row is multiplied by all 16. What a word holds depends on the arithmetic.
#pragma once

#include <cstdint>

#include "packed/layout.h"
#include "zt/base/isa.h"

namespace zt::packed {

enum class PanelArithmetic : uint8_t {
  floats,      // a word is an fp32, a step one column. Of each pair of columns, the second comes first
  pairs,       // a word is two bf16, a step a pair of columns, with the processor's instruction: see safe_pairs
  wide_pairs,  // the same words, which are widened to fp32
  bytes,       // a word is 4 columns: unsigned codes of the matrix, signed ones of the other operand
};

// Multiplies `rows` rows by a tile, a group of several panels, and adds the results to the totals:
//   total = fma(scale, sum, total), and then total = fma(minimum, row_term, total), where there are minima.
// For `bytes`, the sum starts from row_start, and is multiplied by row_scale * scale.
struct TileTask {
  const uint8_t* w;           // [steps][16] words of the first panel
  int64_t w_panel;            // bytes from one panel's to the next one's
  const uint32_t* x;          // [rows][steps] words
  int64_t rows, steps;        //
  const float* scales;        // [panels][16]
  const float* minima;        // [panels][16] or null
  const float* row_terms;     // [rows], only read where there are minima
  const float* row_scales;    // [rows], of `bytes`
  const int32_t* row_starts;  // [rows], of `bytes`
  float* totals;              // [rows][totals_row], of which 16 numbers per panel are used
  int64_t totals_row;
  int64_t panels;
};

constexpr int64_t kMostRowsAtOnce = 4;  // of RowsTask

// Multiplies few rows by all groups of some panels, whose codes go from memory to registers.
struct RowsTask {
  const PackLayout* layout;
  const uint8_t* bytes;   // of the packed matrix
  const float* table;     // of the nibbles
  int64_t panel, panels;  // the first one, and how many
  int64_t rows;
  const uint32_t* x;       // [groups][rows][steps] words
  const float* row_terms;  // [groups][rows] each, as in TileTask
  const float* row_scales;
  const int32_t* row_starts;
  float* totals;  // [rows][totals_row], of which 16 numbers per panel are overwritten
  int64_t totals_row;
};

struct PanelKernels {
  int64_t tile_panels;  // for which TileTask is fast
  int64_t row_panels;   // for which RowsTask is fast
  bool has_pairs;       // whether `pairs` may be called
  // Writes the codes of a group, of `columns` columns, as words [steps][16].
  void (*unpack)(StoredCode, PanelArithmetic, const uint8_t* codes, int64_t columns, const float* table, uint32_t* words);
  void (*multiply_tile)(PanelArithmetic, const TileTask&);
  void (*multiply_few_rows)(PanelArithmetic, const RowsTask&);  // floats and bytes
  // Writes scale * number, or fma(scale, number, minimum), for the `floats` words of a group: [columns][16], in their order.
  void (*scale_words)(const uint32_t* words, int64_t columns, const float* scales, const float* minima, float* numbers);
  // Returns the smallest biased exponent of the bf16 in `words` that are not zero.
  uint32_t (*least_exponent)(const uint32_t* words, int64_t count);
};

// Returns the loops for `isa`. `has_vnni` and `has_bf16`: the processor has these instructions of AVX-512.
PanelKernels panel_kernels(Isa isa, bool has_vnni, bool has_bf16);
namespace plain {
PanelKernels panel_kernels();
}
namespace avx2 {
PanelKernels panel_kernels();
}
namespace avx512 {
PanelKernels panel_kernels(bool has_vnni, bool has_bf16);
}

// Returns whether `pairs` gives the bits of `wide_pairs` for operands whose least biased exponents are these. The instruction
// takes subnormal numbers as zero. All products and sums are multiples of the product of the last bits of both operands, so none
// of them is subnormal if that product is at least 2^-126.
constexpr bool safe_pairs(uint32_t x_exponent, uint32_t w_exponent) {
  return x_exponent > 0 && w_exponent > 0 && x_exponent + w_exponent >= 2 * 127 + 2 * 7 - 126;
}

// Writes the 16 scales (and minima, for int4 with minima) of a group as fp32. `bytes`: of the packed matrix.
void read_scales(const PackLayout& layout, const uint8_t* bytes, int64_t panel, int64_t g, float* scales, float* minima);

}  // namespace zt::packed
