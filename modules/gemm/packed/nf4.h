// The format nf4: packs numbers as bitsandbytes does, and reads what bitsandbytes has stored.
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

// The tensors of a matrix that bitsandbytes has quantised with quant_type "nf4", blocksize 64 and compressed statistics, by their
// names in its files.
struct Nf4Tensors {
  at::Tensor weight;            // uint8, rows * columns / 2: two codes per byte, the first one in the upper 4 bits
  at::Tensor absmax;            // uint8, rows * columns / 64
  at::Tensor quant_map;         // fp32 [16]
  at::Tensor nested_absmax;     // fp32, one per 256 of absmax
  at::Tensor nested_quant_map;  // fp32 [256]
  double nested_offset = 0;
};
// Writes `into.bytes`; unpack() then gives the bits of bitsandbytes' dequantize_4bit. Throws Misuse if `into` is not nf4 or a
// tensor does not have its dtype and size, and Fault if quant_map is not that of nf4 or a number is not finite.
void import_nf4(const Nf4Tensors& from, const PackedMatrix& into);

}  // namespace zt::packed
