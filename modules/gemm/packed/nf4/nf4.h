// The format nf4: packs numbers as bitsandbytes does.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "packed/layout.h"

namespace zt::packed {

// Returns the 16 numbers of NormalFloat4 (Dettmers et al., QLoRA, arXiv 2305.14314, appendix E), ascending.
const std::array<float, 16>& nf4_codes();

// Returns the 256 numbers, ascending, of the dynamic map of 8 bits (Dettmers, 8-Bit Approximations for Parallelism in Deep
// Learning, arXiv 1511.04561), in which the scales of nf4 are stored.
const std::array<float, 256>& nf4_scale_map();

// Quantises `weight` [rows, columns], fp32 and contiguous, and writes all bytes of the packed matrix. Throws Fault if a number is
// not finite. Numbers are quantised as bitsandbytes does, except that the mean of the scales is rounded only once, and that the
// 8-bit code of a scale is always the nearest one.
void pack_nf4(const at::Tensor& weight, const PackLayout& layout, uint8_t* bytes);

// The tables at the end of a matrix in nested nf4.
struct Nf4Tables {
  float* map;
  Nf4Block* blocks;

  Nf4Tables(const PackLayout& layout, uint8_t* bytes)
      : map(reinterpret_cast<float*>(bytes + layout.tables_offset())),
        blocks(reinterpret_cast<Nf4Block*>(map + kNf4MapEntries)) {}
};

}  // namespace zt::packed
