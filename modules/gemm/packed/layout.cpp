#include "packed/layout.h"

#include "packed/nf4/nf4.h"

namespace zt::packed {

namespace {

StoredCode stored_code_of(const PackSpec& spec) {
  switch (spec.format) {
    case PackFormat::int8:
      return StoredCode::int8;
    case PackFormat::int4:
    case PackFormat::nf4:
      return StoredCode::nibble;
    default:
      return spec.dtype == at::kFloat ? StoredCode::fp32 : StoredCode::bf16;
  }
}

int64_t bits_of(StoredCode code) {
  switch (code) {
    case StoredCode::fp32:
      return 32;
    case StoredCode::bf16:
      return 16;
    case StoredCode::int8:
      return 8;
    default:
      return 4;
  }
}

// Returns the bytes of what a group of a panel holds beside its codes.
int64_t scale_bytes_of(const PackSpec& spec) {
  switch (spec.format) {
    case PackFormat::int8:
      return kPanelRows * 2;
    case PackFormat::int4:
      return kPanelRows * (spec.symmetric ? 2 : 4);
    case PackFormat::nf4:
      return kPanelRows * (spec.nested ? 1 : int64_t{sizeof(float)});
    default:
      return 0;
  }
}

}  // namespace

PackLayout pack_layout(const PackSpec& spec, int64_t rows, int64_t columns) {
  PackLayout layout;
  layout.spec = spec;
  layout.rows = rows;
  layout.columns = columns;
  layout.code = stored_code_of(spec);
  layout.padded_columns = (columns + 1) / 2 * 2;
  layout.panels = (rows + kPanelRows - 1) / kPanelRows;
  layout.group = spec.format == PackFormat::panels ? kBlockColumns : spec.group;
  layout.groups = (layout.padded_columns + layout.group - 1) / layout.group;
  const int64_t column_bits = kPanelRows * bits_of(layout.code), scale_bytes = scale_bytes_of(spec);
  layout.code_bytes = layout.group * column_bits / 8;
  layout.group_bytes = layout.code_bytes + scale_bytes;
  layout.panel_bytes = layout.padded_columns * column_bits / 8 + layout.groups * scale_bytes;
  layout.bytes = layout.panels * layout.panel_bytes;
  if (layout.is_nested()) {
    layout.nf4_blocks = (rows * layout.groups + kNf4Block - 1) / kNf4Block;
    layout.bytes += kNf4MapEntries * int64_t{sizeof(float)} + layout.nf4_blocks * int64_t{sizeof(Nf4Block)};
  }
  return layout;
}

const float* nibble_table(const PackLayout& layout) {
  static constexpr float kUnsigned[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  static constexpr float kSigned[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
  if (layout.code != StoredCode::nibble) return nullptr;
  if (layout.spec.format == PackFormat::nf4) return nf4_codes().data();
  return layout.spec.symmetric ? kSigned : kUnsigned;
}

}  // namespace zt::packed
