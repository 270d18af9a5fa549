#include "packed/panel_kernels.h"

#include <algorithm>
#include <cstring>

namespace zt::packed {

namespace {

using PanelWords = Vector<uint32_t, kPanelRows>;
using PanelFloats = Vector<float, kPanelRows>;

void read_halves(const uint8_t* from, float* to) {
  Vector<uint16_t, kPanelRows> halves;
  std::memcpy(&halves, from, sizeof(halves));
  const auto bits = __builtin_convertvector(halves, PanelWords);
  // A float with the bits of a half in their places has an exponent that is too small by 112.
  const auto sizes = (PanelFloats)((bits & 0x7fffU) << 13) * 0x1p112F;
  const auto numbers = (PanelWords)sizes | (bits & 0x8000U) << 16;
  std::memcpy(to, &numbers, sizeof(numbers));
}

// As bitsandbytes computes them.
void read_nested_scales(const PackLayout& layout, const uint8_t* bytes, int64_t panel, int64_t g, float* scales) {
  const uint8_t* const codes = bytes + layout.group_offset(panel, g) + layout.code_bytes;
  const auto* const map = reinterpret_cast<const float*>(bytes + layout.tables_offset());
  const auto* const blocks = reinterpret_cast<const Nf4Block*>(map + kNf4MapEntries);
  int64_t group = panel * kPanelRows * layout.groups + g;
  const int64_t last = layout.rows * layout.groups - 1;
  for (int64_t i = 0; i < kPanelRows; ++i, group += layout.groups) {
    const Nf4Block& block = blocks[std::min(group, last) / kNf4Block];
    scales[i] = group > last ? 0 : map[codes[i]] * block.scale + block.offset;
  }
}

}  // namespace

PanelKernels panel_kernels([[maybe_unused]] Isa isa, [[maybe_unused]] bool has_vnni, [[maybe_unused]] bool has_bf16) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return avx512::panel_kernels(has_vnni, has_bf16);
  if (isa == Isa::avx2) return avx2::panel_kernels();
#endif
  return plain::panel_kernels();
}

void read_scales(const PackLayout& layout, const uint8_t* bytes, int64_t panel, int64_t g, float* scales, float* minima) {
  const uint8_t* const from = bytes + layout.group_offset(panel, g) + layout.code_bytes;
  switch (layout.spec.format) {
    case PackFormat::int8:
    case PackFormat::int4:
      read_halves(from, scales);
      if (layout.has_minima() && minima) read_halves(from + 2 * kPanelRows, minima);
      return;
    case PackFormat::nf4:
      if (layout.is_nested()) return read_nested_scales(layout, bytes, panel, g, scales);
      std::memcpy(scales, from, kPanelRows * sizeof(float));
      return;
    default:
      for (int64_t i = 0; i < kPanelRows; ++i) scales[i] = 1;
  }
}

}  // namespace zt::packed
