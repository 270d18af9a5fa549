// Where the bytes of a packed matrix lie. PACKED.md describes the layout.
#pragma once

#include <cstdint>

#include "zt/gemm/packed.h"

namespace zt::packed {

constexpr int64_t kPanelRows = 16;       // rows whose numbers are interleaved
constexpr int64_t kBlockColumns = 128;   // columns of `panels` that are summed together: their "group"
constexpr int64_t kMostColumns = 128;    // of a group
constexpr int64_t kNf4Block = 256;       // groups of nf4 that share a second scale
constexpr int64_t kNf4MapEntries = 256;  // of the map of nf4's 8-bit scales

// The second scale of nested nf4: the scale of a group is (number of the map) * scale + offset, rounded after each operation.
struct Nf4Block {
  float scale = 0, offset = 0;
};

// How the number of a row and column is stored.
enum class StoredCode : uint8_t {
  fp32,
  bf16,
  int8,    // two's complement
  nibble,  // 4 bits: an index into a table of 16 numbers
};

struct PackLayout {
  PackSpec spec;
  int64_t rows = 0, columns = 0;
  StoredCode code = StoredCode::fp32;
  int64_t padded_columns = 0;  // columns, or one more, so that panels hold pairs of columns
  int64_t panels = 0;          // of 16 rows
  int64_t group = 0;           // columns per group
  int64_t groups = 0;          // per row. The last group of `panels` may have fewer columns
  int64_t code_bytes = 0;      // of a whole group of a panel, without its scales
  int64_t group_bytes = 0;     // of a whole group of a panel
  int64_t panel_bytes = 0;
  int64_t nf4_blocks = 0;  // of nested nf4: groups of the matrix / 256, rounded up
  int64_t bytes = 0;

  // Returns the stored columns of group g.
  int64_t columns_of(int64_t g) const { return g + 1 < groups ? group : padded_columns - g * group; }
  int64_t panel_offset(int64_t panel) const { return panel * panel_bytes; }
  int64_t group_offset(int64_t panel, int64_t g) const { return panel_offset(panel) + g * group_bytes; }
  // The offset of the tables of nested nf4: the map (256 fp32), and the Nf4Block of each block.
  int64_t tables_offset() const { return panels * panel_bytes; }
  bool is_nested() const { return spec.format == PackFormat::nf4 && spec.nested; }
  bool has_minima() const { return spec.format == PackFormat::int4 && !spec.symmetric; }
  // Returns the number that the unsigned form of a code exceeds it by.
  int zero_point() const { return code == StoredCode::int8 ? 128 : has_minima() ? 0 : 8; }
};

// Requires arguments that the checks of packed_bytes accept.
PackLayout pack_layout(const PackSpec& spec, int64_t rows, int64_t columns);

// Returns the 16 numbers that the nibbles of this layout stand for. Null if its codes are no nibbles.
const float* nibble_table(const PackLayout& layout);

}  // namespace zt::packed
